"""The cases of `graph_scale.py`: each method, and its state after many rounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import numpy as np

from fl_app.config import load, option
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.vector_backends import choose
from fl_app.learner_reports import Report
from fl_app.params import Layout
from fl_app.server_wiring import detection
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.flux import Flux
from fl_app.strategies.pacfl import Pacfl
from fl_app.strategies.server_context import ServerContext, largest
from fl_app.strategies.state import Communities
from fl_app.wiring import made

GROUPS, CLASSES, INPUTS = 5, 10, 784
MEMORY_GB = 4.0
LATER = 10**6
"""A round that no run of this benchmark reaches."""
FAR = 5.0
"""The loss of a model on the data of another group."""
Build = Callable[..., CommunityStrategy]
"""From a context and `participation`."""


def _published(choice: str, *given: Any, **changes: Any) -> CommunityStrategy:
    """Build a method as published: the trial of a split has a cost of its own."""
    unjudged = {"fallback": False} if "fallback" in option(choice).options else {}
    built: CommunityStrategy = made(choice, *given, **unjudged, **changes)
    return built


METHODS: dict[str, Build] = {
    "flic": partial(_published, "strategy=flic", cluster_round=LATER),
    "flic_contrast": partial(_published, "strategy=flic", cluster_round=LATER),
    "cfl": partial(  # measures every cut of all clients, and finds no gap worth one
        _published,
        "strategy=cfl",
        mode="clusters",
        max_age=LATER,
        alpha_threshold=0.99,
        gap_above=3.0,
    ),
    "dcfl": partial(_published, "strategy=dcfl"),
    "dcfl_anew": partial(_published, "strategy=dcfl"),
    "dcfl_catch_up": partial(_published, "strategy=dcfl", catch_up=True),
    "communities": partial(_published, "strategy=communities"),
    "communities_catch_up": partial(_published, "strategy=communities", catch_up=True),
    "communities_1nn": partial(_published, "strategy=communities_1nn"),
    "communities_wnn": partial(_published, "strategy=communities_wnn"),
    "late": partial(_published, "strategy=late", cluster_round=LATER),
    "hierarchical": partial(_published, "strategy=hierarchical", cluster_round=LATER),
    "hierarchical_clustering": partial(_published, "strategy=hierarchical", cluster_round=1),
    "flux": partial(_published, "strategy=flux"),
    "flux_clustering": partial(_published, "strategy=flux"),
    "pacfl": partial(_published, "strategy=pacfl"),
    "pacfl_clustering": partial(_published, "strategy=pacfl"),
    "secure_flic": partial(_published, "strategy=secure_flic"),
    "secure_flic_clustering": partial(_published, "strategy=secure_flic"),
    "fedgwc": partial(_published, "strategy=fedgwc"),
    "feddrift": partial(_published, "strategy=feddrift"),
    "ifca": partial(_published, "strategy=ifca", communities=GROUPS),
    "fedem": partial(_published, "strategy=fedem"),
    "fedrc": partial(_published, "strategy=fedrc"),
}
_MIXTURE = f"{GROUPS} components of this many parameters each"
WHAT = {
    "flic_contrast": "with graph.contrast=true",
    "dcfl": "rounds in which the Dunn index keeps the communities",
    "dcfl_anew": "rounds with affinity propagation",
    "dcfl_catch_up": "as dcfl, with strategy.catch_up=true",
    "communities_catch_up": "with strategy.catch_up=true",
    "hierarchical": "rounds before the clustering",
    "hierarchical_clustering": "the clustering of the updates of all clients, once in a run",
    "flux": "rounds after the clustering",
    "flux_clustering": "the clustering of the descriptors of all clients, once in a run",
    "pacfl": "rounds after the clustering",
    "pacfl_clustering": "the clustering of the subspaces of all clients, once in a run",
    "secure_flic": "rounds after the clustering, from sums without masks",
    "secure_flic_clustering": "the clustering of the sketches of all clients, once in a run",
    "fedgwc": "rounds without a split",
    "fedem": _MIXTURE,
    "fedrc": _MIXTURE,
}
ONCE = {name for name in METHODS if name.endswith("_clustering")}
"""Cases of what happens once in a run."""


@dataclass
class Planted:
    """Models of clients in groups: the start, the group's direction, and noise as long."""

    layout: Layout
    scale: float = 0.01

    def __post_init__(self) -> None:
        draw = np.random.default_rng(0)
        self.initial = 0.05 * draw.standard_normal(self.layout.size, np.float32)
        self._centres = draw.standard_normal((GROUPS, self.layout.size), np.float32)
        self._noise = draw.standard_normal(3 * self.layout.size, np.float32)

    def model(self, client: int, number: int) -> np.ndarray:
        """Return a model (d,): noise is a keyed window of one long draw."""
        start = np.random.default_rng((client, number)).integers(2 * self.layout.size)
        noise = self._noise[start : start + self.layout.size]
        step = np.float32(self.scale) * (self._centres[client % GROUPS] + noise)
        moved: np.ndarray = self.initial + step
        return moved


