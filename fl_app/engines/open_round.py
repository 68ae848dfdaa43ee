"""A round that is aggregated and recorded but for its evaluation, which the next one carries."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from flwr.common import Parameters

from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.round_reporter import RoundReporter
from fl_app.engines.trained_round import failed
from fl_app.records.history import EVALUATION, chosen_reasons
from fl_app.records.plain import plain
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.model_evaluation import ModelEvaluation
from fl_app.strategies.outcome import Outcome
from fl_app.strategies.rejections import Rejections
from fl_app.strategies.roster import Roster


@dataclass
class OpenRound:
    """A round without scores: its `record` and `outcome`, and the `clients` present at its end.

    The models that it evaluates are valid until the next aggregation. `attached` has the questions,
    and `evaluation` reads the answers.
    """

    record: dict[str, Any]
    outcome: Outcome
    clients: set[int]
    evaluation: ModelEvaluation
    rejections: Rejections
    attached: AttachedEvaluation

    @classmethod
    def of(
        cls,
        method: CommunityStrategy,
        roster: Roster,
        parameters: Parameters,
        record: dict[str, Any],
        outcome: Outcome,
        clients: Iterable[int] | None = None,
    ) -> Self:
        """Return the last round of a method, of whose replies `outcome.rejected` were rejected."""
        now = record["round"]
        questions = method.configure_evaluate(now, parameters, roster)
        rejections = Rejections()
        rejections.begin(now)
        rejections.by_client.update(outcome.rejected)
        present = set(roster.proxies() if clients is None else clients)
        evaluation = method.evaluation.handed_over(rejections)
        return cls(record, outcome, present, evaluation, rejections, AttachedEvaluation(questions))

    @classmethod
    def restored(
        cls,
        saved: Mapping[str, Any],
        method: CommunityStrategy,
        roster: Roster,
        parameters: Parameters,
    ) -> Self:
        """Return what `saved` returned, for a method with the state after this round."""
        record = dict(saved["record"])
        rejected = {_client(name): why for name, why in saved["rejected"].items()}
        outcome = replace(method.outcome(record["round"]), rejected=rejected)
        return cls.of(method, roster, parameters, record, outcome, saved["clients"])

    def saved(self) -> dict[str, Any]:
        """Return JSON values for a checkpoint."""
        found: dict[str, Any] = plain(
            {
                "record": self.record,
                "clients": sorted(self.clients),
                "rejected": self.outcome.rejected,
            }
        )
        return found

    def ask_rest(self, messenger: ClientMessenger, server_round: int) -> float:
        """Ask those who have not answered and are not lost; return the seconds that this took."""
        began = time.perf_counter()
        self.attached.ask_rest(messenger, server_round)
        return time.perf_counter() - began

    def scored(self, reporter: RoundReporter, seconds: float) -> tuple[dict[str, Any], Outcome]:
        """Return the record and the outcome with the scores of the answers so far.

        `seconds` is what the evaluation took beside the next round's training.
        """
        attached, now, spent = self.attached, self.record["round"], self.record["time"]
        self.evaluation.receive(attached.results, [*attached.failures])
        failures = failed(now, attached.failures, EVALUATION)
        outcome = replace(
            self.outcome, scores=self.evaluation.scores, rejected=self.rejections.by_client
        )
        record = self.record | reporter.scored(outcome, self.clients)
        record["failed"] = chosen_reasons(
            [*record["failed"].items(), *reporter.failed(failures).items()]
        )
        record["rejected"] = reporter.named(outcome.rejected)
        record["time"] = spent | {
            "total_s": spent["total_s"] + seconds,
            "evaluation_s": spent["evaluation_s"] + seconds,
        }
        return record, outcome


def _client(name: str) -> int | str:
    """Return a client id from a key of a JSON object, or the node that it names."""
    return int(name) if name.isdecimal() else name
