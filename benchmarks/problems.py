"""Six worked problems, clustered and with one model; writes docs/results/problems.md.

    .venv/bin/python benchmarks/problems.py --data <folder> [--only hospitals clinics]

Options and networks are in benchmarks/problems, a folder like that of a user. The tables are
written from data of scikit-learn and texts of Python's library. The folder `--data` contains MNIST,
Fashion-MNIST and `cifar10-imagefolder.tar.gz`, the images of CIFAR-10 as
`cifar10/{train,test}/<class>/<number>.jpg`. Existing results are not measured again.
"""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from summaries import summary_of
from table import REPO, arguments, header, machine, row

from fl_app.records.models import read_models
from fl_app.types import ENGINES

PAGE = REPO / "docs" / "results" / "problems.md"
OWN = REPO / "benchmarks" / "problems"
SHORT = 3
"""Rounds of the runs that compare engines: a deployment starts a process per client and round."""
TABLES, IMAGES, FOLDER = "tables", "images", "cifar10"
ARCHIVE = "cifar10-imagefolder.tar.gz"
PROBLEMS = {
    "hospitals": ("table of eight hospitals, half of which code the diagnosis the other way; "
                  "weighted loss, F1, AUC", TABLES),
    "clinics": ("regression on the table of eight clinics, half of which count from the other "
                "end; Adam, MAE, R2", TABLES),
    "docstrings": ("texts, an embedding, Adam", TABLES),
    "augmented": ("6,000 images of CIFAR-10, crop and flip, cosine schedule", FOLDER),
    "pretrained": ("MNIST, a backbone learnt on Fashion-MNIST and frozen, a new head", IMAGES),
    "buffers": ("digits; batch norm, dropout, integer and boolean buffers", None),
}  # fmt: skip
"""What each problem is, and which data it needs."""
HEAD = """# Worked problems

Written by `benchmarks/problems.py --data <folder>`, on {machine}. Each problem is one command in
the folder `benchmarks/problems`, which contains all of its options and code:

```text
cd benchmarks/problems && fl-app --config-dir conf experiment=hospitals data.root=<folder>
```

FLIC clusters after half of the rounds; FedAvg trains one model for all, with the same settings and
all clients in every round. Measures are means over the clients, each on its own test data: for AUC
and F1 that is not the value on all test data together. The last two columns compare the engines in
further runs of {short} rounds, clustered after round 2: the largest difference of any parameter
from the models of the in-process engine.
"""


def words(name: str, strategy: Sequence[str], engine: str, data: Path, folder: Path) -> list[str]:
    """Return the command of a run."""
    found = [sys.executable, "-m", "fl_app", "--config-dir", "conf", f"experiment={name}"]
    found += [*strategy, f"engine={engine}", f"hydra.run.dir={folder}", "tracking=none"]
    kind = PROBLEMS[name][1] if name in PROBLEMS else IMAGES
    if kind is not None:
        found.append(f"data.root={data if kind == IMAGES else folder.parents[1] / kind}")
    return found


def run(name: str, strategy: Sequence[str], engine: str, data: Path, folder: Path) -> Path:
    """Run a problem unless its result is there; return its folder."""
    summary = folder / "summary.json"
    if not summary.exists() or json.loads(summary.read_text())["status"] != "completed":
        print(f"{name} {' '.join(strategy)} {engine}", flush=True)
        command = words(name, strategy, engine, data, folder)
        quiet = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "PYTHONPATH": str(REPO)
        }
        subprocess.run(command, cwd=OWN, env=quiet, check=True, stdout=subprocess.DEVNULL)
    return folder


def solve(name: str, data: Path, out: Path) -> dict[str, Any]:
    """Return the measures of FedAvg and of FLIC, and the differences between engines."""
    extra: list[str] = []
    if name == "pretrained":
        first = run("pretraining", (), "inprocess", data, out / "pretraining" / "fedavg")
        extra = [f"network.weights={first / 'models.safetensors'}@0"]
    rounds = 20 if name in ("hospitals", "clinics") else 15
    flic = ["strategy=flic", "fallback=false", "strategy.participation=1.0"]
    flic.append(f"strategy.cluster_round={rounds // 2}")
    one = ["strategy=fedavg", "strategy.participation=1.0"]
    clustered = run(name, [*flic, *extra], "inprocess", data, out / name / "flic")
    average = run(name, [*one, *extra], "inprocess", data, out / name / "fedavg")
    few = [*flic[:3], "strategy.cluster_round=2", f"rounds={SHORT}", *extra]
    folders = {
        engine: run(name, few, engine, data, out / name / f"short-{engine}") for engine in ENGINES
    }
    return {
        "flic": summary_of(clustered),
        "fedavg": summary_of(average),
        "apart": {engine: apart(folders["inprocess"], folders[engine]) for engine in ENGINES[1:]},
    }


def apart(first: Path, second: Path) -> float:
    """Return the largest difference of any parameter of the models of two runs."""
    ours, theirs = read_models(first), read_models(second)
    assert len(ours) == len(theirs), (first, second)
    return max(
        float(np.abs(one[name].astype(float) - other[name].astype(float)).max())
        for one, other in zip(ours, theirs, strict=True)
        for name in one
    )


def measures(found: dict[str, Any]) -> str:
    """Return accuracy and metrics of a summary as one cell."""
    parts = (
        [] if found["accuracy"]["mean"] is None else [f"accuracy {found['accuracy']['mean']:.3f}"]
    )
    parts += [
        f"{name} {each['mean']:.3f}"
        for name, each in sorted((found.get("metrics") or {}).items())
        if each["mean"] is not None
    ]
    return ", ".join(parts)


def page(results: dict[str, dict[str, Any]]) -> list[str]:
    """Return the page."""
    columns = ("problem", "what it is", "FedAvg", "FLIC", "communities", "ARI", *ENGINES[1:])
    lines = [HEAD.format(machine=machine(), short=SHORT), *header(*columns)]
    for name, found in results.items():
        flic = found["flic"]["communities"]
        ari = "" if flic["ari"] is None else f"{flic['ari']:.2f}"
        lines.append(
            row(
                f"`{name}`", PROBLEMS[name][0], measures(found["fedavg"]), measures(found["flic"]),
                flic["sizes"], ari, *(f"{each:.1e}" for each in found["apart"].values()),
            )
        )  # fmt: skip
    return lines


def unpack(archive: Path, to: Path) -> None:
    """Write the first images of each class, which every process of a run then reads."""
    with tarfile.open(archive) as file:
        for member in file:
            part, _, name = member.name.removeprefix(f"{FOLDER}/").partition("/")
            number = Path(name).stem
            if number.isdigit() and int(number) < (600 if part == "train" else 200):
                file.extract(member, to, filter="data")


def main() -> None:
    """Run what is missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "problems")
    options = parser.parse_args()
    out = options.out.resolve()
    subprocess.run([sys.executable, OWN / "write_tables.py", out / TABLES], check=True)
    if "augmented" in options.only and not (out / FOLDER).exists():
        unpack(options.data / ARCHIVE, out)
    results = {name: solve(name, options.data.resolve(), out) for name in options.only}
    lines = page(results)
    print("\n".join(lines))
    if options.only == list(PROBLEMS):
        PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
