"""Runs simulations on a Ray cluster of two raylets; writes docs/results/ray_cluster.md.

    .venv/bin/python benchmarks/ray_cluster.py --out <file.jsonl> [--clients 300 1000 3000]

Each raylet has one CPU of its own. For each number of clients there is a run on two raylets; for
the first one also on one, and on two of which one is killed for good in mid-run. The plan is what
the measured seconds per client give on paper, and what the processor time of the server's process
allows. It continues where it was stopped; `--page` writes the page of what there is.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from uuid import uuid4

from results import must_be_there
from table import REPO, arguments, header, machine, row

from fl_app.engines import watchdog
from fl_app.records.history import read_rounds

PAGE = REPO / "docs" / "results" / "ray_cluster.md"
PORT = 6391
ROUNDS, SHARE, KILLED_AFTER = 40, 0.05, 10
"""Rounds of a run, and the share of the clients that train in a round."""
SKIPPED = 2
"""First rounds that medians exclude: workers import the libraries."""
KILLED = "two, one killed"
PLANNED, PLANNED_CLIENTS = (8, 64, 512), 10_000
"""Workers and clients of the plan."""
LIMIT_S = 1200.0


@dataclass(frozen=True)
class Found:
    """What a run of `clients` clients on `raylets` showed."""

    clients: int
    name: str
    raylets: int
    status: str
    start_s: float
    round_s: float
    lost: int
    longest_s: float
    server_s: float | None = None
    """Processor time of the process with the server and the backend, for a trained client."""

    @property
    def cohort(self) -> int:
        """Clients that train in a round."""
        return round(SHARE * self.clients)

    @property
    def client_s(self) -> float:
        """Seconds of one worker for one client."""
        return self.round_s * self.raylets / self.cohort


def ray(token: str, *words: str) -> None:
    """Call Ray's command line; all processes that it starts have the mark `token`."""
    command = [str(Path(sys.executable).with_name("ray")), *words]
    environment = {**os.environ, watchdog.MARK: token}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, env=environment, **quiet)


def raylets(token: str) -> set[int]:
    """Return the processes of our raylets: other work on the machine may have its own."""
    found = set()
    for pid in watchdog.marked(token):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"raylet/raylet"):
                found.add(pid)
    return found


@contextmanager
def cluster(size: int) -> Iterator[int]:
    """Start a cluster of raylets with one CPU each; yield the process of the last one."""
    token = uuid4().hex
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        try:
            ray(token, "start", "--head", f"--port={PORT}", "--num-cpus=1", "--disable-usage-stats",
                "--include-dashboard=false", f"--temp-dir={folder}")  # fmt: skip
            for _ in range(size - 1):
                before = raylets(token)
                ray(token, "start", f"--address=127.0.0.1:{PORT}", "--num-cpus=1",
                    "--disable-usage-stats")  # fmt: skip
            yield next(iter(raylets(token) - before)) if size > 1 else 0
        finally:  # `ray stop` would end all Ray of this machine
            watchdog.sweep(token)


@dataclass
class ServerTime:
    """The processor time of the process of a run in which Flower's server and backend are."""

    token: str
    first: tuple[int, float] | None = None
    last: tuple[int, float] | None = None

    def look(self, rounds: int) -> None:
        """Note the time when so many rounds were recorded, if the number is new."""
        if not SKIPPED <= rounds < ROUNDS or (self.last is not None and self.last[0] == rounds):
            return
        seconds = [processor_s(pid) for pid in watchdog.marked(self.token) if is_server(pid)]
        if seconds:
            self.last = rounds, max(seconds)
            self.first = self.first or self.last

    def of_a_client(self, cohort: int) -> float | None:
        """Return the seconds for each client of the rounds between the first and the last look."""
        if self.first is None or self.last is None or self.first[0] == self.last[0]:
            return None
        return (self.last[1] - self.first[1]) / ((self.last[0] - self.first[0]) * cohort)


