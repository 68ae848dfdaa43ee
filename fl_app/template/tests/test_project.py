"""The parts of the project keep the contracts of fl-app, on all three engines."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fl_app.testing import (
    DataContract,
    LearnerContract,
    MethodContract,
    NetworkContract,
    PopulationContract,
)
from fl_app.types import ENGINES

PROJECT = Path(__file__).resolve().parent.parent
WHOLE = ("experiment=my_project",)


class TestMethod(MethodContract):
    name = "kmeans_of_updates"


class TestNetwork(NetworkContract):
    overrides = WHOLE


class TestLearner(LearnerContract):
    overrides = WHOLE


class TestData(DataContract):
    overrides = WHOLE


class TestPopulation(PopulationContract):
    overrides = WHOLE


@pytest.fixture(scope="module")
def accuracies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The accuracy of the experiment on every engine."""
    found: dict[str, float] = {}
    for engine in ENGINES:
        folder = tmp_path_factory.mktemp(engine)
        command = [sys.executable, "-m", "fl_app", "--config-dir", "conf", "experiment=my_project"]
        command += [f"engine={engine}", f"hydra.run.dir={folder}"]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["communities"]["ari"] == 1.0
        found[engine] = summary["accuracy"]["mean"]
    return found


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_every_engine_gives_the_same_result(accuracies: dict[str, float], engine: str) -> None:
    np.testing.assert_allclose(accuracies[engine], accuracies["inprocess"], atol=1e-6)
