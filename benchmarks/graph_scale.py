"""Server seconds per round and memory of every clustering method, at two scales.

    .venv/bin/python benchmarks/graph_scale.py [<method> ...]

The scales are 1,000 clients with the 1,663,370 parameters of the CNN of McMahan et al., and
10,000 clients with 20,000 parameters, with ten replies per round and `graph.memory_gb=4`. The
replies are synthetic (five directions and noise) and pass through the strategy as in a run; no
client trains. Each cell is measured in a separate process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median

import numpy as np
from flwr.common import Code, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy
from server_step import gigabytes
from table import header, row, write_section

from fl_app.config import load
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.vector_backends import choose
from fl_app.params import Layout, from_bytes, to_bytes
from fl_app.server_wiring import detection
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.server_context import ServerContext, largest
from fl_app.strategies.state import Communities
from fl_app.wiring import made

GROUPS, REPORTS, ROUNDS = 5, 10, 3
MEMORY_GB = 4.0
TARGET = "at most 3 s and 6 GB"
LATER = 10**6
"""A round that no run of this benchmark reaches."""
CNN = Layout(
    ("conv1", "bias1", "conv2", "bias2", "dense1", "bias3", "dense2", "bias4"),
    ((32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)), 8,
)  # fmt: skip
SMALL = Layout(("dense1", "bias1", "dense2", "bias2"), ((100, 189), (100,), (10, 99), (10,)), 4)
SCALES = {"many": (10_000, SMALL), "large": (1000, CNN)}
PARTICIPATION = {scale: REPORTS / clients for scale, (clients, _) in SCALES.items()}
Build = Callable[..., CommunityStrategy]
"""From a context and `participation`."""
METHODS: dict[str, Build] = {
    "flic": partial(made, "strategy=flic", cluster_round=LATER),
    "cfl": partial(  # measures every cut of all clients, and finds no gap worth one
        made, "strategy=cfl", mode="clusters", max_age=LATER, alpha_threshold=0.99, gap_above=3.0
    ),
    "dcfl": partial(made, "strategy=dcfl"),
    "dcfl_anew": partial(made, "strategy=dcfl"),
    "communities": partial(made, "strategy=communities"),
    "communities_1nn": partial(made, "strategy=communities_1nn"),
    "communities_wnn": partial(made, "strategy=communities_wnn"),
    "late": partial(made, "strategy=late", cluster_round=LATER),
    "hierarchical": partial(made, "strategy=hierarchical", cluster_round=LATER),
    "hierarchical_clustering": partial(made, "strategy=hierarchical", cluster_round=1),
}
WHAT = {
    "dcfl": "rounds in which the Dunn index keeps the communities",
    "dcfl_anew": "rounds with affinity propagation",
    "hierarchical": "rounds before the clustering",
    "hierarchical_clustering": "the clustering of the updates of all clients, once in a run",
}

REASONS = [
    "Where a method needs more than the target:",
    "",
    "- Affinity propagation passes two messages between each two clients in every iteration, up to "
    "200 iterations, so that 10,000 clients cost 2e10 float operations several times over. DCFL "
    "clusters anew only in the rounds in which the Dunn index falls.",
    "- The clustering of hierarchical happens once in a run and compares all pairs of clients: "
    "10,000 x 10,000 x 20,000 multiplications are 2e12, before the merges.",
    "- Communities and late average the models of all clients of a community in every round. With "
    "1,000 clients of 1.66 million parameters these are 6.6 GB, which do not fit into "
    "`graph.memory_gb=4` and are read from the disk. DCFL compares the ten new models, layer by "
    "layer, with the start and the model of every client, 13 GB.",
]


class Node(ClientProxy):
    """A client whose replies the benchmark writes."""

    def _none(self, *_: object, **__: object) -> None:
        return None

    get_properties = get_parameters = fit = evaluate = reconnect = _none


Node.__abstractmethods__ = frozenset()


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


Seconds = np.ndarray
"""Wall-clock seconds and processor seconds (2,)."""


def now() -> Seconds:
    """Return the wall-clock seconds and the processor seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def context_of(clients: int, layout: Layout, planted: Planted) -> ServerContext:
    """Return what the wiring gives a strategy at the default settings of the graph."""
    config = load([])
    graph = config.graph
    backend = partial(
        choose, "auto", clients=clients, memory_gb=MEMORY_GB, dimension=graph.sketch_dim,
        seed=0,
    )  # fmt: skip
    return ServerContext(
        seed=0, rounds=LATER, layout=layout, initial=planted.initial, min_success=1,
        evaluate_every=LATER, evaluate_at_most=None, largest_update=None, clip_update=None,
        sample_cap=inf, detection=detection(config), vector_backend=backend,
        look_ahead_every=graph.look_ahead_every, benign=largest, contrast=graph.contrast,
        private=False, noise_varies=False, metrics=(), classes=None, inputs=None, has_accuracy=True,
        fresh=None, union=None,
    )  # fmt: skip


def fill(method: str, strategy: CommunityStrategy, clients: int, planted: Planted) -> None:
    """Put the last vector of every client into the state, as the rounds before would have."""
    state, initial = strategy.state, planted.initial
    graph = getattr(state, "graph", None)
    if method.startswith("hierarchical"):
        return
    members = {client: client % GROUPS for client in range(clients)}
    for client in range(clients):
        model = planted.model(client, 0)
        if method.startswith("dcfl"):
            graph.put(client, np.concatenate([initial, model]), 0)
        else:
            graph.put(client, model if uses_models(method) else model - initial, 0)
    plant(graph, clients)
    if method == "dcfl":
        centres = [planted.model(group, 0) for group in range(GROUPS)]
        state.communities = Communities(np.stack(centres), members)
        state.before = np.repeat(initial[None, :], GROUPS, axis=0)
    if method == "cfl":
        state.communities.members.update(dict.fromkeys(members, 0))
    if method.startswith("communities"):
        state.samples.update(dict.fromkeys(members, 10.0))


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


