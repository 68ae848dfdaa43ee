"""A round whose clients have trained: who failed, and how long its parts took."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import getLogger

from fl_app.records.history import ATTEMPT
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.replies import ClientFailure, RejectedReply

log = getLogger(__name__)


@dataclass
class TrainedRound:
    """A round whose clients have trained: who failed, who left, and when.

    `earlier` are the failures of its attempts before this one, and `repeated` says why there were
    several.
    """

    round: int
    began: float
    training_s: float
    failures: list[ClientFailure]
    leaving: Event | None
    earlier: list[ClientFailure] = field(default_factory=list)
    repeated: list[Event] = field(default_factory=list)

    def follows(self, former: "TrainedRound", rejected: Mapping[int | str, str], why: str) -> None:
        """Take over what the records must have of the attempt before, with its rejected clients."""
        number = len(former.repeated) + 1
        mark = f"{ATTEMPT}{number}: "
        lost = [each for each in former.failures if not isinstance(each, RejectedReply)]
        self.began = former.began
        self.earlier = [*former.earlier]
        self.earlier += [ClientFailure(each.client_id, mark + each.reason) for each in lost]
        self.earlier += [RejectedReply(client, mark + each) for client, each in rejected.items()]
        self.repeated = [*former.repeated, Event("repeated", mark + why)]


def failed(
    server_round: int, failures: Sequence[ClientFailure], what: str = ""
) -> list[ClientFailure]:
    """Return and log the failures without malformed replies, which the strategy rejects.

    The reasons that are returned begin with `what`.
    """
    found = [each for each in failures if not isinstance(each, RejectedReply)]
    for failure in found:
        log.warning("round %d: %s%s", server_round, what, failure)
    return [ClientFailure(each.client_id, what + each.reason) for each in found] if what else found


def times(trained: TrainedRound, evaluation_s: float, outcome: Outcome) -> dict[str, float]:
    """Return the seconds of a round until now, in total and for each part.

    What clients tell of their seconds counts up to those that the server waited for each of them.
    """
    total_s = time.perf_counter() - trained.began
    return {
        "total_s": total_s,
        "training_s": trained.training_s,
        "server_s": total_s - trained.training_s - evaluation_s,
        "evaluation_s": evaluation_s,
        "clients_s": min(outcome.training_s, len(outcome.cohort) * trained.training_s),
    }
