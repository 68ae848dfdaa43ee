"""FedAvg and FedMedian: one model for all clients."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fl_app.aggregation import Weighting, median, weighted_mean
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Aggregated, FitFailures, FitReplies
from fl_app.strategies.encoding import encode
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.graph_settings import NO_SUSPECTS
from fl_app.strategies.outcome import View
from fl_app.strategies.server_context import ServerContext
from fl_app.types import Participation


class SingleModel(CommunityStrategy):
    """Sample, train, aggregate: McMahan et al., AISTATS 2017, algorithm 1, with any rule."""

    graph_use = NO_SUSPECTS
    compares = False

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Replace the model with the aggregate of the valid replies."""
        replies = self.receive(server_round, results, failures)
        self.aggregator.update(self.state.communities.models, replies)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def view(self, server_round: int) -> View | None:
        """Return None, since there are no communities."""
        return None


class FedAvg(SingleModel, FromSums):
    """Federated averaging: the mean of the clients' models weighted by their samples.

    `weighting=capped` limits the weight of a client; the paper has no limit.
    """

    sums_suffice: ClassVar[Mapping[str, Sequence[Any]]] = {"weighting": ("samples", "uniform")}

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        weighting: Weighting,
    ) -> None:
        super().__init__(
            context, participation=participation, rule=weighted_mean, weighting=weighting
        )


class FedMedian(SingleModel):
    """The coordinate-wise median of the clients' models (Yin et al., ICML 2018, option I)."""

    def __init__(self, context: ServerContext, *, participation: Participation) -> None:
        super().__init__(context, participation=participation, rule=median)
