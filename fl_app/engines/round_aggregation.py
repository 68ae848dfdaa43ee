"""Passes the replies of a round to the method; a round with too few of them is skipped."""

from collections.abc import Iterable, Mapping, Sequence
from logging import getLogger
from math import isnan
from typing import Any

from flwr.common import Parameters

from fl_app.engines.plain_exchange import RoundExchange
from fl_app.engines.trained_round import TrainedRound
from fl_app.records.history import SKIPPED, was_skipped
from fl_app.strategies.outcome import Event
from fl_app.strategies.replies import (
    ClientFailure,
    LostRepliesError,
    TooFewRepliesError,
    too_few,
)

log = getLogger(__name__)
ATTEMPTS = 3
"""Most attempts at a round whose clients are lost, since they may come back. Also the number of
rounds after which a run fails: of its first if all were skipped, or of any in a row that were lost.
"""


class RoundAggregation:
    """Aggregates the rounds of a run of `rounds`; `parameters` are what the method returned last.

    A round with too few valid replies has no loss and an event `skipped`: clients that send
    nothing valid cannot end a run that has learnt from others.
    """

    def __init__(self, exchange: RoundExchange, parameters: Parameters, rounds: int) -> None:
        self.exchange, self.parameters, self.rounds = exchange, parameters, rounds
        self._idle: int | None = 0  # skipped rounds so far; None after the first round that was not
        self._lost = 0  # rounds in a row in which clients were lost

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Restore how many of the earlier rounds were skipped, or that any was not.

        Rounds in a row that were lost do not count: who resumes a run may have brought nodes back.
        """
        skipped = [was_skipped(record) for record in records]
        self._idle = len(skipped) if all(skipped) else None

    def learn(
        self,
        trained: TrainedRound,
        failures: Sequence[ClientFailure],
        refused: Iterable[ClientFailure],
        *,
        last: bool,
    ) -> tuple[Any, Event | None]:
        """Pass the replies and failures of a round to the method; return the training loss.

        `failures` are those for the message of an error, and `refused` those of nodes that could
        not introduce themselves. `last`: the round has no further attempt. Raises
        TooFewRepliesError before the state of the method changes.
        """
        try:
            parameters, metrics = self.exchange.learn(trained.round, [*trained.failures, *refused])
        except TooFewRepliesError as error:
            told = too_few(error, failures)
            lost = isinstance(told, LostRepliesError)
            if (lost and not last) or not self._may_skip(lost=lost):
                raise told from error
            log.warning("%s; the models stay as they are", told)
            return None, Event(SKIPPED, str(told))
        self._idle, self._lost = None, 0
        if parameters is not None:
            self.parameters = parameters
        loss: Any = metrics.get("train_loss")
        untold = isinstance(loss, float) and isnan(loss)
        return None if untold else loss, None

    def _may_skip(self, *, lost: bool) -> bool:
        """Count a skipped round; False if nobody has been learnt from yet, or for long."""
        self._lost = self._lost + 1 if lost else 0
        if self._idle is None:
            return self._lost < ATTEMPTS
        self._idle += 1
        return not lost and self._idle < min(ATTEMPTS, self.rounds)
