"""Two-phase methods that tell which communities they would find before they cluster."""

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from fl_app.graph.client_graph import ClientGraph
from fl_app.strategies.cohort import Aggregated, FitFailures, FitReplies
from fl_app.strategies.graph_use import view_of, with_nearest
from fl_app.strategies.outcome import View
from fl_app.strategies.two_phase import TwoPhase
from fl_app.strategies.two_phase_state import TwoPhaseState
from fl_app.types import Labels


@dataclass(kw_only=True)
class LookingAheadState(TwoPhaseState):
    """The state of such a method in a checkpoint."""

    graph: ClientGraph
    """The latest vectors of the clients; with contrast alone empty."""
    seen: dict[int, int] = field(default_factory=dict)
    """With contrast, the community of each client in the last look that found several."""
    look_aheads: int = 0
    """How many looks were before the clustering."""


class LookingAhead(TwoPhase):
    """It looks at its graph every `graph.look_ahead_every` rounds until it clusters.

    With contrast, a look that finds one community returns those of the last look that found
    several, to which clients that are new since are added by similarity. When the model fits the
    training samples, sums of updates go on growing by what is each client's own, beside which no
    split is significant any more. That is no evidence against one that was.

    Each look is a test of the clients: clusterings have odd numbers and look-aheads even ones, so
    that the sum over all tests is that of `reach`, and the first clustering is the first test.
    """

    state: LookingAheadState
    _looked: tuple[int, Labels, Labels, bool] | None = None
    _ahead: bool = False
    """Whether a look-ahead is being made, and not a clustering."""

    @abstractmethod
    def among(self, graph: ClientGraph) -> Labels:
        """Return the rows (n,) of a graph that are clustered, in the order of the ids."""

    @property
    def test_number(self) -> int:
        """The number of the test of the clients that is being made, from 1 on."""
        return 2 * self.state.look_aheads if self._ahead else 2 * self.state.searches + 1

    @property
    def knows(self) -> bool:
        """Whether there is a client in a graph."""
        return len(self.state.graph) > 0 or len(self.state.sums) > 0

    def find(self) -> tuple[Labels, Labels]:
        """Find the communities of the latest vectors, or with contrast of the sums."""
        if not self.context.contrast:
            return self.find_own()
        sums, seen = self.state.sums, self.state.seen
        among = self.among(sums)
        ids, labels = sums.vectors.ids_of(among), sums.labels(among)
        if labels.any():
            self.state.seen = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        elif seen:
            before = np.array([seen.get(client, -1) for client in ids.tolist()], int)
            labels = with_nearest(sums, among, before)
        return ids, labels

    def find_own(self) -> tuple[Labels, Labels]:
        """Find the communities of the latest vectors."""
        among = self.among(self.state.graph)
        return self.state.graph.vectors.ids_of(among), self.state.graph.labels(among)

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Aggregate, cluster if it is due, or else look ahead if that is."""
        found = super().aggregate_fit(server_round, results, failures)
        every = self.context.look_ahead_every
        if self.state.clustered_at is not None:
            self.state.seen = {}
        elif every and server_round % every == 0 and self.knows:
            self.state.look_aheads += 1
            self._ahead = True
            self._looked = server_round, *self.look(own=True)
            self._ahead = False
        return found

    def view(self, server_round: int) -> View | None:
        """Return the communities, or before the clustering those of the look in this round."""
        at, own = self.state.clustered_at, self.state.by_own
        if at is None:
            if self._looked is None or self._looked[0] != server_round:
                return None
            ids, labels, own = self._looked[1:]
        else:
            ids, labels = self.known()
        if not len(ids):
            return None
        graph = self.state.sums if self.context.contrast and not own else self.state.graph
        return view_of(self.context, graph, ids, labels, clustered=server_round == at)
