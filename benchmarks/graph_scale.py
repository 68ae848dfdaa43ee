"""Server seconds a round and memory of every clustering method, at two scales.

    .venv/bin/python benchmarks/graph_scale.py [<method> ...]

A thousand clients with the 1,663,370 parameters of the CNN of McMahan et al., and ten thousand
with 20,000 parameters, ten reports a round, `graph.memory_gb=4`. The replies are planted, five
directions and noise, and go through the strategy as in a run; nobody trains. Each cell is
measured in a process of its own.
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
from statistics import median

import numpy as np
from flwr.common import Code, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy
from server_step import gigabytes
from table import header, row, write_section

from fl_app.graph.communities import CommunityDetection
from fl_app.graph.vector_backends import choose
from fl_app.params import Layout, from_bytes, to_bytes
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cfl import Cfl
from fl_app.strategies.communities import CommunityDiscovery
from fl_app.strategies.dcfl import Dcfl
from fl_app.strategies.flic import Flic
from fl_app.strategies.hierarchical import Hierarchical
from fl_app.strategies.late import Late
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import Communities

GROUPS, REPORTS, ROUNDS = 5, 10, 5
MEMORY_GB = 4.0
TARGET = "at most 3 s and 6 GB"
LATER = 10**6
"""A round that no run here comes to."""
CNN = Layout(
    ("conv1", "bias1", "conv2", "bias2", "dense1", "bias3", "dense2", "bias4"),
    ((32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)), 8,
)  # fmt: skip
SMALL = Layout(("dense1", "bias1", "dense2", "bias2"), ((100, 189), (100,), (10, 99), (10,)), 4)
SCALES = {"large": (1000, CNN), "many": (10_000, SMALL)}
PARTICIPATION = {scale: REPORTS / clients for scale, (clients, _) in SCALES.items()}
Build = Callable[[ServerContext, float], CommunityStrategy]


def cfl(context: ServerContext, participation: float) -> CommunityStrategy:
    """Return CFL that measures every cut of all clients, and finds no gap worth one."""
    return Cfl(
        context, participation=participation, mode="clusters", max_age=LATER,
        alpha_threshold=0.99, gap_above=3.0,
    )  # fmt: skip


METHODS: dict[str, Build] = {
    "flic": lambda c, p: Flic(c, participation=p, cluster_round=LATER),
    "cfl": cfl,
    "dcfl": lambda c, p: Dcfl(c, participation=p),
    "dcfl, found anew": lambda c, p: Dcfl(c, participation=p),
    "communities": lambda c, p: CommunityDiscovery(c, participation=p),
    "communities_1nn": lambda c, p: CommunityDiscovery(c, participation=p, attribution="1nn"),
    "communities_wnn": lambda c, p: CommunityDiscovery(c, participation=p, attribution="wnn"),
    "late": lambda c, p: Late(c, participation=p, cluster_round=LATER),
    "hierarchical": lambda c, p: Hierarchical(
        c, participation=p, cluster_round=LATER, threshold=0.9
    ),
    "hierarchical, clustering": lambda c, p: Hierarchical(
        c, participation=p, cluster_round=1, threshold=0.9
    ),
}
WHAT = {
    "dcfl": "rounds in which the Dunn index keeps the communities",
    "dcfl, found anew": "rounds with affinity propagation",
    "hierarchical": "rounds before the clustering",
    "hierarchical, clustering": "the clustering of the updates of all clients, once in a run",
}


class Node(ClientProxy):
    """A client that the benchmark answers for."""

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
        self.initial = draw.standard_normal(self.layout.size, np.float32) * np.float32(0.05)
        self._centres = draw.standard_normal((GROUPS, self.layout.size), np.float32)
        self._noise = draw.standard_normal(3 * self.layout.size, np.float32)

    def model(self, client: int, number: int) -> np.ndarray:
        """Return a model (d,): noise is a keyed window of one long draw."""
        start = np.random.default_rng((client, number)).integers(2 * self.layout.size)
        noise = self._noise[start : start + self.layout.size]
        step = np.float32(self.scale) * (self._centres[client % GROUPS] + noise)
        moved: np.ndarray = self.initial + step
        return moved


def context_of(clients: int, layout: Layout, planted: Planted) -> ServerContext:
    """Return what the wiring gives a strategy at the default settings of the graph."""
    backend = partial(
        choose, "auto", clients=clients, memory_gb=MEMORY_GB, dimension=16_384, seed=0
    )
    return ServerContext(
        seed=0, rounds=LATER, layout=layout, initial=planted.initial, min_success=1,
        evaluate_every=LATER, detection=CommunityDetection(), vector_backend=backend,
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
    if method == "dcfl":
        centres = [planted.model(group, 0) for group in range(GROUPS)]
        state.communities = Communities(np.stack(centres), members)
        state.before = np.repeat(initial[None, :], GROUPS, axis=0)
    if method == "cfl":
        state.communities.members.update(dict.fromkeys(members, 0))
    if method.startswith("communities"):
        state.samples.update(dict.fromkeys(members, 10.0))


def uses_models(method: str) -> bool:
    """Whether the graph of a method is one of models, and not of updates."""
    return method.startswith("communities") or method == "late"


def rounds(
    strategy: CommunityStrategy, known: Roster, planted: Planted, count: int
) -> Iterator[float]:
    """Play rounds; yield the seconds of the server: instructions, strategy and view."""
    parameters = strategy.initialize_parameters(known)
    for number in range(1, count + 1):
        began = time.perf_counter()
        asked = strategy.configure_fit(number, parameters, known)
        took = time.perf_counter() - began
        replies = []
        for node, ins in asked:
            client = known.client_id(node)
            start = from_bytes(ins.parameters.tensors[0])
            model = start + (planted.model(client, number) - planted.initial)
            tensors = Parameters([to_bytes(model)], "numpy.ndarray")
            metrics = {"loss": 0.5, "train_s": 0.0}
            replies.append((node, FitRes(Status(Code.OK, ""), tensors, 10, metrics)))
        began = time.perf_counter()
        parameters, _ = strategy.aggregate_fit(number, replies, [])
        strategy.outcome(number)
        yield took + time.perf_counter() - began


def clustering(strategy: CommunityStrategy, clients: int, planted: Planted) -> float:
    """Return the seconds of the clustering alone, each update stored as it comes."""
    graph, took = strategy.state.graph, 0.0  # type: ignore[attr-defined]
    for client in range(clients):
        update = planted.model(client, 0) - planted.initial
        began = time.perf_counter()
        graph.put(client, update, 1)
        took += time.perf_counter() - began
    began = time.perf_counter()
    graph.labels()
    return took + time.perf_counter() - began


def measure(method: str, scale: str) -> dict[str, object]:
    """Fill a strategy and play some rounds, in a process of its own."""
    clients, layout = SCALES[scale]
    planted, known = Planted(layout), Roster()
    for client in range(clients):
        node = Node(str(client))
        known.register(node)
        known.introduce(node, Identity(client, client % GROUPS, 10))
    strategy = METHODS[method](context_of(clients, layout, planted), PARTICIPATION[scale])
    fill(method, strategy, clients, planted)
    if method == "hierarchical, clustering":
        steps = [clustering(strategy, clients, planted)]
        return {
            "first": steps[0],
            "steps": steps,
            "gigabytes": gigabytes(),
            "store": store(strategy),
        }
    first, *steps = rounds(strategy, known, planted, ROUNDS + 1)
    return {"first": first, "steps": steps, "gigabytes": gigabytes(), "store": store(strategy)}


def store(strategy: CommunityStrategy) -> str:
    """Return where the vectors of the graph lie."""
    graph = getattr(strategy.state, "graph", None)
    return "" if graph is None else type(graph.vectors.backend).__name__


def run(method: str, scale: str, limit_s: float) -> dict[str, object] | None:
    """Return the figures of a cell; None where it took longer than `limit_s`."""
    command = [sys.executable, __file__, "--case", method, scale]
    try:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(methods: list[str], limit_s: float) -> None:
    """Measure the cells and write the section."""
    load = os.getloadavg()[0]
    lines = [
        f"{REPORTS} reports a round, `graph.memory_gb={MEMORY_GB:g}`, {GROUPS} planted groups; the "
        f"target is {TARGET}. Median, least and most of {ROUNDS} rounds: instructions, decoding, "
        "graph, communities, their models and the view. The first round computes every row of the "
        "matrix. GB is the most that the process held, libraries included. Load of the machine "
        f"when this began: {load:.1f}.",
        "",
        *header("clients", "parameters", "method", "vectors lie", "seconds", "least", "most",
                "first", "GB"),
    ]  # fmt: skip
    for scale, (clients, layout) in SCALES.items():
        for method in methods:
            name = f"{method}: {WHAT[method]}" if method in WHAT else method
            found = run(method, scale, limit_s)
            cells: tuple[object, ...] = ("", f"above {limit_s:g}", "", "", "", "")
            if found is not None:
                took: list[float] = found["steps"]  # type: ignore[assignment]
                seconds = (median(took), min(took), max(took), found["first"])
                gb = found["gigabytes"]
                cells = (found["store"], *(f"{each:.2f}" for each in seconds), f"{gb:.2f}")
            lines.append(row(f"{clients:,}", f"{layout.size:,}", name, *cells))
            print(lines[-1], file=sys.stderr, flush=True)
    write_section("Every method at scale", "benchmarks/graph_scale.py", lines)


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
