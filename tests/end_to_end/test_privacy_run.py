"""Runs whose clients hide what they send: what is recorded, and where they end."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_app.records.models import read_models

SMALL = [
    "rounds=6", "population.clients=6", "population.groups=2", "population.train_samples=40",
    "strategy=dcfl", "client.epochs=1", "records.evaluate_every=3", "records.checkpoint_every=2",
    "records.figures=false",
]  # fmt: skip


def _fl_app(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fl_app.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _rounds(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["local_dp", "sample_dp"])
def test_every_round_tells_what_each_client_has_spent(tmp_path: Path, kind: str) -> None:
    done = _fl_app(*SMALL, f"privacy={kind}", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    spent = [record["privacy"]["epsilon"]["clients"]["0"] for record in _rounds(tmp_path / "run")]
    assert len(spent) == 6
    assert (np.diff(spent) > 0).all()
    assert 9.5 < spent[-1] <= 10.0
    assert {r["privacy"]["kind"] for r in _rounds(tmp_path / "run")} == {kind}


def test_a_spent_budget_ends_the_run_with_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    folder, noise = tmp_path / "run", "privacy.noise_multiplier=4"
    done = _fl_app(*SMALL, "privacy=local_dp", noise, "privacy.epsilon=5",
                   f"hydra.run.dir={folder}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rounds = _rounds(folder)
    assert len(rounds) < 6
    assert rounds[-1]["events"][-1]["kind"] == "budget spent"
    assert rounds[-1]["accuracy"] is not None
    assert rounds[-1]["privacy"]["epsilon"]["max"] <= 5
    assert (folder / "checkpoint" / "checkpoint.safetensors").exists()
    again = _fl_app(f"resume={folder}", "privacy.epsilon=100")
    assert again.returncode == 0, again.stderr
    whole = tmp_path / "whole"
    straight = _fl_app(*SMALL, "privacy=local_dp", noise, "privacy.epsilon=100",
                       f"hydra.run.dir={whole}")  # fmt: skip
    assert straight.returncode == 0, straight.stderr
    resumed, unbroken = _rounds(folder), _rounds(whole)
    assert [r["privacy"]["epsilon"] for r in resumed] == [r["privacy"]["epsilon"] for r in unbroken]
    for ours, theirs in zip(read_models(folder), read_models(whole), strict=True):
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
