"""Seconds of a round outside client training; writes docs/results/round_overhead.md by itself.

    .venv/bin/python benchmarks/round_overhead.py --data ../shared/data

10 of 100 clients a round, CNN of McMahan et al. (1,663,370 parameters), clients that train for
zero epochs: what is left is encoding, exchange, aggregation, the graph and the records.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

REPO = Path(__file__).resolve().parent.parent
TABLE = REPO / "docs" / "results" / "round_overhead.md"
SKIPPED = 3
"""First rounds left out: they fill caches and load each client's data."""
CASES = {
    "inprocess, fedavg": ["engine=inprocess", "strategy=fedavg"],
    "inprocess, flic without look-ahead": ["engine=inprocess", "graph.look_ahead_every=0"],
    "inprocess, flic": ["engine=inprocess"],
    "simulation (Ray), fedavg": ["engine=simulation", "strategy=fedavg"],
    "simulation (Ray), flic": ["engine=simulation"],
}


def seconds(data: Path, overrides: list[str], rounds: int) -> list[float]:
    """Return the seconds of each round beside its evaluation and its clients' own time."""
    strategy = [] if "strategy=fedavg" in overrides else [f"strategy.cluster_round={rounds - 1}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable, "-m", "fl_app.main", "data=mnist", f"data.root={data}",
            "network=mcmahan_cnn", "population=iid", "population.clients=100",
            "client.epochs=0", "engine.workers=1", f"rounds={rounds}",
            "records.evaluate_every=1000", "records.checkpoint_every=1000",
            "records.figures=false", f"hydra.run.dir={folder}/run", *overrides, *strategy,
            "strategy.participation=0.1",
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = (Path(folder) / "run" / "rounds.jsonl").read_text().splitlines()
    times = [json.loads(line)["time"] for line in lines[SKIPPED : rounds - 2]]
    return [t["total_s"] - t["evaluation_s"] - t["clients_s"] for t in times]


def main() -> None:
    """Measure every case, the sides after each other in one run, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    found = {
        name: seconds(options.data.resolve(), overrides, options.rounds)
        for name, overrides in CASES.items()
    }
    base = median(found["inprocess, fedavg"])
    lines = [
        "# Seconds of a round outside client training",
        "",
        "Written by `benchmarks/round_overhead.py`. 10 of 100 clients, 1,663,370 parameters,",
        f"zero epochs; median, least and most of {len(found['inprocess, fedavg'])} rounds of one",
        "run each. A look-ahead recomputes the rows of the clients that reported and runs",
        "Louvain on all seen: for the records alone, `graph.look_ahead_every` turns it off.",
        "",
        "| engine, strategy | median s | least | most | over in-process FedAvg |",
        "|---|---|---|---|---|",
    ]
    for name, times in found.items():
        middle = median(times)
        lines.append(
            f"| {name} | {middle:.4f} | {min(times):.4f} | {max(times):.4f} | {middle / base:.1f} |"
        )
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
