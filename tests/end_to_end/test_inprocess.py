"""The `fl-app` door, run as a user runs it: a process of its own, from another folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import door

from fl_app.engines.stop_request import STOP, STOPPING
from fl_app.records.checkpoint import PREVIOUS, read
from fl_app.records.models import read_models

SMALL = [
    "rounds=8",
    "population.clients=8",
    "population.groups=2",
    "strategy.participation=0.5",
    "strategy.cluster_round=5",
    "records.evaluate_every=4",
    "records.checkpoint_every=2",
    "network=mlp",  # half the time of a CNN
    "client.batch_size=20",
    "client.learning_rate=0.15",
]
QUICK = ["records.figures=false", "records.report=false", "tracking=none"]
"""What `whole` has already: most tests look at something else."""


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fl_app.main", *arguments]


def _run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return _run_with(folder, *SMALL, *QUICK, *overrides)


def _run_with(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return door.run(f"hydra.run.dir={folder}", *overrides, cwd=folder.parent)


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
    command = _command(f"hydra.run.dir={folder}", *SMALL)
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "completed: flic on inprocess, 8 rounds" in done.stdout
    assert "results in" in done.stdout
    return folder


def test_a_run_leaves_what_the_design_promises(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {"config.yaml", "rounds.jsonl", "summary.json", "checkpoint"} <= names
    assert {"figures", "snapshots", "report.html"} <= names
    summary = _summary(whole)
    assert set(summary) == {
        "status", "strategy", "engine", "seed", "rounds", "clients", "accuracy", "metrics",
        "communities", "time", "versions", "git", "restarts", "ended",
    }  # fmt: skip
    assert set(summary["communities"]) == {
        "count", "sizes", "ari", "pure_share", "silhouette", "assignment",
    }  # fmt: skip
    told = {"total": 8, "failed": 0, "rejected": 0, "removed": [], "names": None}
    told["groups"] = {str(client): client % 2 for client in range(8)}
    assert summary["clients"] == told
    assert summary["communities"]["ari"] == 1.0
    assert sorted(summary["communities"]["sizes"]) == [4, 4]
    assert summary["accuracy"]["before_clustering"] is not None
    assert len((whole / "rounds.jsonl").read_text().splitlines()) == 8


def test_the_number_of_workers_changes_nothing(whole: Path, tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "engine.workers=1")
    assert done.returncode == 0, done.stderr
    _assert_same_run(whole, tmp_path / "run")


def test_a_fused_cohort_finds_the_same_communities_and_models(whole: Path, tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "client.cohort=fused", "client.cohort_size=3")
    assert done.returncode == 0, done.stderr
    ours, theirs = _summary(whole)["communities"], _summary(tmp_path / "run")["communities"]
    assert ours["assignment"] == theirs["assignment"]
    pairs = zip(read_models(whole), read_models(tmp_path / "run"), strict=True)
    for alone, fused in pairs:
        for name in alone:
            np.testing.assert_allclose(alone[name], fused[name], atol=1e-3)


def _killed_run(folder: Path, *, after: int) -> Path:
    """Start a run that is killed once so many rounds are over; return its current checkpoint."""
    kill = "import os; os.kill(os.getpid(), 9)"
    assert _spoilt_run(folder, "Recorder.round", after + 1, kill).returncode == -signal.SIGKILL
    assert (folder / "rounds.jsonl").read_text().count("\n") == after
    return folder / "checkpoint" / "checkpoint.safetensors"


def _resumed(folder: Path) -> str:
    """Go on with a run to its end; return what the terminal showed."""
    done = door.run(f"resume={folder}", *QUICK, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_killed_run_is_resumed_to_the_identical_end(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _killed_run(folder, after=3)
    shown = _resumed(folder)
    assert re.search(r"^resuming after round \d from checkpoint.safetensors$", shown, re.MULTILINE)
    _assert_same_run(whole, folder)


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [_flipped, lambda content: content[:-1000], None])
def test_with_a_damaged_checkpoint_a_run_goes_on_from_the_one_before_to_the_identical_end(
    whole: Path, tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    folder = tmp_path / "run"
    current = _killed_run(folder, after=5)
    if not current.exists():  # killed after the former was renamed, and before the next was
        shutil.copy(current.with_name(PREVIOUS), current)
    content = current.read_bytes()
    current.unlink()
    if damage is not None:
        current.write_bytes(damage(content))
    shown = _resumed(folder)
    said = re.search(
        r"^checkpoint.safetensors is (missing|.*damaged \(.*\)): "
        r"resuming after round \d from checkpoint.previous.safetensors$",
        shown,
        re.MULTILINE,
    )
    assert said, shown
    assert said[0] in (folder / "run.log").read_text()
    _assert_same_run(whole, folder)


SPOILT = """
import errno
import numpy as np
from fl_app.main import main
from fl_app.records import checkpoint
from fl_app.records.recorder import Recorder

