"""What is found out before a run begins, apart from its settings."""

import socket
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fl_app import launch, one_run
from fl_app.engines import deployment, simulation
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.processes import ProcessError
from fl_app.records import run_state
from fl_app.records.run_state import RunState
from fl_app.schema import ConfigError

SMALL = ["data=digits", "population=iid", "population.clients=2", "rounds=1", "strategy=fedavg"]


class BegunError(Exception):
    """The run would begin."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A setting of a run whose port for metrics is taken."""

    def begin(*_: object) -> None:
        raise BegunError

    monkeypatch.setattr(one_run, "launch", begin)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"metrics.port={listening.getsockname()[1]}"


@pytest.mark.parametrize("engine", ["inprocess", "simulation", "deployment", "on a federation"])
def test_a_port_that_is_taken_is_told_before_anything_is_made(
    engine: str, port: str, tmp_path: Path
) -> None:
    words = [f"engine={engine}"]
    if engine == "on a federation":
        (tmp_path / "here" / "home").mkdir(parents=True)
        (tmp_path / "here" / "home" / "config.toml").touch()
        words = ["engine=deployment", "engine.connection=x", f"engine.folder={tmp_path / 'here'}"]
    with pytest.raises(ConfigError, match=r"metrics\.port must be free on 127\.0\.0\.1, got"):
        one_run.run([*SMALL, *words, port], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_port_of_a_server_elsewhere_is_its_own(port: str, tmp_path: Path) -> None:
    words = ["engine=deployment", "engine.connection=x", f"engine.folder={tmp_path}"]
    with pytest.raises(BegunError):
        one_run.run([*SMALL, *words, port], tmp_path / "run")


def test_a_run_that_goes_on_has_its_port_itself(port: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run_state.write(tmp_path / "run", RunState(7, "", 5))
    with pytest.raises(BegunError):
        one_run.run([*SMALL, "engine=deployment", port], tmp_path / "run")


@pytest.mark.parametrize("engine", [deployment, simulation])
@pytest.mark.parametrize("error", [ProcessError, FlowerError])
def test_an_engine_that_does_not_start_is_a_failed_run_and_no_bug(
    engine: ModuleType, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("superlink must keep running")

    name = engine.__name__.rpartition(".")[2]
    monkeypatch.setattr(engine, f"run_{name}", fail)
    with pytest.raises(launch.RunFailedError, match="superlink must keep running"):
        one_run.run([*SMALL, f"engine={name}"], tmp_path / "run")
