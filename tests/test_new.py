"""`fl-app new` writes a project whose tests pass as they are."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.supercore.utils import is_valid_name

sys.path.insert(0, str(Path(__file__).parent / "end_to_end"))
import door

from fl_app import new
from fl_app.config import ConfigError
from fl_app.main import COMMANDS

pytestmark = pytest.mark.waits
MASKED = """
import sys

sys.path.insert(0, "")
from heart_rates.app import client, server
from fl_app.engines.inprocess import InProcessGrid, app_context

words = "experiment=heart_rates strategy=fedavg strategy.participation=1.0 rounds=1 tracking=none"
words += " strategy.weighting=samples masking=secagg engine.largest_update=null"
words += " engine.clip_update=null records.report=false records.figures=false"
run = {"overrides": words + " records.folder=outputs/masked"}
server(InProcessGrid(client, nodes=4, run_config=run, workers=1), app_context(run))
"""
"""A run of the Flower app in the project, whose clients answer only under masks."""


def _outside(folder: Path, *words: str) -> str:
    """Run Python in a folder, as a user who has only installed the app."""
    quiet = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=quiet, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_tests_of_a_new_project_pass(tmp_path: Path) -> None:
    """Without those of the engines, which `end_to_end/test_engines.py` shows on a user's folder."""
    written = _outside(tmp_path, "-m", "fl_app", "new", "heart-rates")
    assert "fl-app --config-dir conf experiment=heart_rates" in written
    folder = tmp_path / "heart-rates"
    told = _outside(folder, "-m", "pytest", "-q", "-k", "not engine")
    assert re.search(r"^(6\d) passed", told, re.MULTILINE)
    done = door.run(door.SCRIPT, MASKED, cwd=folder)
    assert done.returncode == 0, done.stderr
    summary = json.loads((folder / "outputs" / "masked" / "summary.json").read_text())
    assert summary["status"] == "completed"


@pytest.mark.parametrize("folder", ["wards", "heart-rates", "heart_rates2", "a" * 32])
def test_flower_accepts_the_name_of_the_app(tmp_path: Path, folder: str) -> None:
    new.write(tmp_path / folder)
    form = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())
    assert is_valid_name(form["project"]["name"]) == (True, "")


def test_no_trace_of_the_template_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    files = new.write(folder)
    assert Path("mine/network.py") in files
    assert "outputs/" in (folder / ".gitignore").read_text().splitlines()  # not in a bundle
    assert all(new.NAME not in (folder / file).read_text() for file in files)
    assert {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()} == set(files)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("2nd", "digits, - and _, begin with a letter"),
        ("a" * 33, "at most 32 letters"),
        ("my project", "digits, - and _, begin with a letter"),
        ("import", "digits, - and _, begin with a letter"),
        ("null", "digits, - and _, begin with a letter"),
        ("wards_", "digits, - and _, begin with a letter"),
        ("conf", "must not be that of a folder of the project"),
        ("outputs", "must not be that of a folder of the project"),
        ("benchmark", "must not be that of an experiment of the app"),
        ("Byzantine-Paper", "must not be that of an experiment of the app"),
        ("json", "must not be that of an installed module"),
        ("torch", "must not be that of an installed module"),
        ("google", "must not be that of an installed module"),
        ("fl-app", "must not be that of an installed module"),
        ("full", "must not exist or be empty"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_and_left_alone(
    tmp_path: Path, name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match=rule):
        COMMANDS["new"]([str(tmp_path / name)])
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "thesis.txt"]


def test_a_project_that_is_there_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)  # as in the folder in which it was made
    COMMANDS["new"]([str(tmp_path / "twice")])
    with pytest.raises(ConfigError, match=r"must not exist or be empty, got .*twice"):
        COMMANDS["new"]([str(tmp_path / "twice")])


def test_a_project_beside_the_app_takes_no_name_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "twice" / "conf").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "checkout")  # as an editable install does
    assert new.write(tmp_path / "twice")


def test_it_wants_one_folder() -> None:
    with pytest.raises(ConfigError, match="new needs one folder"):
        COMMANDS["new"]([])
