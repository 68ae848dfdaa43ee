"""Time of the server's graph in a round, and the effect of smaller stores on communities.

    .venv/bin/python benchmarks/server_step.py [100] [1000] [10000] [--run <folder of a FLIC run>]

A round has ten replies: store them, update the similarity, find the communities. The updates are
synthetic (five directions and noise), with the size of the CNN of McMahan et al.
With `--run`, the stores are compared on the updates in the checkpoint of a real run.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
from table import arguments, header, row, write_section

from fl_app.config import load
from fl_app.evaluation.agreement import adjusted_rand
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import ByModularity
from fl_app.graph.measures import ShiftedCosine
from fl_app.graph.similarity import flic_similarity
from fl_app.graph.vector_backends import InMemory, OnDisk, Sketched, VectorBackend, choose
from fl_app.graph.vectors import ClientVectors
from fl_app.records.checkpoint import read
from fl_app.server_wiring import detection

LENGTH = 1_663_370
REPORTS = 10
ROUNDS = 7
GROUPS = 5
SKETCH = 16_384
CASES = ((100, "exact"), (100, "sketch"), (1000, "exact"), (1000, "disk"), (1000, "sketch"),
         (10_000, "sketch"))  # fmt: skip


class Planted:
    """Updates of clients in groups: the group's direction and as much noise again."""

    def __init__(self) -> None:
        draw = np.random.default_rng(0)
        self._centres = draw.standard_normal((GROUPS, LENGTH), np.float32)
        self._noise = draw.standard_normal(3 * LENGTH, np.float32)

    def update(self, client: int, round: int) -> np.ndarray:
        """Return the update (d,): noise is a keyed window of one long draw."""
        start = np.random.default_rng((client, round)).integers(2 * LENGTH)
        update: np.ndarray = self._noise[start : start + LENGTH] + self._centres[client % GROUPS]
        return update


def gigabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def graph_on(backend: VectorBackend) -> ClientGraph:
    """Return the graph that FLIC has, on a backend."""
    return ClientGraph(ShiftedCosine(), ByModularity(detection(load([]))), ClientVectors(backend))


def measure(clients: int, mode: str) -> dict[str, float | list[float]]:
    """Fill a store and time some rounds of it, in a process of its own."""
    planted = Planted()
    before = gigabytes()
    backend = choose(mode, clients=clients, length=LENGTH, memory_gb=64, dimension=SKETCH, seed=0)  # type: ignore[arg-type]
    graph = graph_on(backend)
    for client in range(clients):
        graph.put(client, planted.update(client, 0), 0)
    began = time.perf_counter()
    graph.labels()
    first = time.perf_counter() - began
    draw, steps = np.random.default_rng(1), []
    for number in range(1, ROUNDS + 1):
        cohort = draw.choice(clients, REPORTS, replace=False).tolist()
        updates = [planted.update(client, number) for client in cohort]
        began = time.perf_counter()
        for client, update in zip(cohort, updates, strict=True):
            graph.put(client, update, number)
        labels = graph.labels()
        steps.append(time.perf_counter() - began)
    ari = adjusted_rand(np.arange(clients) % GROUPS, labels)
    return {"first": first, "steps": steps, "gigabytes": gigabytes() - before, "ari": ari}


def steps(sizes: list[int]) -> None:
    """Measure every case of these sizes and write the section."""
    lines = [
        f"{REPORTS} reports a round, updates of {LENGTH:,} numbers, {GROUPS} planted groups; "
        f"median, smallest and largest of {ROUNDS} rounds. GB is the largest memory of the process "
        "without the planted data. It includes the first round, in which every row is new.",
        "",
        *header("clients", "store", "seconds a round", "least", "most", "first", "GB", "ARI"),
    ]
    for clients, mode in CASES:
        if clients not in sizes:
            continue
        command = [sys.executable, __file__, f"--case={clients},{mode}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
        took = found["steps"]
        seconds = [f"{s:.3f}" for s in (median(took), min(took), max(took), found["first"])]
        lines.append(
            row(clients, mode, *seconds, f"{found['gigabytes']:.2f}", f"{found['ari']:.3f}")
        )
    named = " ".join(map(str, sizes))
    write_section("The server's step", f"benchmarks/server_step.py {named}", lines)


def errors(run: Path) -> None:
    """Compare cosines and communities of the smaller stores with exact ones; write the section."""
    checkpoint = read(run / "checkpoint")
    updates = checkpoint.arrays["graph.stored.vectors"]
    exact = flic_similarity(updates)
    apart = ~np.eye(len(updates), dtype=bool)
    backends: dict[str, VectorBackend] = {
        "exact": InMemory(),
        "disk": OnDisk(capacity=len(updates)),
    }
    for dimension in (1024, 4096, SKETCH, 65_536):
        backends[f"sketch of {dimension:,}"] = Sketched(dimension=dimension, seed=0)
    lines = [
        f"{len(updates)} updates of {updates.shape[1]:,} numbers after round {checkpoint.round} "
        f"of `{run.name}`; their cosines lie in [{exact[apart].min() - 1:.3f}, "
        f"{exact[apart].max() - 1:.3f}].",
        "",
        *header("store", "root mean square error of a cosine", "largest", "promised at c = 0",
                "communities", "ARI with exact"),
    ]  # fmt: skip
    reference = None
    for name, backend in backends.items():
        graph = graph_on(backend)
        for client, update in enumerate(updates):
            graph.put(client, update, 1)
        error = (graph.values() - exact)[apart]
        labels = graph.labels()
        reference = labels if reference is None else reference
        promised = f"{backend.dimension**-0.5:.1e}" if isinstance(backend, Sketched) else ""
        lines.append(
            row(name, f"{np.sqrt(np.mean(error**2)):.1e}", f"{np.abs(error).max():.1e}", promised,
                labels.max() + 1, f"{adjusted_rand(reference, labels):.3f}")
        )  # fmt: skip
    write_section(
        "Smaller stores on real updates", "benchmarks/server_step.py --run <folder>", lines
    )


def main() -> None:
    """Measure the sizes named, or all; or one case, whose figures go to the standard output."""
    parser = arguments(__doc__)
    parser.add_argument("sizes", type=int, nargs="*")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--case")
    options = parser.parse_args()
    if options.case:
        clients, mode = options.case.split(",")
        print(json.dumps(measure(int(clients), mode)))
        return
    if options.run:
        errors(options.run)
    if options.sizes or not options.run:
        steps(options.sizes or sorted({clients for clients, _ in CASES}))


if __name__ == "__main__":
    main()
