"""Methods that can learn from secure sums over clients, without the reply of any one."""

from abc import ABC
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from flwr.common import Parameters, Scalar

from fl_app.masking.slots import SlotSums
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.encoding import encode


class FromSums(CommunityStrategy, ABC):
    """A method for which sums over the clients of each model suffice, as under `masking=secagg`."""

    needs_masks: ClassVar[bool] = False
    """Whether it learns from secure sums alone, and not from replies."""
    sums_suffice: ClassVar[Mapping[str, Sequence[Any]]]
    """The values of settings with which they suffice, by name; the first is the usual one."""

    def aggregate_sums(
        self, server_round: int, sums: SlotSums
    ) -> tuple[Parameters, dict[str, Scalar]]:
        """Move each model by the mean update of the clients that chose it.

        All that the method learns of a round under secure aggregation.
        """
        self.aggregator.move(self.state.communities.models, sums)
        return encode(self.state.communities.models[0]), {"train_loss": sums.loss}
