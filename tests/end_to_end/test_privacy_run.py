"""Runs whose clients hide what they send: what is recorded, and where they end."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

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


def test_every_round_tells_what_each_client_has_spent(tmp_path: Path) -> None:
    done = _fl_app(*SMALL, "privacy=sample_dp", f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    rounds = _rounds(tmp_path / "run")
    spent = [record["privacy"]["epsilon"]["clients"]["0"] for record in rounds]
    assert len(spent) == 6
    assert (np.diff(spent) > 0).all()
    assert 9.5 < spent[-1] <= 10.0


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
    resumed = _rounds(folder)
    spent = [record["privacy"]["epsilon"]["clients"]["0"] for record in resumed]
    assert len(spent) == 6
    assert spent[: len(rounds)] == [r["privacy"]["epsilon"]["clients"]["0"] for r in rounds]
    assert (np.diff(spent) > 0).all()