def uses_models(method: str) -> bool:
    """Whether the graph of a method is one of models, and not of updates."""
    return method.startswith("communities") or method == "late"


def rounds(
    strategy: CommunityStrategy, known: Roster, planted: Planted, count: int
) -> Iterator[Seconds]:
    """Play rounds; yield the seconds of the server: instructions, strategy and view."""
    parameters = strategy.initialize_parameters(known)
    for number in range(1, count + 1):
        began = now()
        asked = strategy.configure_fit(number, parameters, known)
        took = now() - began
        replies = []
        for node, ins in asked:
            client = known.client_id(node)
            start = from_bytes(ins.parameters.tensors[0])
            model = start + (planted.model(client, number) - planted.initial)
            tensors = Parameters([to_bytes(model)], "numpy.ndarray")
            metrics = {"loss": 0.5, "train_s": 0.0}
            replies.append((node, FitRes(Status(Code.OK, ""), tensors, 10, metrics)))
        began = now()
        parameters, _ = strategy.aggregate_fit(number, replies, [])
        strategy.outcome(number)
        yield took + now() - began


def clustering(strategy: CommunityStrategy, clients: int, planted: Planted) -> Seconds:
    """Return the seconds of the clustering alone, each update stored as it comes."""
    graph, took = strategy.state.graph, np.zeros(2)  # type: ignore[attr-defined]
    for client in range(clients):
        update = planted.model(client, 0) - planted.initial
        began = now()
        graph.put(client, update, 1)
        took += now() - began
    began = now()
    graph.labels()
    return took + now() - began


def measure(method: str, scale: str) -> dict[str, object]:
    """Fill a strategy and play some rounds, in a process of its own."""
    clients, layout = SCALES[scale]
    planted, known = Planted(layout), Roster()
    for client in range(clients):
        node = Node(str(client))
        known.register(node)
        known.introduce(node, Identity(client, client % GROUPS, 10))
    strategy = METHODS[method](
        context_of(clients, layout, planted), participation=PARTICIPATION[scale]
    )
    fill(method, strategy, clients, planted)
    if method == "hierarchical_clustering":
        steps = [clustering(strategy, clients, planted)] * 2
    else:
        steps = list(rounds(strategy, known, planted, ROUNDS + 1))
    first, *others = np.array(steps).tolist()
    return {"first": first, "steps": others, "gigabytes": gigabytes(), "store": store(strategy)}


def store(strategy: CommunityStrategy) -> str:
    """Return where the vectors of the graph are stored."""
    graph = getattr(strategy.state, "graph", None)
    return "" if graph is None else type(graph.vectors.backend).__name__


def run(method: str, scale: str, limit_s: float) -> dict[str, object] | None:
    """Return the figures of a cell; None where it took longer than `limit_s`."""
    command = [sys.executable, __file__, "--case", method, scale]
    try:
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=limit_s,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(methods: list[str], limit_s: float) -> None:
    """Measure the cells and write the section."""
    load, named = os.getloadavg()[0], "" if methods == list(METHODS) else f" {' '.join(methods)}"
    lines = [
        f"{REPORTS} reports a round, `graph.memory_gb={MEMORY_GB:g}`, {GROUPS} planted groups; the "
        f"target is {TARGET}. Median, smallest and largest of {ROUNDS} rounds. A round includes "
        "instructions, decoding, graph, communities, their models and the view. The matrix of the "
        "earlier rounds is planted. GB is the largest memory of the process, including libraries. "
        f"One thread; the load of the machine with {os.cpu_count()} cores was {load:.1f} at the "
        "start. Other work on the machine affects processor seconds less than wall-clock seconds.",
        "",
        *header("clients", "parameters", "method", "vectors", "seconds", "least", "most",
                "processor seconds", "GB"),
    ]  # fmt: skip
    for scale, (clients, layout) in SCALES.items():
        for method in methods:
            name = f"{method}: {WHAT[method]}" if method in WHAT else method
            found = run(method, scale, limit_s)
            cells: tuple[object, ...] = ("", f"above {limit_s:g}", "", "", "", "")
            if found is not None:
                steps: list[list[float]] = found["steps"]  # type: ignore[assignment]
                took, worked = zip(*steps, strict=True)
                seconds = (median(took), min(took), max(took), median(worked))
                gb = found["gigabytes"]
                cells = (found["store"], *(f"{each:.2f}" for each in seconds), f"{gb:.2f}")
            lines.append(row(f"{clients:,}", f"{layout.size:,}", name, *cells))
            # a table of what is measured so far stands there if this is interrupted
            command = f"benchmarks/graph_scale.py{named}"
            write_section("Every method at scale", command, [*lines, "", *REASONS])


def main() -> None:
    """Measure the methods named, or all; or one cell, whose figures go to the standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", choices=[*METHODS, []])
    parser.add_argument("--case", nargs=2)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds of a cell")
    options = parser.parse_args()
    if options.case:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        print(json.dumps(measure(*options.case)))
        return
    table(options.methods or list(METHODS), options.limit)


if __name__ == "__main__":
    main()
