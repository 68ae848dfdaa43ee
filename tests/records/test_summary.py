"""summary.json keeps its contract: every field there, nothing else, nothing but JSON."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fl_app.records.environment import git_commit, keep_commit, versions
from fl_app.records.summary import build_summary, read_summary, write_summary

PARTS: dict[str, Any] = {
    "status": "completed",
    "strategy": "flic",
    "engine": "inprocess",
    "seed": 0,
    "rounds": 200,
    "restarts": 2,
    "ended": None,
    "clients": {
        "total": 100,
        "failed": 0,
        "rejected": 0,
        "removed": [],
        "names": None,
        "groups": None,
    },
    "accuracy": {"mean": 0.98, "std": 0.01, "before_clustering": 0.75},
    "metrics": {"f1": {"mean": 0.9, "std": 0.02}},
    "communities": {
        "count": 5,
        "sizes": [20, 20, 20, 20, 20],
        "ari": 1.0,
        "pure_share": 1.0,
        "silhouette": 0.6,
        "assignment": {"0": 0},
    },
    "time": {"total_s": 2.0, "training_s": 1.5, "server_s": 0.5},
}


def test_the_contract_to_the_letter(tmp_path: Path) -> None:
    write_summary(tmp_path, build_summary(**PARTS))
    found = json.loads((tmp_path / "summary.json").read_text())
    assert list(found) == [*PARTS, "versions", "git"]
    assert {name: found[name] for name in PARTS} == PARTS
    assert found["versions"] == versions()
    assert found["versions"]["flwr"].startswith("1.")
    assert isinstance(found["git"], str)
    assert read_summary(tmp_path) == found


def test_a_section_that_does_not_apply_keeps_its_fields() -> None:
    found = build_summary(**PARTS | {"communities": None, "accuracy": None})
    assert found["communities"] == dict.fromkeys(PARTS["communities"])
    assert found["accuracy"] == {"mean": None, "std": None, "before_clustering": None}


def test_nan_becomes_null_and_client_ids_strings(tmp_path: Path) -> None:
    accuracy = PARTS["accuracy"] | {"std": float("nan")}
    communities = PARTS["communities"] | {"assignment": {7: 1}}
    write_summary(
        tmp_path, build_summary(**PARTS | {"accuracy": accuracy, "communities": communities})
    )
    text = (tmp_path / "summary.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["accuracy"]["std"] is None
    assert json.loads(text)["communities"]["assignment"] == {"7": 1}


@pytest.mark.parametrize("section", ["clients", "accuracy", "communities", "time"])
def test_an_absent_and_an_unknown_field_are_named(section: str) -> None:
    absent = next(iter(PARTS[section]))
    changed = {k: v for k, v in PARTS[section].items() if k != absent} | {"extra": 1}
    with pytest.raises(ValueError, match=f"{section}.*absent: {absent}, unknown: extra"):
        build_summary(**PARTS | {section: changed})


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="completed, interrupted, failed, got 'done'"):
        build_summary(**PARTS | {"status": "done"})


def test_an_unfinished_run_has_no_summary(tmp_path: Path) -> None:
    assert read_summary(tmp_path) is None


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_git_names_the_commit_and_whether_files_differ(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("1")
    assert git_commit(tmp_path) == ""
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    assert git_commit(tmp_path) == ""
    git(tmp_path, "commit", "-qm", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert git_commit(tmp_path) == head
    (tmp_path / "code.py").write_text("2")
    assert git_commit(tmp_path) == f"{head}-dirty"


def test_code_that_the_repository_does_not_track_has_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-qm", "empty", "--allow-empty")
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "code.py").write_text("1")
    assert git_commit(installed) == ""


def test_a_copy_for_other_machines_knows_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_commit(tmp_path)
    assert git_commit(tmp_path) == git_commit()
    monkeypatch.setattr("fl_app.records.environment.git_commit", lambda: "2ab4-dirty")
    keep_commit(tmp_path)
    assert git_commit(tmp_path) == "2ab4-dirty"


def test_the_versions_name_python_and_mark_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fl_app.records.environment.PACKAGES", ("numpy", "no-such-package-here"))
    found = versions()
    assert str(found["python"]).startswith("3.")
    assert found["no-such-package-here"] is None