def layout_of(method: str, layout: Layout) -> Layout:
    """Return the layout of a method's model, for one component of this layout."""
    if method not in ("fedem", "fedrc"):
        return layout
    names = [f"components.{k}.{name}" for k in range(GROUPS) for name in layout.names]
    shapes = (*layout.shapes * GROUPS, (GROUPS,))
    return Layout((*names, "weights"), shapes, len(names))


def context_of(method: str, clients: int, planted: Planted) -> ServerContext:
    """Return what the wiring gives a strategy at the default settings of the graph."""
    config = load([])
    graph = config.graph
    backend = partial(
        choose, "auto", clients=clients, memory_gb=MEMORY_GB, dimension=graph.sketch_dim,
        seed=0,
    )  # fmt: skip
    soon = method.endswith("_catch_up")  # in a short run, communities are found at once
    return ServerContext(
        seed=0, rounds=1 if soon else LATER, layout=planted.layout, initial=planted.initial,
        min_success=1, evaluate_every=LATER, evaluate_at_most=None, largest_update=None,
        clip_update=None, sample_cap=inf, detection=detection(config), vector_backend=backend,
        look_ahead_every=graph.look_ahead_every, benign=largest,
        contrast=method == "flic_contrast", or_own=False, private=False, noise_varies=False,
        metrics=(), classes=CLASSES, inputs=INPUTS, has_accuracy=True, least_loss=0.0,
        fresh=lambda number: planted.model(number, LATER), union=None,
    )  # fmt: skip


def fill(method: str, strategy: CommunityStrategy, clients: int, planted: Planted) -> None:
    """Put the last vector of every client into the state, as the rounds before would have."""
    members = {client: client % GROUPS for client in range(clients)}
    FILLS.get(method.partition("_")[0], _fill_graph)(method, strategy, members, planted)


def _fill_graph(
    method: str, strategy: CommunityStrategy, members: dict[int, int], planted: Planted
) -> None:
    state, initial, graph = strategy.state, planted.initial, graph_of(method, strategy)
    for client in members:
        model = planted.model(client, 0)
        if method.startswith("dcfl"):
            graph.put(client, np.concatenate([initial, model]), 0)
        else:
            graph.put(client, model if _uses_models(method) else model - initial, 0)
        if method.endswith("_catch_up"):
            state.moved.put(client, model, 0)  # type: ignore[attr-defined]
    plant(graph, len(members))
    if method in ("dcfl", "dcfl_catch_up"):
        centres = [planted.model(group, 0) for group in range(GROUPS)]
        state.communities = Communities(np.stack(centres), members)
        state.before = np.repeat(initial[None, :], GROUPS, axis=0)  # type: ignore[attr-defined]
    if method == "cfl":
        state.communities.members.update(dict.fromkeys(members, 0))
    if method == "communities_catch_up":
        _place(strategy, members, planted)
    if method.startswith("communities"):
        state.samples.update(dict.fromkeys(members, 10.0))  # type: ignore[attr-defined]


def graph_of(method: str, strategy: CommunityStrategy) -> ClientGraph | None:
    """Return the graph in which a method finds communities, None if it has none."""
    return getattr(strategy.state, "sums" if method == "flic_contrast" else "graph", None)


def _fill_described(
    method: str, strategy: CommunityStrategy, members: dict[int, int], planted: Planted
) -> None:
    assert isinstance(strategy, Flux | Pacfl)
    state, describe = strategy.state, _described(strategy)
    for client in members:
        state.graph.put(client, describe(client), 0)
    if method in ONCE:
        return
    plant(state.graph, len(members))
    _place(strategy, members, planted)
    if isinstance(strategy, Flux):
        strategy.state.described_at = 0
    else:
        strategy.state.clustered_at = 0


def _described(strategy: Flux | Pacfl) -> Callable[[int], np.ndarray]:
    """Return a function of a client's descriptor, or subspace: its group's, and noise."""

    def near(client: int, *shape: int) -> np.ndarray:
        centre = np.random.default_rng(client % GROUPS).standard_normal(shape)
        return centre + 0.1 * np.random.default_rng((client, 1)).standard_normal(shape)

    if isinstance(strategy, Flux):
        blocks = len(strategy.state.low) * strategy.directions
        return lambda client: near(client, blocks).astype(np.float32)
    count, flat = strategy.measure.count, strategy.measure.flat
    return lambda client: flat(np.linalg.qr(near(client, INPUTS, count))[0].T.ravel())


