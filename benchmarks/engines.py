"""The same runs on the three engines; writes docs/results/engines.md.

    .venv/bin/python benchmarks/engines.py [--only flic ifca] [--measured]

Short runs of every method, and of personal models, masks and private losses, with four clients. The
output folder keeps the runs; those that completed are not repeated. `--only` puts the rows of these
cases into the page; `--measured` writes the rows of what is there and no others.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table import REPO, arguments, header, machine, put_rows, row

from fl_app.composition import choices
from fl_app.config import option
from fl_app.records.history import read_rounds
from fl_app.records.models import read_models
from fl_app.types import ENGINES

PAGE = REPO / "docs" / "results" / "engines.md"
COMMON = (
    "population=label_swap", "population.clients=4", "population.groups=2",
    "population.train_samples=200", "population.test_samples=80", "client.epochs=2", "rounds=3",
    "records.evaluate_every=3", "tracking=none", "fallback=false",
)  # fmt: skip
GIVEN = {"participation": 1.0, "cluster_round": 2, "malicious": 0, "fewest": 3}
"""Of a method, where it has such a setting."""
NETWORKS = {"centroids": "network=centroids", "mixture": "network=mixture"}
"""By the kind of model of a method."""
OTHERS = {
    "fedavg personal=ditto": ("strategy=fedavg", "personal=ditto"),
    "fedavg personal=fedper": ("strategy=fedavg", "personal=fedper"),
    "flic personal=fedrep": ("strategy=flic", "strategy.cluster_round=2", "personal=fedrep"),
    "ifca masking=secagg": ("experiment=secure_ifca", "masking.smallest=1"),
    "secure_flic masking=secagg": (
        "experiment=secure_flic",
        "strategy.cluster_round=2",
        "strategy.epsilon=inf",
        "strategy.smallest=3",
        "masking.smallest=1",
        "population.clients=6",
        "population.test_samples=50",
    ),
    "ifca privacy=sample_dp": ("strategy=ifca", "privacy=sample_dp", "privacy.epsilon=30"),
    "flic cluster_round=auto privacy=sample_dp": (
        "strategy=flic",
        "strategy.participation=1.0",
        "strategy.cluster_round=auto",
        "strategy.stability_window=1",
        "strategy.stability_tolerance=0.9",
        "privacy=sample_dp",
        "privacy.epsilon=30",
    ),
}
HEAD = """# The same runs on three engines

