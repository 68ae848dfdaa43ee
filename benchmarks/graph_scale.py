"""Server seconds per round and memory of every clustering method, at two scales.

    .venv/bin/python benchmarks/graph_scale.py [--only <case> ...] [--scale many|large]

The scales are 1,000 clients with the 1,663,370 parameters of the CNN of McMahan et al., and
10,000 clients with 20,000 parameters, with ten replies per round and `graph.memory_gb=4`. The
replies are synthetic (five directions and noise) and pass through the strategy as in a run; no
client trains. Each cell is measured in a separate process. With `--only` and `--scale`, all other
rows stay as they are; each row names the machine on which it was measured.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from statistics import median

import numpy as np
from flwr.common import Code, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy
from scale_cases import (
    GROUPS,
    MEMORY_GB,
    METHODS,
    ONCE,
    WHAT,
    Planted,
    context_of,
    fill,
    graph_of,
    layout_of,
    sketches,
    told,
)
from server_step import gigabytes
from table import PAGE, arguments, header, machine, row, write_section

from fl_app.learner_reports import packed, request
from fl_app.masking.slots import SlotSums
from fl_app.params import Layout, from_bytes, to_bytes
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.secure_flic import SecureFlic

TITLE = "Every method at scale"
REPORTS, ROUNDS = 10, 3
TARGET = "at most 3 s and 6 GB"
CNN = Layout(
    ("conv1", "bias1", "conv2", "bias2", "dense1", "bias3", "dense2", "bias4"),
    ((32, 1, 5, 5), (32,), (64, 32, 5, 5), (64,), (512, 3136), (512,), (10, 512), (10,)), 8,
)  # fmt: skip
SMALL = Layout(("dense1", "bias1", "dense2", "bias2"), ((100, 189), (100,), (10, 99), (10,)), 4)
SCALES = {"many": (10_000, SMALL), "large": (1000, CNN)}
PARTICIPATION = {scale: REPORTS / clients for scale, (clients, _) in SCALES.items()}
HEAD = [
    f"{REPORTS} reports a round, `graph.memory_gb={MEMORY_GB:g}`, {GROUPS} planted groups; the "
    f"target is {TARGET}. Median, smallest and largest of {ROUNDS} rounds. A round includes "
    "instructions, decoding, graph, communities, their models and the view. What earlier rounds "
    "leave, such as the matrix of all pairs, is planted. GB is the largest memory of the process, "
    "including libraries. One thread. Each row names the machine, and its load at the start: other "
    "work on the machine affects processor seconds less than wall-clock seconds. `above` is the "
    "limit for the whole process with its planting.",
    "",
    *header("clients", "parameters", "method", "vectors", "seconds", "least", "most",
            "processor seconds", "GB", "machine"),
]  # fmt: skip
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
    "layer, with the start and the model of every client, 13 GB. With `strategy.catch_up=true` the "
    "models of absent clients are in a store of their own, each of which is written anew in every "
    "round; by default this is off where vectors are on the disk.",
    "- With `graph.contrast`, FLIC looks for communities among all pairs of clients, not only the "
    "nearest neighbours, in two graphs of what exceeds a level, and again inside each community. "
    "It tests each split once, in every round whose look-ahead is recorded. "
    "`graph.look_ahead_every=0` leaves this to the clustering.",
    "- The clustering of FLUX, PACFL and `secure_flic` happens once and compares all pairs "
    "of clients; PACFL multiplies the bases of each two. In that round of FLUX, and in the first "
    "of PACFL, all clients train, so that the server receives the models of all at once: with "
    "1,000 clients of 1.66 million parameters these are 6.6 GB, and as much again in the messages. "
    "The rows do not include them.",
    "- FedGWC splits a cluster once its clients have met half of the others in a round. With ten "
    "reports a round, two of 1,000 clients meet in about one of 10,000 rounds, so no row has a "
    "split: sample more clients.",
    "- `benchmarks/secure.py` measures what the masks of `secure_flic` cost. FedEM and FedRC make "
    "the model of each client for an evaluation; `records.evaluate_at_most` limits how many.",
]


class Node(ClientProxy):
    """A client whose replies the benchmark writes."""

    def _none(self, *_: object, **__: object) -> None:
        return None

    get_properties = get_parameters = fit = evaluate = reconnect = _none


Node.__abstractmethods__ = frozenset()


Seconds = np.ndarray
"""Wall-clock seconds and processor seconds (2,)."""


def now() -> Seconds:
    """Return the wall-clock seconds and the processor seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def rounds(
    strategy: CommunityStrategy, known: Roster, planted: Planted, count: int
) -> Iterator[Seconds]:
    """Play rounds; yield the seconds of the server: instructions, strategy and view."""
    parameters = strategy.initialize_parameters(known)
    for number in range(1, count + 1):
        began = now()
        asked = strategy.configure_fit(number, parameters, known)
        took = now() - began
        if isinstance(strategy, SecureFlic):
            sums = summed(strategy, planted, number)
            began = now()
            parameters, _ = strategy.aggregate_sums(number, sums)
        else:
            replies = [
                (node, reply(strategy, node, ins.parameters.tensors, planted, number))
                for node, ins in asked
            ]
            began = now()
            parameters, _ = strategy.aggregate_fit(number, replies, [])
        strategy.outcome(number)
        yield took + now() - began