def _fill_sketches(
    method: str, strategy: CommunityStrategy, members: dict[int, int], planted: Planted
) -> None:
    state = strategy.state
    state.trained = set(members)  # type: ignore[attr-defined]
    if method not in ONCE:
        _place(strategy, members, planted)
        state.sketches = {c: each.tolist() for c, each in sketches(members).items()}  # type: ignore[attr-defined]
        state.clustered_at = 0  # type: ignore[attr-defined]


def sketches(members: Mapping[int, int]) -> dict[int, np.ndarray]:
    """Return the noisy sketches (64,) of clients by group."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((GROUPS, 64)) / 8
    return {
        client: (centres[group] + 0.05 * draw.standard_normal(64)).astype(np.float32)
        for client, group in members.items()
    }


def _fill_members(
    method: str, strategy: CommunityStrategy, members: dict[int, int], planted: Planted
) -> None:
    """Fill the states of methods without a graph, by the fields that they have."""
    state, count = strategy.state, len(members)
    if hasattr(state, "told"):  # FedEM and FedRC
        weights = np.full((count, GROUPS), 0.1) + 0.5 * np.eye(GROUPS)[[*members.values()]]
        state.told.update(zip(members, weights.tolist(), strict=True))
        if hasattr(state, "class_weights"):
            shares = np.repeat(weights / CLASSES, CLASSES, axis=1).tolist()
            state.class_weights.update(zip(members, shares, strict=True))
            state.samples.update(dict.fromkeys(members, 10.0))
    elif hasattr(state, "choices"):  # IFCA
        state.choices.update(members)
    else:
        _place(strategy, members, planted)
    if hasattr(state, "interactions"):  # FedGWC
        state.interactions.clients = list(members)
        state.interactions.rewards = np.random.default_rng(0).uniform(size=(count, count))
        state.interactions.meetings = np.ones((count, count))
    if hasattr(state, "used"):  # FedDrift
        state.losses, state.used = dict.fromkeys(members, 0.5), [0] * GROUPS


def _place(strategy: CommunityStrategy, members: dict[int, int], planted: Planted) -> None:
    centres = [planted.model(group, 0) for group in range(GROUPS)]
    strategy.state.communities = Communities(np.stack(centres), members)


def _fill_nothing(*_: object) -> None:
    """Leave the state as it is before the first round."""


FILLS = {
    "flux": _fill_described, "pacfl": _fill_described, "secure": _fill_sketches,
    "hierarchical": _fill_nothing,
    **dict.fromkeys(("fedgwc", "feddrift", "ifca", "fedem", "fedrc"), _fill_members),
}  # fmt: skip


def plant(graph: ClientGraph, clients: int) -> None:
    """Give the graph a matrix like its own, of which the rounds then replace rows.

    To compute all rows takes minutes with some measures, once in a run. Values of pairs inside
    groups and across them are those of the first clients, and differ by a hundredth.
    """
    few = np.arange(4 * GROUPS)
    values = np.stack([graph.measure.rows(graph.vectors, few[:1])[0]])[0, : len(few)]
    inside, across = values[GROUPS::GROUPS].mean(), np.delete(values, few[::GROUPS]).mean()
    draw, groups = np.random.default_rng(0), np.arange(clients) % GROUPS
    matrix = draw.standard_normal((clients, clients), np.float32)
    matrix *= np.float32(0.01)
    matrix += np.float32(1.0)
    for group in range(GROUPS):
        own = groups == group
        matrix[own] *= np.where(own, inside, across).astype(np.float32)
    for place in range(clients):  # as it lies, without a copy
        matrix[place + 1 :, place] = matrix[place, place + 1 :]
        matrix[place, place] = 0.0
    graph._matrix = matrix
    graph.vectors.changed.clear()


def _uses_models(method: str) -> bool:
    """Whether the graph of a method is one of models, and not of updates."""
    return method.startswith("communities") or method == "late"


def told(client: int, number: int, reports: Mapping[str, Report]) -> dict[str, np.ndarray]:
    """Return what a client reports: a low value for its group, high ones for others, and noise."""
    found = {}
    for name, each in reports.items():
        length = each.length if isinstance(each.length, int) else 1
        values = np.full(length, FAR)
        values[client % GROUPS :: GROUPS] = 0.5
        values += 0.01 * np.random.default_rng((client, number)).standard_normal(length)
        found[name] = np.clip(values, each.low, each.high).astype(np.float32)
    return found
