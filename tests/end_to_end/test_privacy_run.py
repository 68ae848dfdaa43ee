"""Runs whose clients hide what they send: what is recorded, and where they end."""

import json
from pathlib import Path

import numpy as np

from fl_app.one_run import run

SMALL = [
    "rounds=6", "population.clients=6", "population.groups=2", "population.train_samples=40",
    "strategy=dcfl", "client.epochs=1", "records.evaluate_every=3", "records.checkpoint_every=2",
    "records.figures=false", "records.report=false", "network=mlp",
]  # fmt: skip


def _rounds(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_every_round_tells_what_each_client_has_spent(tmp_path: Path) -> None:
    run([*SMALL, "privacy=sample_dp"], tmp_path / "run")
    rounds = _rounds(tmp_path / "run")
    spent = [record["privacy"]["epsilon"]["clients"]["0"] for record in rounds]
    assert len(spent) == 6
    assert (np.diff(spent) > 0).all()
    assert 9.5 < spent[-1] <= 10.0


def test_a_spent_budget_ends_the_run_with_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    folder, noise = tmp_path / "run", "privacy.noise_multiplier=4"
    hidden = [*SMALL, "privacy=local_dp", noise]
    run([*hidden, "privacy.epsilon=5"], folder)
    rounds = _rounds(folder)
    assert len(rounds) < 6
    assert rounds[-1]["events"][-1]["kind"] == "budget spent"
    assert rounds[-1]["accuracy"] is not None
    assert rounds[-1]["privacy"]["epsilon"]["max"] <= 5
    assert (folder / "checkpoint" / "checkpoint.safetensors").exists()
    run([*hidden, "privacy.epsilon=100"], folder, resume=True)
    resumed = _rounds(folder)
    spent = [record["privacy"]["epsilon"]["clients"]["0"] for record in resumed]
    assert len(spent) == 6
    assert spent[: len(rounds)] == [r["privacy"]["epsilon"]["clients"]["0"] for r in rounds]
    assert (np.diff(spent) > 0).all()
