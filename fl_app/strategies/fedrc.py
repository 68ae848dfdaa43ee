"""FedRC: as FedEM, but a component that has much of a class is not preferred for this class.

Guo, Tang and Lin, ICML 2024, "FedRC: tackling diverse distribution shifts challenge in federated
learning by robust clustering".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.common import Scalar
from flwr.server.client_manager import ClientManager

from fl_app.aggregation import Weighting, sample_weights
from fl_app.client.mixture import CLASS_WEIGHTS, PRIORS
from fl_app.learner_reports import Report
from fl_app.strategies.cohort import FitInstructions
from fl_app.strategies.fedem import FedEm, FedEmState, summing_to_one
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import RuleName, ServerContext
from fl_app.types import Between, Fallback, Participation
from fl_app.used_with import UsedWith

RAREST = 1e-8
"""Smallest share of a class in a component, before the shares are scaled to sum to 1."""


@dataclass(kw_only=True)
class FedRcState(FedEmState):
    """The state of FedRC in a checkpoint."""

    class_weights: dict[int, list[float]] = field(default_factory=dict)
    """Each client's share of each class in each component (k * c,), which sum to 1."""
    samples: dict[int, float] = field(default_factory=dict)
    """The number of training samples of each of these clients."""


class FedRc(FedEm):
    """FedEM whose responsibilities divide by the share of a sample's class in a component.

    `q_ik ~ weights_k exp(-loss_ik) / P(y_i | k)`, where P is computed by the server from what all
    clients told last. Clients with other classes then use the same component if its answers fit
    them, and only clients with other labels for the same images, or other images, use others.
    """

    state: FedRcState
    used_with: ClassVar[UsedWith] = {}  # weights count in the shares of classes with any rule
    asks = {CLASS_WEIGHTS: Report(length=1, low=0, high=1, per=("classes",))}  # noqa: RUF012

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        rule: RuleName,
        weighting: Weighting,
        fallback: Fallback,
    ) -> None:
        super().__init__(
            context,
            participation=participation,
            rule=rule,
            weighting=weighting,
            fallback=fallback,
        )
        self.state = FedRcState(communities=self.state.communities)

    def instruct(
        self,
        server_round: int,
        cohort: Sequence[int],
        client_manager: ClientManager,
        task: Mapping[str, Scalar] | None = None,
    ) -> FitInstructions:
        """Send the shares of the classes with the models, once clients have told some."""
        given = dict(task or {})
        if self.state.class_weights and not self.trains_common:
            given[PRIORS] = np.log(self.priors()).astype("<f4").tobytes()
        return super().instruct(server_round, cohort, client_manager, given)

    def priors(self) -> Between:
        """Return the share of each class in each component (k, c); each row sums to 1.

        It is the mean over all clients that told theirs, weighted by `weighting` among all of them.
        """
        told, samples = self.state.class_weights, self.state.samples
        counts = np.array([samples[client] for client in told])
        weights = sample_weights(counts, how=self.weighting, cap=self.context.sample_cap)
        total = weights / weights.max() @ np.array([*told.values()])
        shares = summing_to_one(total.reshape(self.count, -1))
        return summing_to_one(np.maximum(shares, RAREST))

    def remember(self, replies: Replies) -> None:
        """Store the clients' shares of classes in components, and their numbers of samples."""
        told = summing_to_one(replies.reports[CLASS_WEIGHTS])
        weights = told.reshape(len(told), self.count, -1).sum(axis=2)
        for place, client in enumerate(replies.client_ids.tolist()):
            self.state.told[client] = weights[place].tolist()
            self.state.class_weights[client] = told[place].tolist()
            self.state.samples[client] = float(replies.samples[place])
