"""Methods that can learn from secure sums over clients, without the reply of any one."""

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fl_app.masking.slots import SlotSums
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.outcome import Event
from fl_app.strategies.roster import Roster
from fl_app.types import Vectors


class FromSums(CommunityStrategy, ABC):
    """A method for which sums over the clients of each model suffice, as under `masking=secagg`."""

    judged_freely = False
    sums_suffice: ClassVar[Mapping[str, Sequence[Any]]]
    """The values of settings with which they suffice, by name; the first is the usual one."""

    def reject(self, failures: FitFailures) -> None:
        """Record the replies that were rejected before they could be part of a sum."""
        self.rejections.add_failed(failures)

    def skip(self, row: int, why: str) -> None:
        """Add the event that a model is not trained in this round."""
        self.events.append(Event("model skipped", f"model {row}: {why}"))

    def configure_scores(self, server_round: int, known: Roster) -> tuple[Vectors, dict[int, Rows]]:
        """Begin an evaluation; return models (m, d) and the rows that each client chooses from."""
        asked = self.to_evaluate(server_round, list(known.proxies()))
        models, rows = self.attribute(asked)
        self.evaluation.begin()
        return models, dict(zip(asked, rows, strict=True))

    def aggregate_scores(self, mean: float, deviation: float) -> None:
        """Store mean and deviation of the accuracy over the clients of an evaluation."""
        self.evaluation.scores.overall = mean, deviation

    def aggregate_sums(self, server_round: int, sums: SlotSums) -> Aggregated:
        """Move each model by the mean update of the clients that chose it.

        All that the method learns of a round under secure aggregation.
        """
        self.aggregator.move(self.state.communities.models, sums)
        return encode(self.state.communities.models[0]), {"train_loss": sums.loss}
