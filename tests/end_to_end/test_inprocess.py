"""The `fl-app` door, run as a user runs it: a process of its own, from another folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fl_app.records.models import read_models

SMALL = [
    "rounds=8",
    "population.clients=8",
    "population.groups=2",
    "strategy.participation=0.5",
    "strategy.cluster_round=5",
    "records.evaluate_every=4",
    "records.checkpoint_every=2",
]


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fl_app.main", *arguments]


def _run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = _command(*SMALL, f"hydra.run.dir={folder}", *overrides)
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)


def _summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def _timeless(folder: Path) -> tuple[dict, list[dict]]:
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return _summary(folder) | {"time": None}, [record | {"time": None} for record in rounds]


def _assert_same_run(first: Path, second: Path) -> None:
    assert _timeless(first) == _timeless(second)
    for ours, theirs in zip(read_models(first), read_models(second), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = _run(folder)
    assert done.returncode == 0, done.stderr
    assert "completed: flic on inprocess, 8 rounds" in done.stdout
    assert "results in" in done.stdout
    return folder


def test_a_run_leaves_what_the_design_promises(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {"config.yaml", "rounds.jsonl", "summary.json", "checkpoint", "figures"} <= names
    summary = _summary(whole)
    assert set(summary) == {
        "status", "strategy", "engine", "seed", "rounds", "clients", "accuracy",
        "communities", "time", "versions", "git",
    }  # fmt: skip
    assert set(summary["communities"]) == {
        "count", "sizes", "ari", "pure_share", "silhouette", "assignment",
    }  # fmt: skip
    assert summary["clients"] == {"total": 8, "failed": 0, "rejected": 0, "removed": []}
    assert summary["communities"]["ari"] == 1.0
    assert sorted(summary["communities"]["sizes"]) == [4, 4]
    assert summary["accuracy"]["before_clustering"] is not None
    assert len((whole / "rounds.jsonl").read_text().splitlines()) == 8


def test_the_number_of_workers_changes_nothing(whole: Path, tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "engine.workers=1")
    assert done.returncode == 0, done.stderr
    _assert_same_run(whole, tmp_path / "run")


def test_a_killed_run_is_resumed_to_the_identical_end(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        _command(*SMALL, f"hydra.run.dir={folder}"), stdout=subprocess.DEVNULL, cwd=tmp_path
    )
    rounds = folder / "rounds.jsonl"
    deadline = time.monotonic() + 60
    while not rounds.exists() or rounds.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "summary.json").exists()
    done = subprocess.run(_command(f"resume={folder}"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _assert_same_run(whole, folder)


def test_ctrl_c_leaves_a_checkpoint_and_says_interrupted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = _command(
        *SMALL, "rounds=500", "strategy.cluster_round=400", f"hydra.run.dir={folder}"
    )
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path)
    rounds = folder / "rounds.jsonl"
    deadline = time.monotonic() + 60
    while not rounds.exists() or rounds.read_text().count("\n") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert _summary(folder)["status"] == "interrupted"
    assert (folder / "checkpoint" / "checkpoint.safetensors").exists()


def test_a_corrupt_checkpoint_is_refused_with_the_reason(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "overrides.yaml").write_text((whole / "overrides.yaml").read_text())
    (folder / "checkpoint" / "checkpoint.safetensors").write_bytes(b"no checkpoint at all")
    done = subprocess.run(_command(f"resume={folder}"), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "checkpoint" in done.stderr


def test_all_configuration_errors_come_before_anything_starts(tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "strategy=nonsense", "client.epochs=many", "rounds=0")
    assert done.returncode == 2
    assert "3 configuration error(s)" in done.stderr
    assert not (tmp_path / "run").exists()


def test_absent_data_say_what_to_put_where(tmp_path: Path) -> None:
    options = ["data=mnist", "data.download=false", f"data.root={tmp_path}", "network=mcmahan_cnn"]
    done = _run(tmp_path / "run", *options)
    assert done.returncode == 1
    assert "point data.root at a folder" in done.stderr


def test_more_clients_than_samples_is_an_error(tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "population.clients=2000")
    assert done.returncode == 1
    assert "lower population.clients" in done.stderr


def test_a_sweep_runs_every_combination(tmp_path: Path) -> None:
    kept = [override for override in SMALL if "cluster_round" not in override]
    command = _command("--multirun", *kept, "strategy=fedavg,fedmedian", "seed=0,1")
    command += ["rounds=2", "records.figures=false", f"hydra.sweep.dir={tmp_path / 'sweep'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {
        (summary["strategy"], summary["seed"])
        for summary in map(
            _summary, sorted(path for path in (tmp_path / "sweep").iterdir() if path.is_dir())
        )
    }
    assert found == {(name, seed) for name in ("fedavg", "fedmedian") for seed in (0, 1)}