def is_server(pid: int) -> bool:
    """Whether this is Flower's process of a simulation."""
    try:
        return b"flwr-simulation" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def processor_s(pid: int) -> float:
    """Return the seconds of processor time of all threads of a process; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def ending(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a run; it has ended, with all that it started, when the context is left."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def play(name: str, clients: int, size: int, *, kills: bool) -> Found:
    """Run once on a new cluster of `size` raylets."""
    with ExitStack() as stack:
        last = stack.enter_context(cluster(size))
        top = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-app-cluster-")))
        folder = top / "run"
        command = [
            sys.executable, "-m", "fl_app.main", "engine=simulation",
            f"engine.ray_address=127.0.0.1:{PORT}", "strategy=fedavg", "network=mlp",
            f"strategy.participation={SHARE}", f"rounds={ROUNDS}",
            f"population.clients={clients}", "population.draw=replacement",
            "population.train_samples=20", "population.test_samples=10", "client.epochs=1",
            f"records.evaluate_every={ROUNDS}", "records.evaluate_at_most=50",
            "records.checkpoint_every=1000", "records.figures=false", "records.report=false",
            "tracking=none", f"hydra.run.dir={folder}",
        ]  # fmt: skip
        usage = ServerTime(uuid4().hex)
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        environment[watchdog.MARK] = usage.token
        process = stack.enter_context(ending(command, environment))
        began, first = time.monotonic(), 0.0
        while process.poll() is None:
            assert time.monotonic() - began < LIMIT_S, "the run does not end"
            done = len(records(folder))
            usage.look(done)
            first = first or (time.monotonic() - began if done else 0.0)
            if kills and done >= KILLED_AFTER:
                os.kill(last, signal.SIGKILL)
                kills = False
            time.sleep(0.2)
        return found(clients, name, size, folder, first, usage)


def records(folder: Path) -> list[dict]:
    """Return the recorded rounds."""
    return read_rounds(folder) if (folder / "rounds.jsonl").exists() else []


def found(
    clients: int, name: str, size: int, folder: Path, start_s: float, usage: ServerTime
) -> Found:
    """Return what the folder of a run tells."""
    summary = folder / "summary.json"
    status = json.loads(summary.read_text())["status"] if summary.exists() else "no summary"
    rounds = records(folder)
    seconds = [each["time"]["training_s"] for each in rounds]
    kept = seconds[SKIPPED:-1] or seconds or [float("nan")]
    lost = sum(len(each["failed"]) for each in rounds)
    ended = f"{status}, {len(rounds)} rounds"
    server_s = usage.of_a_client(round(SHARE * clients))
    return Found(clients, name, size, ended, start_s, median(kept), lost, max(kept), server_s)


def page(runs: list[Found]) -> str:
    """Return the whole page."""
    sizes = sorted({each.clients for each in runs})
    command = f"benchmarks/ray_cluster.py --clients {' '.join(map(str, sizes))}"
    lines = [
        "# A simulation on a Ray cluster", "",
        f"Written by `{command}`, on {machine()}, where the raylets, the server, the SuperLink and "
        "other work share these cores: clients of 20 samples of the digits, "
        f"{SHARE:.0%} of them a round, `engine.ray_address`. Each raylet has one "
        f"CPU and so one worker. Medians without the first {SKIPPED} rounds and the last. The "
        "first round comes after all clients were asked who they are. Server: processor time of "
        "the one process in which the ServerApp and Flower's backend are, for each trained client.",
        "",
        *header("clients", "cluster", "ended as", "s to the first round", "clients a round",
                "s a round, median", "longest", "ms a client and worker", "server, ms a client",
                "replies lost"),
    ]  # fmt: skip
    lines += [
        row(f"{each.clients:,}", each.name, each.status, f"{each.start_s:.0f}", each.cohort,
            f"{each.round_s:.2f}", f"{each.longest_s:.1f}", f"{1000 * each.client_s:.0f}",
            "" if each.server_s is None else f"{1000 * each.server_s:.1f}", each.lost)
        for each in runs
    ]  # fmt: skip
    if not any(each.name == KILLED for each in runs):
        lines += ["", f"Not measured: {KILLED}."]
    return "\n".join([*lines, *plan(runs)])


def plan(runs: list[Found]) -> list[str]:
    """Return the lines of what the largest run means for more workers."""
    two = [each for each in runs if each.name == "two raylets"]
    largest = max(two, key=lambda each: each.clients)
    cohort, start = round(SHARE * PLANNED_CLIENTS), largest.start_s / largest.clients
    look = (largest.server_s or 0.0) / largest.clients
    lines = [
        "", "What bounds a round is Flower's backend. For each node it looks at all messages that "
        "are not answered yet, under one lock: `clients * clients of the round` looks, whatever "
        f"the number of workers. One look took {1e6 * look:.1f} us in the run of "
        f"{largest.clients:,} clients.", "",
        f"The plan for {PLANNED_CLIENTS:,} clients is on paper, from this run. Workers need "
        f"`clients of the round * {1000 * largest.client_s:.0f} ms / workers`, at most: it "
        "contains the waiting for the backend, and workers of other machines do not share cores "
        "with the server. A round takes at least the longer of the two; bold is where this is the "
        "backend:", "",
        *header("workers", *(f"{many:,} clients a round, s" for many in (cohort, PLANNED_CLIENTS))),
    ]  # fmt: skip
    for number in PLANNED:
        cells = [
            _bound(many * largest.client_s / number, many * PLANNED_CLIENTS * look)
            for many in (cohort, PLANNED_CLIENTS)
        ]
        lines.append(row(number, *cells))
    return [
        *lines,
        "", f"Up to the first round two raylets took {1000 * start:.0f} ms a client, with "
        "the start of Ray and the imports: at least "
        f"{PLANNED_CLIENTS * start / 60:.0f} minutes for {PLANNED_CLIENTS:,} clients on two "
        "workers.", "",
        "Data come by path: each worker reads `data.root` of its machine, once, and keeps the data "
        "for all its clients. Nothing of ours puts data into Ray's object store. Models travel in "
        "Flower's messages, which are arguments and results of Ray's tasks.", "",
    ]  # fmt: skip


def _bound(workers_s: float, server_s: float) -> str:
    return f"**{server_s:.1f} s**" if server_s > workers_s else f"{workers_s:.1f} s"


def main() -> None:
    """Run what the file has not, and write the page."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves every context
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[300, 1000, 3000])
    parser.add_argument("--out", type=Path, required=True, help="file of runs, one JSON a line")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    options = parser.parse_args()
    path: Path = options.out
    if options.page:
        must_be_there(path, "--page")
    lines = path.read_text().splitlines() if path.exists() else []
    runs = [Found(**json.loads(line)) for line in lines]
    first = options.clients[0]
    cases = [(clients, "two raylets", 2, False) for clients in options.clients]
    cases[1:1] = [(first, "one raylet", 1, False), (first, KILLED, 2, True)]
    for clients, name, size, kills in cases:
        if not options.page and (clients, name) not in {(each.clients, each.name) for each in runs}:
            runs.append(play(name, clients, size, kills=kills))
            print(runs[-1], flush=True)
            with path.open("a") as file:
                file.write(json.dumps(asdict(runs[-1])) + "\n")
    PAGE.write_text(page(runs))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