calls = 0
def spoilt(*given, kept={kept}, **more):
    global calls
    calls += 1
    if calls == {call}:
        {spoil}
    return kept(*given, **more)

{kept} = spoilt
main()
"""


def _spoilt_run(folder: Path, kept: str, call: int, spoil: str) -> subprocess.CompletedProcess[str]:
    """Run with something done at the given call of a function."""
    script = SPOILT.format(kept=kept, call=call, spoil=spoil)
    more = [*SMALL, *QUICK, f"hydra.run.dir={folder}"]
    return door.run(door.SCRIPT, script, *more, cwd=folder.parent)


@pytest.mark.parametrize(
    ("kept", "spoil", "reason"),
    [
        ("checkpoint.save", "raise OSError(errno.ENOSPC, 'No space left')", "No space left"),
        (
            "Recorder.checkpoint",
            "given[1]['models'] = np.full((1, 2), np.nan)",
            "array 'models' must be finite, got nan",
        ),
        ("Recorder.checkpoint", "given[2]['members'] = np.nan", "members of the state"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_is_told_and_the_run_goes_on(
    whole: Path, tmp_path: Path, kept: str, spoil: str, reason: str
) -> None:
    folder = tmp_path / "run"
    done = _spoilt_run(folder, kept, 2, spoil)
    assert done.returncode == 0, done.stderr
    assert "no checkpoint of round 4; the run continues" in done.stderr
    assert reason in done.stderr
    assert done.stderr.count("no checkpoint of") == 1
    _assert_same_run(whole, folder)


def test_an_interrupt_within_a_checkpoint_loses_and_repeats_no_round(
    whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    done = _spoilt_run(folder, "checkpoint.save", 2, "raise KeyboardInterrupt")
    assert done.returncode == 130
    assert _summary(folder)["rounds"] == 4
    assert "resuming after round 4 from checkpoint.safetensors" in _resumed(folder)
    _assert_same_run(whole, folder)


def test_a_wrong_change_on_resuming_is_refused_and_forgotten(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    refused = door.run(f"resume={folder}", "client.epochs=many", cwd=tmp_path)
    assert refused.returncode == 2
    assert _summary(folder)["status"] == "completed"
    assert (folder / "overrides.yaml").read_text() == (whole / "overrides.yaml").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_of_the_last_round_and_says_interrupted(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    more = ["rounds=500", "strategy.cluster_round=400", "records.checkpoint_every=400"]
    run = door.Opened([*SMALL, *QUICK, *more, f"hydra.run.dir={folder}"], tmp_path)
    rounds = folder / "rounds.jsonl"
    deadline = time.monotonic() + 300
    while not rounds.exists() or rounds.read_text().count("\n") < 3:
        assert not run.ended(), run.said()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(run.pid, number)
    done = run.wait()
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == f"interrupted; continue with fl-app resume={folder}"
    assert _summary(folder)["status"] == "interrupted"
    assert _summary(folder)["rounds"] == read(folder / "checkpoint").round >= 3
    assert not any((folder / name).exists() for name in (STOP, STOPPING))


def test_a_run_interrupted_before_its_first_checkpoint_starts_anew_when_resumed(
    whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(whole / "overrides.yaml", folder)
    shown = _resumed(folder)
    assert "resuming" not in shown
    _assert_same_run(whole, folder)


def test_a_corrupt_checkpoint_is_refused_with_the_reason(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "overrides.yaml").write_text((whole / "overrides.yaml").read_text())
    (folder / "checkpoint" / "checkpoint.safetensors").write_bytes(b"no checkpoint at all")
    done = door.run(f"resume={folder}", cwd=tmp_path)
    assert done.returncode == 2  # before anything is changed
    assert "checkpoint" in done.stderr


def test_all_configuration_errors_come_before_anything_starts(tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "strategy=nonsense", "client.epochs=many", "rounds=0")
    assert done.returncode == 2
    assert "3 configuration error(s)" in done.stderr
    assert not (tmp_path / "run").exists()


def test_wrong_data_are_told_with_the_other_errors_before_anything_starts(tmp_path: Path) -> None:
    done = _run(tmp_path / "run", "population.clients=2000", "client.learning_rate=-1")
    assert done.returncode == 2
    assert "2 configuration error(s)" in done.stderr
    assert "client.learning_rate must be greater than 0, got -1" in done.stderr
    assert "lower population.clients" in done.stderr
    assert not (tmp_path / "run").exists()


BREAKING = """
import sys
from dataclasses import replace
import numpy as np
from fl_app.client.local import LocalClient
from fl_app.main import main

