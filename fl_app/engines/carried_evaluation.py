"""The evaluations of a run that the training of the next round carries."""

from collections.abc import Mapping, Sequence
from logging import getLogger
from typing import Any

from flwr.common import Parameters

from fl_app.engines import stop_request
from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.open_round import OpenRound
from fl_app.engines.plain_exchange import RoundExchange
from fl_app.engines.round_reporter import RoundReporter
from fl_app.records.recorder import OPEN_ROUND, Recorder
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.outcome import Outcome
from fl_app.strategies.roster import Roster

log = getLogger(__name__)


class CarriedEvaluation:
    """The round of a run that is `open`: not evaluated yet, and not in the records until it is.

    If `wanted`, a round stays open until the next one has trained. `outcome` is that of the last
    round that was closed.
    """

    def __init__(
        self,
        method: CommunityStrategy,
        exchange: RoundExchange,
        roster: Roster,
        reporter: RoundReporter,
        recorder: Recorder,
        *,
        wanted: bool,
    ) -> None:
        self.method, self.exchange, self.roster = method, exchange, roster
        self.reporter, self.recorder, self.wanted = reporter, recorder, wanted
        self.open: OpenRound | None = None
        self._saved: Mapping[str, Any] | None = None

    @property
    def attached(self) -> AttachedEvaluation | None:
        """The questions of the open round, None without one."""
        return None if self.open is None else self.open.attached

    def restore(self, state: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Take the open round from the state of a checkpoint; return all records so far."""
        self._saved = state.get(OPEN_ROUND)
        more = [] if self._saved is None else [self._saved["record"]]
        return [*self.recorder.history.rounds, *more]

    @property
    def unscored(self) -> int | None:
        """The open round of a resumed run, until `reopen`; None: there is none."""
        return None if self._saved is None else int(self._saved["record"]["round"])

    def reopen(self, parameters: Parameters) -> None:
        """Make the `unscored` round the open one."""
        assert self._saved is not None
        self.open = OpenRound.restored(self._saved, self.method, self.roster, parameters)
        self._saved = None

    def saved(self) -> Mapping[str, Any] | None:
        """Return the open round for a checkpoint, None without one."""
        return self._saved if self.open is None else self.open.saved()

    def begin(self, record: dict[str, Any], outcome: Outcome, parameters: Parameters) -> None:
        """Open a round that clients are to evaluate."""
        self.open = OpenRound.of(self.method, self.roster, parameters, record, outcome)
        self.recorder.trained()

    def apart_because(self, outcome: Outcome, server_round: int) -> str | None:
        """Return why a round needs its own exchange for evaluation, None if the next carries it."""
        method = self.method
        if not self.wanted:
            return "engine.evaluate_with_training=false"
        if not self.exchange.attaches:
            return "under masks a score is part of a sum of its own"
        receives = type(method).aggregate_evaluate is not CommunityStrategy.aggregate_evaluate
        if method.reads_scores or receives:
            return "the method uses the scores of a round in this round"
        if outcome.finished or server_round >= method.context.rounds:
            return "no round follows"
        return "the run stops after this round" if stop_request.asked() else None

    def close(self, messenger: ClientMessenger, server_round: int) -> tuple[float, Outcome | None]:
        """Record the open round with its scores, once those who can have answered.

        Return the seconds that this took, and its outcome; None without an open round.
        """
        found = self.open
        if found is None:
            return 0.0, None
        with stop_request.held():
            seconds = found.ask_rest(messenger, server_round)
            record, outcome = found.scored(self.reporter, seconds)
            self.open = None
            self.recorder.round(record)
        return seconds, outcome

    def leave(self) -> None:
        """Record the open round of a run that ends before it could be evaluated."""
        if (saved := self.saved()) is not None:
            record, self.open, self._saved = saved["record"], None, None
            log.warning("round %d has no scores until the run is resumed", record["round"])
            self.recorder.round(record)
