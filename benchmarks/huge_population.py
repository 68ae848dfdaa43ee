"""A hundred thousand clients in one process: seconds per round, and growth of memory.

    .venv/bin/python benchmarks/huge_population.py [--clients 100000]

Every client has its own 20 samples of the embedded digits, drawn when they are first needed. In
each round a hundred clients train a small CNN, and another hundred measure its accuracy.
"""

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from table import arguments, header, row, write_section

from fl_app.records.history import read_rounds

ROUNDS = 20
COHORT = 100
SKIPPED = 2
"""First rounds that the medians exclude: in the first one every client introduces itself."""


def resident(process: int) -> float:
    """Return the gigabytes that a process holds now."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 2**20


def watch(process: subprocess.Popen[str], rounds: Path, found: dict[int, float]) -> None:
    """Note the memory after each round that the run has recorded."""
    while process.poll() is None:
        done = len(rounds.read_text().splitlines()) if rounds.exists() else 0
        try:
            found.setdefault(done, resident(process.pid))
        except (OSError, StopIteration):
            return
        time.sleep(0.02)


def run(clients: int, strategy: str, folder: Path) -> tuple[float, list[dict], dict[int, float]]:
    """Return the seconds of the whole run, its rounds, and memory by rounds done."""
    command = [
        sys.executable, "-m", "fl_app.main", f"strategy={strategy}", "fallback=false",
        f"population.clients={clients}", "population.draw=replacement",
        "population.train_samples=20", "population.test_samples=10", f"rounds={ROUNDS}",
        f"strategy.participation={COHORT / clients}", "client.epochs=1",
        f"records.evaluate_at_most={COHORT}", "records.evaluate_every=5",
        "records.checkpoint_every=1000", "records.figures=false", "records.report=false",
        f"hydra.run.dir={folder}",
    ]  # fmt: skip
    if strategy == "flic":
        command.append(f"strategy.cluster_round={ROUNDS - 5}")
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    memory: dict[int, float] = {}
    watcher = threading.Thread(target=watch, args=(process, folder / "rounds.jsonl", memory))
    watcher.start()
    printed, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(printed)
    return time.perf_counter() - began, read_rounds(folder), memory


def main() -> None:
    """Run FedAvg and FLIC, and FedAvg with a hundredth of the clients; write the section."""
    parser = arguments(__doc__)
    parser.add_argument("--clients", type=int, default=100_000)
    options = parser.parse_args()
    if options.clients < 100 * COHORT:
        parser.error(f"--clients must be at least {100 * COHORT}, got {options.clients}: a round "
                     f"has {COHORT}, also of a hundredth of the clients")  # fmt: skip
    cases = [(options.clients // 100, "fedavg"), (options.clients, "fedavg"),
             (options.clients, "flic")]  # fmt: skip
    lines = [
        f"{COHORT} clients a round with 20 samples each, {ROUNDS} rounds. Median seconds of a "
        f"round without the first {SKIPPED}; resident gigabytes near the start and the end.",
        "",
        *header("clients", "strategy", "seconds a round", "whole run, seconds", "GB after round 1",
                f"GB after round {ROUNDS - 1}", "accuracy"),
    ]  # fmt: skip
    for clients, strategy in cases:
        with tempfile.TemporaryDirectory() as top:
            whole, rounds, memory = run(clients, strategy, Path(top) / "run")
        seconds = median(record["time"]["total_s"] for record in rounds[SKIPPED:])
        start, end = (memory.get(number, float("nan")) for number in (1, ROUNDS - 1))
        lines.append(
            row(f"{clients:,}", strategy, f"{seconds:.3f}", f"{whole:.1f}", f"{start:.3f}",
                f"{end:.3f}", f"{rounds[-1]['accuracy']['mean']:.3f}")
        )  # fmt: skip
    command = f"benchmarks/huge_population.py --clients {options.clients}"
    write_section("A hundred thousand clients", command, lines)


if __name__ == "__main__":
    main()