fit = LocalClient.fit

def broken(self, start, **asked):
    if self.client_id == 3 and asked["server_round"] == 2:
        raise RuntimeError("out of memory")
    done = fit(self, start, **asked)
    if self.client_id in {bad}:
        return replace(done, model=np.full_like(done.model, np.nan))
    return done

LocalClient.fit = broken
main()
"""


def _broken_run(folder: Path, bad: str, *overrides: str) -> subprocess.CompletedProcess[str]:
    script = BREAKING.replace("{bad}", bad)
    more = [*SMALL, *QUICK, f"hydra.run.dir={folder}", *overrides]
    return door.run(door.SCRIPT, script, *more, cwd=folder.parent)


def test_clients_that_raise_or_reply_nonsense_are_named_and_left_out(tmp_path: Path) -> None:
    done = _broken_run(tmp_path / "run", "(5,)", "strategy.participation=1", "fallback=false")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    assert [record["failed"] for record in rounds[:3]] == [
        {}, {"3": "RuntimeError: out of memory"}, {},
    ]  # fmt: skip
    assert all(list(record["rejected"]) == ["5"] for record in rounds[:5])
    assert "parameters are not finite" in rounds[0]["rejected"]["5"]
    clients = _summary(tmp_path / "run")["clients"]
    assert (clients["failed"], clients["rejected"]) == (1, 5)  # replies, rounds 1 to 5
    for model in read_models(tmp_path / "run"):
        assert all(np.isfinite(part).all() for part in model.values())


def test_a_round_with_too_few_replies_is_skipped_and_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = _broken_run(folder, "()", "strategy.participation=1", "engine.min_success=8")
    assert done.returncode == 0, done.stderr
    assert "must have at least engine.min_success=8 valid replies, got 7 of 8" in done.stderr
    assert _summary(folder)["status"] == "completed"
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    (event,) = rounds[1]["events"]
    assert event["kind"] == "skipped"
    assert "client 3: RuntimeError: out of memory" in event["detail"]
    assert [record["round"] for record in rounds if record["train_loss"] is None] == [2]


def test_a_run_without_valid_replies_fails_with_a_checkpoint_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = _broken_run(folder, "range(8)", "strategy.participation=1")
    assert done.returncode == 1
    assert "parameters are not finite" in done.stderr
    assert _summary(folder)["status"] == "failed"
    assert (folder / "checkpoint" / "checkpoint.safetensors").exists()
    _resumed(folder)
    assert _summary(folder)["rounds"] == 8


def test_a_sweep_runs_every_combination(tmp_path: Path) -> None:
    kept = [override for override in SMALL if "cluster_round" not in override]
    swept = ["--multirun", *kept, *QUICK, "strategy=fedavg,fedmedian", "seed=0,1", "rounds=2"]
    done = door.run(*swept, f"hydra.sweep.dir={tmp_path / 'sweep'}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = {
        (summary["strategy"], summary["seed"])
        for summary in map(
            _summary, sorted(path for path in (tmp_path / "sweep").iterdir() if path.is_dir())
        )
    }
    assert found == {(name, seed) for name in ("fedavg", "fedmedian") for seed in (0, 1)}
    begun = [line for line in done.stdout.splitlines() if " of the sweep: " in line]
    assert [line.partition(":")[0] for line in begun] == [
        f"run {number} of the sweep" for number in (1, 2, 3, 4)
    ]
    assert begun[3].endswith("strategy=fedmedian seed=1")
    assert "| fedmedian |" in (tmp_path / "sweep" / "table.md").read_text()


@pytest.mark.parametrize("strategy", ["communities_wnn", "late", "ifca", "hierarchical"])
def test_every_method_looks_for_communities_and_leaves_a_whole_summary(
    tmp_path: Path, strategy: str
) -> None:
    kept = [override for override in SMALL if "cluster_round" not in override]
    late = ["strategy.cluster_round=5"] if strategy in ("late", "hierarchical") else []
    more = [*QUICK, f"strategy={strategy}", *late, "rounds=10"]
    done = _run_with(tmp_path / "run", *kept, *more)
    assert done.returncode == 0, done.stderr
    summary = _summary(tmp_path / "run")
    assert summary["strategy"] == strategy.removesuffix("_wnn")
    assert len(summary["communities"]["assignment"]) == 8
    assert summary["communities"]["ari"] is not None
    assert (tmp_path / "run" / "models.safetensors").exists()
