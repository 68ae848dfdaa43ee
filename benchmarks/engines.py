"""The same runs on the three engines; writes docs/results/engines.md.

    .venv/bin/python benchmarks/engines.py [--only flic ifca] [--measured]

Short runs of every method, and of personal models and masks, with four clients. The output folder
keeps the runs; those that completed are not repeated. `--measured` writes the page of what is
there.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from table import REPO, header, machine, row

from fl_app.config import choices, option
from fl_app.records.models import read_models
from fl_app.types import ENGINES

PAGE = REPO / "docs" / "results" / "engines.md"
COMMON = (
    "population=label_swap", "population.clients=4", "population.groups=2",
    "population.train_samples=200", "population.test_samples=80", "client.epochs=2", "rounds=3",
    "records.evaluate_every=3", "tracking=none",
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
    ),
}
HEAD = """# The same runs on three engines

Written by `benchmarks/engines.py`, on {machine}: four clients of the embedded digits in two groups
that swap labels, three rounds, all clients in each, clustered in the second where a method has such
a setting; the common settings are `{common}`. Each run is compared with that of the in-process
engine: whether the clients are in the same communities, and the largest difference of a parameter
of the final models. Seconds are those of all rounds, of runs that share the machine with other
work.
"""
Summary = dict[str, Any]


def cases() -> dict[str, list[str]]:
    """Return the overrides of each case; central k-means has one engine, secure_flic masks."""
    found = {
        name: _words(name)
        for name in choices("strategy")
        if not (option(f"strategy={name}").resolve().simulation_only or name == "secure_flic")
    }
    return found | {name: [*each, *COMMON] for name, each in OTHERS.items()}


def _words(name: str) -> list[str]:
    target = option(f"strategy={name}")
    network = NETWORKS.get(target.resolve().model_kind)
    given = [f"strategy.{k}={value}" for k, value in GIVEN.items() if k in target.options]
    return [*COMMON, f"strategy={name}", *([network] if network else []), *given]


def run(words: Sequence[str], engine: str, folder: Path) -> str | None:
    """Run a case unless its folder has a completed run; return the last line of an error."""
    if _summary(folder).get("status") == "completed":
        return None
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "fl_app", *words, f"engine={engine}"]
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
        same = _assignment(mine) == _assignment(first)
        yield row(
            f"`{name}`", engine, (mine["communities"] or {}).get("sizes") or "",
            "yes" if same else "**no**", f"{apart(folders[ENGINES[0]], folders[engine]):.2g}",
            _accuracy(mine), f"{mine['time']['total_s']:.1f}",
        )  # fmt: skip


def _accuracy(summary: Summary) -> str:
    found = summary["accuracy"]["mean"]
    return "" if found is None else f"{found:.4f}"


def _assignment(summary: Summary) -> object:
    return (summary["communities"] or {}).get("assignment")


def main() -> None:
    """Run what is missing, one after another, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = cases()
    parser.add_argument("--only", nargs="+", default=list(every), choices=list(every))
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "engines")
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    out = given.out.resolve()
    for name in () if given.measured else given.only:
        for engine in ENGINES:
            error = run(every[name], engine, _folder(out, name, engine))
            print(f"{name} {engine}: {error or 'completed'}", flush=True)
    names = ("case", "engine", "communities", "equal", "largest difference", "accuracy", "seconds")
    lines = [HEAD.format(machine=machine(), common=" ".join(COMMON))]
    lines += header(*names)
    lines += [each for name in given.only for each in compared(name, out)]
    print("\n".join(lines))
    if given.only == list(every):
        PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