def reply(
    strategy: CommunityStrategy,
    node: ClientProxy,
    offered: list[bytes],
    planted: Planted,
    number: int,
) -> FitRes:
    """Return the reply of a client, which trains the model of its group if it has a choice."""
    question = strategy.cohort.asked[node.cid]
    client, choice = question.client_id, question.client_id % GROUPS if len(offered) > 1 else 0
    model = from_bytes(offered[choice]) + (planted.model(client, number) - planted.initial)
    tensors = Parameters([to_bytes(model)], "numpy.ndarray")
    answers = told(client, number, question.reports)
    metrics = {
        "loss": 0.5, "train_s": 0.0, "choice": choice, **packed(request(question.reports), answers),
    }  # fmt: skip
    return FitRes(Status(Code.OK, ""), tensors, 10, metrics)


def summed(strategy: FromSums, planted: Planted, number: int) -> SlotSums:
    """Return the sums of a cohort over the clients of each community."""
    count = len(strategy.state.communities.models)
    updates = [planted.model(row, number) - planted.initial for row in range(count)]
    clients = np.full(count, REPORTS // GROUPS)
    return SlotSums(clients, 10.0 * clients, np.full(count, 0.5), np.stack(updates))


def clustering(method: str, strategy: CommunityStrategy, clients: int, planted: Planted) -> Seconds:
    """Return the seconds of the clustering alone, each update stored as it comes."""
    if isinstance(strategy, SecureFlic):
        released = sketches({client: client % GROUPS for client in range(clients)})
        began = now()
        strategy.aggregate_sketches(strategy.cluster_round, released)
        return now() - began
    graph, took = graph_of(method, strategy), np.zeros(2)
    for client in range(clients if not len(graph) else 0):
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
    planted, known = Planted(layout_of(method, layout)), Roster()
    for client in range(clients):
        node = Node(str(client))
        known.register(node)
        known.introduce(node, Identity(client, client % GROUPS, 10))
    strategy = METHODS[method](
        context_of(method, clients, planted), participation=PARTICIPATION[scale]
    )
    fill(method, strategy, clients, planted)
    if method in ONCE:
        steps = [clustering(method, strategy, clients, planted)] * 2
    else:
        steps = list(rounds(strategy, known, planted, ROUNDS + 1))
    first, *others = np.array(steps).tolist()
    return {
        "first": first,
        "steps": others,
        "gigabytes": gigabytes(),
        "store": store(method, strategy),
    }


def store(method: str, strategy: CommunityStrategy) -> str:
    """Return where the vectors of the graph are stored."""
    graph = graph_of(method, strategy)
    return "" if graph is None else type(graph.vectors.backend).__name__


def run(method: str, scale: str, limit_s: int) -> dict[str, object] | None:
    """Return the figures of a cell; None where it took more than `limit_s` processor seconds."""
    command = [sys.executable, __file__, "--limit", str(limit_s), "--case", method, scale]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=env)
    if done.returncode == -signal.SIGXCPU:
        return None
    done.check_returncode()
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def cells(method: str, scale: str, limit_s: int) -> str:
    """Measure one case at one scale; return its row."""
    clients, layout = SCALES[scale]
    load = os.getloadavg()[0]
    found = run(method, scale, limit_s)
    figures: tuple[object, ...] = ("", "", "", "", f"above {limit_s}", "")
    if found is not None:
        steps: list[list[float]] = found["steps"]  # type: ignore[assignment]
        took, worked = zip(*steps, strict=True)
        seconds = (median(took), min(took), max(took), median(worked))
        gb = found["gigabytes"]
        figures = (found["store"], *(f"{each:.2f}" for each in seconds), f"{gb:.2f}")
    size = f"{layout.size:,}"
    return row(f"{clients:,}", size, named(method), *figures, f"{machine()}, load {load:.1f}")


def named(method: str) -> str:
    """Return the name of a case in the table."""
    return f"{method}: {WHAT[method]}" if method in WHAT else method


def kept() -> dict[tuple[str, str], str]:
    """Return the rows that the page has, by number of clients and name of the case."""
    lines = PAGE.read_text().split(f"## {TITLE}")[-1].split("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| 1")]
    return {(line.split(" | ")[0][2:], line.split(" | ")[2]): line for line in rows}


def write(found: Mapping[tuple[str, str], str]) -> None:
    """Write the section with these rows, in the order of the scales and cases."""
    rows = [
        found[key]
        for clients, _ in SCALES.values()
        for each in METHODS
        if (key := (f"{clients:,}", named(each))) in found
    ]
    lines = [*HEAD, *rows, "", *REASONS]
    write_section(TITLE, "benchmarks/graph_scale.py", lines, on="what each row names")


def table(methods: list[str], scales: list[str], limit_s: int) -> None:
    """Measure these cases, and write each row into its place once it is measured."""
    found = kept()
    for scale in scales:
        for method in methods:
            found[f"{SCALES[scale][0]:,}", named(method)] = cells(method, scale, limit_s)
            write(found)


def main() -> None:
    """Measure all cases or some; or one cell, whose figures go to the standard output."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--scale", nargs="+", choices=[*SCALES], default=[*SCALES])
    parser.add_argument("--case", nargs=2)
    parser.add_argument("--limit", type=int, default=1800, help="processor seconds of a cell")
    options = parser.parse_args()
    if options.case:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (options.limit, options.limit + 1))
        print(json.dumps(measure(*options.case)))
        return
    table(options.only, options.scale, options.limit)


if __name__ == "__main__":
    main()