Written by `benchmarks/engines.py`, on {machine}: four clients of the embedded digits in two groups
that swap labels (six with `secure_flic`), three rounds, all clients in each, clustered in the
second where a method has such a setting; the common settings are `{common}`. Each run is compared
with that of the in-process engine: whether the clients are in the same communities, and the largest
difference of a parameter of the final models. Clients with a privacy must draw their noise from the
system's entropy in a deployment, so that their models cannot be equal to those of another run:
there the row compares the ledger of every client and round, of updates and of losses. Seconds are
those of all rounds, of runs that share the machine with other work.
"""
COLUMNS = ("case", "engine", "communities", "equal", "largest difference", "accuracy", "seconds")
Summary = dict[str, Any]


def cases() -> dict[str, list[str]]:
    """Return the overrides of each case; central k-means has one engine, secure_flic masks."""
    found = {
        name: _words(name)
        for name in choices("strategy")
        if not (option(f"strategy={name}").resolve().simulation_only or name == "secure_flic")
    }
    return found | {name: [*COMMON, *each] for name, each in OTHERS.items()}


def _words(name: str) -> list[str]:
    target = option(f"strategy={name}")
    method = target.resolve()
    # clients that cluster points have no epochs
    common = [each for each in COMMON if not (method.clusters_points and "client." in each)]
    network = NETWORKS.get(method.model_kind)
    given = [f"strategy.{k}={value}" for k, value in GIVEN.items() if k in target.options]
    return [*common, f"strategy={name}", *([network] if network else []), *given]


def unkeyed(words: Sequence[str], engine: str) -> list[str]:
    """Return the override by which clients draw noise that the server does not know, if they must.

    A deployment refuses noise from the run's seed.
    """
    private = any(word.startswith("privacy=") for word in words)
    return ["privacy.randomness=system"] if private and engine == "deployment" else []


def run(words: Sequence[str], engine: str, folder: Path) -> str | None:
    """Run a case unless its folder has a completed run; return the last line of an error."""
    if _summary(folder).get("status") == "completed":
        return None
    shutil.rmtree(folder, ignore_errors=True)
    given = [*words, *unkeyed(words, engine), f"engine={engine}"]
    command = [sys.executable, "-m", "fl_app", *given]
    done = subprocess.run(
        [*command, f"hydra.run.dir={folder}"], capture_output=True, text=True, check=False
    )
    told = done.stderr.strip() or f"exit code {done.returncode}"
    return None if done.returncode == 0 else told.splitlines()[-1]


def _folder(out: Path, name: str, engine: str) -> Path:
    return out / name.replace(" ", "-").replace("=", "-") / engine  # Hydra reads a = as its own


def _summary(folder: Path) -> Summary:
    path = folder / "summary.json"
    found: Summary = json.loads(path.read_text()) if path.exists() else {}
    return found


def apart(ours: Path, theirs: Path) -> float:
    """Return the largest difference of a parameter; NaN for unequal numbers of models."""
    first, second = read_models(ours), read_models(theirs)
    if len(first) != len(second):
        return float("nan")
    pairs = zip(first, second, strict=True)
    return max(
        float(np.abs(a[name].astype(float) - b[name].astype(float)).max())
        for a, b in pairs
        for name in a
    )


def compared(name: str, out: Path) -> Iterator[str]:
    """Yield a row for each engine whose run of a case is complete."""
    folders = {engine: _folder(out, name, engine) for engine in ENGINES}
    found = {engine: _summary(folder) for engine, folder in folders.items()}
    first = found[ENGINES[0]]
    for engine, mine in found.items():
        if {mine.get("status"), first.get("status")} != {"completed"}:
            yield row(f"`{name}`", engine, mine.get("status", "not run"), "", "", "", "")
            continue
        equal, told = _equal(folders[ENGINES[0]], folders[engine], unkeyed(cases()[name], engine))
        yield row(
            f"`{name}`", engine, (mine["communities"] or {}).get("sizes") or "",
            "yes" if equal else "**no**", told, _accuracy(mine), f"{mine['time']['total_s']:.1f}",
        )  # fmt: skip


def _equal(ours: Path, theirs: Path, unkeyed: Sequence[str]) -> tuple[bool, str]:
    """Return whether two runs are equal in what they must be, and what the page tells of it."""
    if unkeyed:
        return ledger(ours) == ledger(theirs), "other noise; the ledger"
    same = _assignment(_summary(ours)) == _assignment(_summary(theirs))
    return same and ledger(ours) == ledger(theirs), f"{apart(ours, theirs):.2g}"


def ledger(folder: Path) -> list[Any]:
    """Return what privacy booked in each round: every client's releases and its epsilon."""
    return [record["privacy"] for record in read_rounds(folder)]


def _accuracy(summary: Summary) -> str:
    found = summary["accuracy"]["mean"]
    return "" if found is None else f"{found:.4f}"


def _assignment(summary: Summary) -> object:
    return (summary["communities"] or {}).get("assignment")


def main() -> None:
    """Run what is missing, one after another, and write the page."""
    parser = arguments(__doc__)
    every = cases()
    parser.add_argument("--only", nargs="+", default=list(every), choices=list(every))
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "engines")
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    out, names = given.out.resolve(), given.only
    if given.measured:
        names = [name for name in names if any(_summary(_folder(out, name, e)) for e in ENGINES)]
    for name in () if given.measured else names:
        for engine in ENGINES:
            error = run(every[name], engine, _folder(out, name, engine))
            print(f"{name} {engine}: {error or 'completed'}", flush=True)
    head = HEAD.format(machine=machine(), common=" ".join(COMMON)).splitlines()
    head += ["", *header(*COLUMNS)]
    rows = [each for name in names for each in compared(name, out)]
    print("\n".join([*head, *rows]))
    if names == list(every):
        PAGE.write_text("\n".join([*head, *rows]) + "\n")
    else:
        put_rows(PAGE, rows, head, key=2)


if __name__ == "__main__":
    main()
