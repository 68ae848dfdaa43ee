"""Finished runs that several tests use."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fl_app.one_run import run

QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]
DIGITS = [
    "rounds=4", "population.clients=6", "population.groups=2", "population.train_samples=60",
    "population.test_samples=20", "client.batch_size=10", "network.width=0.25",
    "strategy=communities_wnn", "strategy.participation=1.0", "client.learning_rate=0.2",
]  # fmt: skip
TABLE = [
    "rounds=4", "data=table", "data.file=patients.csv", "data.label=sick", "data.client=ward",
    "data.missing=median", "data.standardise=true", "network=mlp", "population=by_column",
    "population.clients=2", "strategy=fedavg", "strategy.participation=1.0",
    "client.learning_rate=0.2",
]  # fmt: skip
ROTATED = [
    "population=rotation", "strategy=late", "strategy.cluster_round=2", "rounds=4",
    "strategy.participation=1.0", "population.clients=5", "population.groups=2",
    "population.dynamics.newcomers=1", "population.dynamics.join_rounds=[4]",
    "engine.place_newcomers=true", "population.train_samples=200",
    "client.batch_size=10", "client.learning_rate=0.1", "network=mlp",
]  # fmt: skip
ROWS = "age,pressure,colour,ward,sick\n"


def patients(number: int) -> str:
    """Return rows of which each tenth has no pressure."""
    rows = []
    for row in range(number):
        age, pressure = 20 + 37 * row % 60, "" if row % 10 == 3 else f"{110 + row * 7 % 30}.5"
        colour, ward = ("red", "blue")[row * 5 % 3 == 0], "AB"[row % 2]
        rows.append(f"{age},{pressure},{colour},{ward},{'yes' if age > 50 else 'no'}")
    return ROWS + "\n".join(rows) + "\n"


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """Keep the modules of this process: MLflow imports those of the model that it loads."""
    path, before = list(sys.path), _ours()
    yield
    for name in _ours():
        del sys.modules[name]
    sys.modules.update(before)
    sys.path[:] = path


def _ours() -> dict[str, ModuleType]:
    return {name: each for name, each in sys.modules.items() if name.split(".")[0] == "fl_app"}


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on images whose clients use mixtures."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    run([*DIGITS, *QUICK], folder)
    return folder


@pytest.fixture(scope="session")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on `patients.csv` beside it."""
    root = tmp_path_factory.mktemp("table")
    (root / "patients.csv").write_text(patients(200))
    run([*TABLE, f"data.root={root}", *QUICK], root / "run")
    return root / "run"


@pytest.fixture(scope="session")
def rotated_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with two groups of images, which client 4 joins in round 4."""
    folder = tmp_path_factory.mktemp("rotated") / "run"
    run([*ROTATED, *QUICK], folder)
    assert json.loads((folder / "summary.json").read_text())["communities"]["ari"] == 1.0
    return folder
