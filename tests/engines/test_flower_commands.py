"""Flower's commands go by a path that Flower and Ray can read."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from fl_app.engines import flower_commands
from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError, commands


@pytest.fixture(params=["my work", "a,b"])
def spaced(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment whose path Flower and Ray would split; it leads to this one."""
    prefix = tmp_path / request.param
    prefix.symlink_to(sys.prefix)
    _be_in(prefix, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return prefix


def _be_in(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process be one of an environment."""
    site = Path(str(distribution("flwr").locate_file("")))
    found = distribution("flwr")
    python, moved = Path(sys.executable), prefix / site.relative_to(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(prefix / python.relative_to(sys.prefix)))
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(type(found), "locate_file", lambda _, path: moved / path)
    commands.cache_clear()


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> "object":
    yield
    monkeypatch.undo()
    commands.cache_clear()


def test_a_usual_environment_has_its_own() -> None:
    assert commands() == Path(sys.executable).parent


def test_a_command_runs_in_the_environment_by_the_link(spaced: Path, tmp_path: Path) -> None:
    found = commands()
    assert found.is_relative_to(tmp_path / "cache")
    assert Path(os.readlink(found.parent / "environment")) == spaced
    names = {path.name for path in found.iterdir()}
    assert {"flwr", "flower-superlink", "flwr-simulation"} <= names
    assert Connection("here").environment()["PATH"].startswith(f"{found}{os.pathsep}")
    told = subprocess.run(
        [found / "flower-superexec", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("Flower version: ")
    python = (found / "flwr").read_text().splitlines()[0].removeprefix("#!")
    code = "import flwr, sys; print(flwr.__file__); print(sys.executable)"
    told = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert all(line.startswith(str(found.parent)) for line in told.stdout.splitlines())


def test_it_is_made_again_for_a_moved_environment(spaced: Path, tmp_path: Path) -> None:
    first = commands()
    (first / "flwr").write_text("torn")
    (first.parent / "environment").unlink()
    (first.parent / "environment").symlink_to(tmp_path / "former")
    commands.cache_clear()
    assert commands() == first
    assert "import" in (first / "flwr").read_text()
    assert Path(os.readlink(first.parent / "environment")) == spaced


def test_commands_are_never_run_from_a_folder_that_others_can_change(
    spaced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "fl-app").mkdir(parents=True)
    (tmp_path / "cache" / "fl-app").chmod(0o777)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "no such, folder"))
    with pytest.raises(FlowerError, match=r"must be a folder of your own, .* set XDG_CACHE_HOME"):
        commands()


def test_flower_outside_of_the_environment_cannot_be_linked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = type(distribution("flwr"))
    monkeypatch.setattr(found, "locate_file", lambda _, path: tmp_path / "my work" / path)
    commands.cache_clear()
    with pytest.raises(FlowerError, match=r"without spaces and commas, got .*my work/flwr; "):
        commands()


def test_a_command_that_is_not_installed_is_told() -> None:
    with pytest.raises(FlowerError, match="no-such-command must be installed next to"):
        flower_commands.executable("no-such-command")
