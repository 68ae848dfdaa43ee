"""Compares our in-process engine with pfl-research's simulator, on the same work.

    .venv/bin/python benchmarks/against_pfl.py --data <folder> --python <python> [light] [small]

pfl-research's side is `benchmarks/pfl_research/app.py`. `<python>` is that of an environment of its
own with `pfl[pytorch]==0.6.0` and the project's version of torch. It runs once as one process with
a thread for each core and once as a process for each core; the faster one is compared. Both sides
train the network of `benchmarks/against_stock.py` on a random split of MNIST, take turns, and do so
`--repeats` times.
"""

import os
from collections.abc import Callable
from pathlib import Path
from statistics import median

from against_stock import OURS, WORKS, Side, Work, ours, theirs, told
from table import arguments, write_section

APP = Path(__file__).parent / "pfl_research" / "app.py"
CORES = os.cpu_count() or 1
TITLES = {
    "small": "Many small clients, beside pfl-research",
    "light": "A light round, beside pfl-research",
}
Player = Callable[[], Side]


def players(name: str, data: Path, python: Path) -> dict[str, Player]:
    """Return what runs each side of one kind of work."""
    work = WORKS[name]
    spread = [
        str(python.parent / "torchrun"),
        f"--nproc-per-node={CORES}",
        "--standalone",
        str(APP),
    ]

    def other(command: list[str]) -> Player:
        return lambda: theirs(command, work, data)

    def own(overrides: list[str]) -> Player:
        return lambda: ours(work, data, overrides)

    return {
        f"pfl-research, 1 process, {CORES} threads": other(
            [str(python), str(APP), f"--threads={CORES}"]
        ),
        f"pfl-research, {CORES} processes": other([*spread, "--threads=1"]),
        **{label: own(overrides) for label, overrides in OURS[name].items()},
    }


def joined(runs: list[Side]) -> Side:
    """Return the rounds of several runs of one side as one."""
    seconds = [second for run in runs for second in run.seconds]
    return Side(seconds, median(run.accuracy for run in runs))


def measure(name: str, data: Path, python: Path, repeats: int) -> None:
    """Run all sides in turn and write the section."""
    work: Work = WORKS[name]
    sides = players(name, data, python)
    runs: dict[str, list[Side]] = {label: [] for label in sides}
    for _ in range(repeats):
        for label, play in sides.items():
            runs[label].append(play())
            print(f"{label}: {median(runs[label][-1].seconds):.3f} s", flush=True)
    found = {label: joined(each) for label, each in runs.items()}
    pfl = [label for label in found if label.startswith("pfl")]
    fastest_first = sorted(pfl, key=lambda label: median(found[label].seconds))
    ordered = {label: found[label] for label in dict.fromkeys([*fastest_first, *found])}
    lines = told(work, ordered, "pfl-research")
    write_section(TITLES[name], f"benchmarks/against_pfl.py {name}", lines)


def main() -> None:
    """Measure what is named, or both."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("works", nargs="*", default=list(TITLES))
    options = parser.parse_args()
    for name in options.works:
        measure(name, options.data.resolve(), options.python.absolute(), options.repeats)


if __name__ == "__main__":
    main()
