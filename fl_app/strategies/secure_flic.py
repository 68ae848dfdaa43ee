"""FLIC from secure sums: the server learns sums of updates and one noisy sketch of each client.

The communities of Espinoza Castellon et al., IJCNN 2022, "Federated learning with incremental
clustering for heterogeneous data", in a run in which the server sees no update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager
from pydantic import Field

from fl_app.aggregation import weighted_mean
from fl_app.client.privacy_base import Delta, Epsilon
from fl_app.client.sketch_release import Dimension, SketchRelease
from fl_app.graph.noisy_sketches import (
    mean_sketches,
    nearest_mean,
    sketch_communities,
    sketch_similarity,
    without_small,
)
from fl_app.graph.partitions import by_modularity
from fl_app.masking.stages import FEWEST
from fl_app.strategies.cohort import FitFailures, FitInstructions, FitReplies
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.outcome import Event, Outcome, View, clustering
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.roster import roster
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities, MethodState
from fl_app.types import Labels, Matrix, Participation, Randomness, Sketch, Sketches


@dataclass(kw_only=True)
class SecureFlicState(MethodState):
    """The state of the method in a checkpoint."""

    clustered_at: int | None = None
    """The round in which the clients were clustered; None: not yet."""
    trained: set[int] = field(default_factory=set)
    """The clients that were asked to train the one model, and can have a sketch."""
    asked: set[int] = field(default_factory=set)
    """The clients that were asked for their sketch, which is spent even if it was lost."""
    sketches: dict[int, list[float]] = field(default_factory=dict)
    """The sketch (q,) of each client that sent one."""


class SecureFlic(FromSums):
    """One model from sums of all; then communities of sketches, each with sums of its own.

    Before `cluster_round` a round is that of FedAvg under masks. In `cluster_round` no client
    trains: each that has trained releases its sketch, once in the run (`SketchRelease`). The server
    finds communities in the sketches (`sketch_communities`) and joins those with fewer than
    `smallest` clients with the nearest one. From then on each community's model is a secure sum
    inside of it. A client whose sketch was lost is asked again in each round, sends the same one,
    and joins the community with the nearest mean sketch. A client that never trained before
    `cluster_round` belongs to no community; it does not train, and in an evaluation takes the
    model with the least training loss.

    FLIC compares `1 + cos` of the last updates; here it is the cosine of cumulated updates less
    the common drift, since the noise of the release hides all that is weaker.
    """

    state: SecureFlicState
    name = "secure_flic"
    needs_masks = True
    sums_suffice: ClassVar[Mapping[str, Sequence[Any]]] = {"weighting": ("samples", "uniform")}
    graph_use = GraphUse(only=("backend", "resolution", "sparse_above"))

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        cluster_round: Annotated[int, Field(ge=2)],
        dimension: Dimension,
        epsilon: Epsilon,
        delta: Delta,
        randomness: Randomness,
        smallest: Annotated[int, Field(ge=FEWEST)],
        weighting: Literal["samples", "uniform"],
    ) -> None:
        super().__init__(
            context, participation=participation, rule=weighted_mean, weighting=weighting
        )
        self.cluster_round, self.smallest = cluster_round, smallest
        self.release = SketchRelease(
            dimension=dimension, epsilon=epsilon, delta=delta, randomness=randomness
        )
        self.state = SecureFlicState(communities=Communities.of(context.initial))
        self._booked = 0, list[int]()  # a round, and who was first asked for a sketch in it

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample from all clients, or from each community; ask for the sketches that are due."""
        present, state = list(roster(client_manager).proxies()), self.state
        former, booked = self._booked
        # a round that is repeated has one record, which must name those of all its attempts
        self._booked = server_round, booked if server_round == former else []
        if server_round < self.cluster_round:
            cohort = self.sampler.draw(server_round, present, "all")
            state.trained.update(cohort)
            return self.instruct(server_round, cohort, client_manager)
        cohort = [client for client in present if self.releases(client, server_round)]
        self._booked[1].extend(client for client in cohort if client not in state.asked)
        state.asked.update(cohort)
        for row in range(len(state.communities.models)):
            inside = [each for each in present if state.communities.members.get(each) == row]
            cohort += self.sampler.draw(server_round, inside, f"community {row}")
        return self.instruct(server_round, sorted(cohort), client_manager)

    def releases(self, client_id: int, server_round: int) -> bool:
        """Whether a client is to release its sketch in this round."""
        known = self.state.communities.members
        due = server_round >= self.cluster_round
        return due and client_id in self.state.trained and client_id not in known

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> NoReturn:
        """Raise NotImplementedError: single updates are not what this method learns from."""
        raise NotImplementedError(
            "strategy=secure_flic learns from secure sums alone; give masking=secagg"
        )

    def aggregate_sketches(self, server_round: int, sketches: Mapping[int, Sketch]) -> None:
        """Find the communities of the clients with these sketches (q,), or add these clients.

        Raises TooFewRepliesError for fewer sketches than a community needs clients.
        """
        if self.state.clustered_at is not None:
            self._join(sketches)
            return
        least = max(self.smallest, self.context.min_success)
        if len(sketches) < least:
            raise TooFewRepliesError(
                f"round {server_round} must have at least {least} sketches, got {len(sketches)}"
            )
        self.state.sketches = {each: sketches[each].tolist() for each in sorted(sketches)}
        ids, rows = self._known()
        found = sketch_communities(rows, deviation=self.deviation, partition=self._partition)
        labels = without_small(rows, found, smallest=self.smallest)
        members = dict(zip(ids.tolist(), labels.tolist(), strict=True))
        models = np.repeat(self.state.communities.models[:1], labels.max() + 1, axis=0)
        self.state.communities = Communities(models, members)
        self.state.clustered_at = server_round
        self.events.append(clustering(labels))

    def skip(self, row: int, why: str) -> None:
        """Add the event that a community keeps its model in this round."""
        self.events.append(Event("community skipped", f"community {row}: {why}"))

    def _join(self, sketches: Mapping[int, Sketch]) -> None:
        """Give clients whose sketch was late the community with the nearest mean sketch."""
        ids, rows = self._known()
        members = self.state.communities.members
        means = mean_sketches(rows, np.array([members[each] for each in ids.tolist()]))
        for client, sketch in sorted(sketches.items()):
            members[client] = nearest_mean(means, sketch)
            self.state.sketches[client] = sketch.tolist()
            detail = f"client {client} in community {members[client]} by its sketch"
            self.events.append(Event("joined a community", detail, [client]))

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each number of a sketch."""
        return self.release.noise_multiplier

    def _known(self) -> tuple[Labels, Sketches]:
        """Return the sorted ids (n,) of the clients with a sketch, and the sketches (n, q)."""
        ids = sorted(self.state.sketches)
        return np.array(ids, int), np.array([self.state.sketches[i] for i in ids], np.float32)

    def _partition(self, similarity: Matrix) -> Labels:
        return by_modularity(len(similarity), how=self.context.detection)(similarity)

    def view(self, server_round: int) -> View | None:
        """Return the communities and the similarity of the sketches, None before they are found."""
        if self.state.clustered_at is None:
            return None
        ids, rows = self._known()
        labels = np.array([self.state.communities.members[each] for each in ids.tolist()], int)
        whole = len(ids) <= self.context.detection.sparse_above
        similarity = sketch_similarity(rows, deviation=self.deviation) if whole else None
        return View(ids, labels, similarity)

    def outcome(self, server_round: int) -> Outcome:
        """Add what the sketches cost, and an evaluation in the round of the clustering."""
        measures = self.state.clustered_at == server_round
        return replace(super().outcome(server_round), measures=measures, privacy=self._privacy())

    def _privacy(self) -> dict[str, Any]:
        """Return the budget of the sketches as of now, in the form of a round's record."""
        spent, asked = self.release.spent, self.state.asked
        clients = {str(c): spent if c in asked else 0.0 for c in self.cohort.client_ids}
        of_one = asdict(self.release.booked)
        return {
            "kind": "sketch",
            "delta": self.release.delta,
            "budget": "run",
            "limit": self.release.epsilon,
            "epsilon": {
                "max": spent if asked else 0.0,
                "mean": spent if asked else 0.0,
                "clients": clients,
            },
            "noise_multiplier": self.deviation,
            "clip": 1.0,
            "next_clip": 1.0,
            "fitting": None,
            "released": {str(client): of_one for client in self._booked[1]},
        }
