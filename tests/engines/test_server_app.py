"""What the ServerApp notes of a run on real nodes, for those that continue it."""

import errno
import shlex
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid
from flwr.superlink.grid import InMemoryGrid
from httpx import ConnectTimeout

from fl_app import server_app
from fl_app.config import load
from fl_app.engines import flower
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.loop import RoundLoop
from fl_app.engines.lost_connection import LostConnectionError
from fl_app.engines.restarts import lost
from fl_app.ingress.rejection import RejectionError
from fl_app.records import run_state
from fl_app.records.reading import read_overrides
from fl_app.records.run_state import RunState
from fl_app.schema import ConfigError


class RealGrid:
    """Stands for the Grid of a SuperLink, which is never used."""


def noted(folder: Path, grid: object, raised: BaseException | None = None) -> None:
    """Run the block of a run with id 7 that ends with `raised`."""
    words = [f"records.folder='{folder}'", "engine=deployment", "engine.restarts=3"]
    words += ["records.restarts=2"]
    given: Any = {"overrides": " ".join(words)}
    context = Context(7, 0, {}, RecordDict(), given)
    with server_app._noted(load(words), cast(Grid, grid), context):
        state = run_state.read(folder)
        assert state is None or state.unfinished
        if raised is not None:
            raise raised


def test_a_run_that_flower_started_is_known_until_it_ends(tmp_path: Path) -> None:
    noted(tmp_path, RealGrid())
    state = run_state.read(tmp_path)
    assert state is not None
    assert (state.run_id, state.limit, state.restarts, state.unfinished) == (7, 3, 2, False)
    assert f"records.folder='{tmp_path}'" in state.overrides


def test_an_error_is_an_end_and_an_interrupt_is_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no data"):
        noted(tmp_path / "error", RealGrid(), ValueError("no data"))
    with pytest.raises(KeyboardInterrupt):
        noted(tmp_path / "interrupt", RealGrid(), KeyboardInterrupt())
    with pytest.raises(OSError, match="No space"):
        noted(tmp_path / "full", RealGrid(), OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="quota"):
        noted(tmp_path / "quota", RealGrid(), OSError(errno.EDQUOT, "Disk quota exceeded"))
    with pytest.raises(ConnectTimeout):
        noted(tmp_path / "lost", RealGrid(), ConnectTimeout("The handshake operation timed out"))
    unfinished = [tmp_path / each for each in ("full", "interrupt", "lost", "quota")]
    assert run_state.unfinished([tmp_path]) == unfinished


def test_a_process_that_was_replaced_does_not_end_the_run_of_the_other(tmp_path: Path) -> None:
    later = RunState(8, "rounds=9", 5)

    def replace() -> None:
        with server_app._noted(load([f"records.folder='{tmp_path}'"]), cast(Grid, RealGrid()), ctx):
            run_state.write(tmp_path, later)
            raise ValueError("after the other has started")

    ctx = Context(7, 0, {}, RecordDict(), {"overrides": ""})
    with pytest.raises(ValueError, match="the other"):
        replace()
    assert run_state.read(tmp_path) == later


def test_the_engine_is_the_one_that_runs_unless_the_run_names_one() -> None:
    real, simulated = cast(Grid, RealGrid()), InMemoryGrid.__new__(InMemoryGrid)
    found = server_app.on_engine(real, "rounds=90 a='b c'")
    assert found == "engine=deployment rounds=90 'a=b c'"
    assert load(found.split()[:2]).engine.round_timeout_s == 600
    assert server_app.on_engine(real, "engine=inprocess") == "engine=inprocess"
    assert server_app.on_engine(simulated, "rounds=3") == "engine=simulation rounds=3"
    assert server_app.on_engine(simulated, "engine=inprocess") == "engine=inprocess"
    inside = InProcessGrid.__new__(InProcessGrid)
    assert server_app.on_engine(inside, "rounds=3") == "rounds=3"


def test_a_simulation_is_not_continued(tmp_path: Path) -> None:
    noted(tmp_path, InMemoryGrid.__new__(InMemoryGrid))
    assert run_state.read(tmp_path) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("attack=label_flip attack.target=77", "attack.target"),
        ("privacy=local_dp privacy.noise_multiplier=8 privacy.epsilon=1", "costs epsilon"),
        (
            "attack=label_flip attack.target=77 privacy=sample_dp network=mobilenet",
            r"2 configuration error(.|\n)*attack\.target(.|\n)*BatchNorm",
        ),
    ],
)
def test_a_simulation_of_flower_begins_with_all_configuration_errors(
    words: str, told: str, tmp_path: Path
) -> None:
    given = {"overrides": f"{words} records.folder='{tmp_path}'"}
    context = Context(7, 0, {}, RecordDict(), cast(Any, given))
    with pytest.raises(ConfigError, match=told):
        server_app.StoppableApp()(InMemoryGrid.__new__(InMemoryGrid), context)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("told", [KeyboardInterrupt(), ConfigError(["rounds must be 1"])])
def test_the_log_of_flower_shows_no_code_before_a_sentence(
    told: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise told

    monkeypatch.setattr(server_app, "of_run", fails)
    context = Context(7, 0, {}, RecordDict(), {"overrides": ""})
    with pytest.raises((server_app.RunStoppedError, ConfigError)) as raised:
        server_app.StoppableApp()(cast(Grid, RealGrid()), context)
    error = raised.value
    assert error.__suppress_context__
    assert error.__cause__ is None
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:] == ["__call__"]


def test_a_lost_superlink_is_told_so_that_the_run_is_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise ConnectTimeout("The handshake operation timed out")

    monkeypatch.setattr(server_app, "of_run", fails)
    context = Context(7, 0, {}, RecordDict(), {"overrides": ""})
    with pytest.raises(LostConnectionError) as raised:
        server_app.StoppableApp()(cast(Grid, RealGrid()), context)
    assert lost(flower.FAILED, f"ServerApp failed with exception: {raised.value}")
    assert not lost(flower.FAILED, "ServerApp failed with exception: no data")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("shapes do not fit")

    monkeypatch.setattr(server_app, "of_run", fails)
    context = Context(7, 0, {}, RecordDict(), {"overrides": ""})
    with pytest.raises(ValueError, match="shapes") as raised:
        server_app.StoppableApp()(cast(Grid, RealGrid()), context)
    assert raised.traceback[-1].name == "fails"


@pytest.mark.parametrize("name", ["config.yaml", "checkpoint"])
def test_flowers_own_command_replaces_no_files_but_those_of_a_run(
    tmp_path: Path, name: str
) -> None:
    config = load([f"records.folder='{tmp_path}'"])
    (tmp_path / name).write_text("mine")
    with (
        pytest.raises(ConfigError, match=f"with your own {name}, which the run would replace"),
        server_app._own_folder(config),
    ):
        pass
    assert (tmp_path / name).read_text() == "mine"


def left_behind(folder: Path) -> set[str]:
    """Leave files of an earlier run and of the user, and return their names."""
    (folder / "snapshots").mkdir()
    names = {"rounds.jsonl", "run.json", "snapshots/round_00003.safetensors", "snapshots/mine.txt"}
    for name in names:
        (folder / name).touch()
    return names


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_flowers_own_command_begins_without_the_results_of_an_earlier_run(tmp_path: Path) -> None:
    left_behind(tmp_path)
    with server_app._own_folder(load([f"records.folder='{tmp_path}'"])):
        assert files_of(tmp_path) == {".lock", "run.json", "snapshots/mine.txt"}


@pytest.mark.parametrize(
    "setting", ["records.resume=true", "records.restarts=1", "records.started_by=me"]
)
def test_a_run_that_goes_on_or_that_fl_app_has_started_keeps_its_results(
    tmp_path: Path, setting: str
) -> None:
    names = left_behind(tmp_path)
    with server_app._own_folder(load([f"records.folder='{tmp_path}'", setting])):
        assert files_of(tmp_path) - {".lock"} == names


def test_two_runs_of_flowers_own_command_do_not_share_a_folder(tmp_path: Path) -> None:
    words = [f"records.folder='{tmp_path}'"]
    code = "import sys; from fl_app.records.output_folder import held\n"
    code += "with held(__import__('pathlib').Path(sys.argv[1])): print(flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with (
            pytest.raises(ConfigError, match=f"in which process {other.pid} runs"),
            server_app._own_folder(load(words)),
        ):
            pass
        other.communicate(b"\n")


@pytest.mark.parametrize(("engine", "superseded"), [("deployment", True), ("inprocess", False)])
def test_only_a_run_over_grpc_is_superseded_by_a_later_submission(
    tmp_path: Path, engine: str, superseded: bool
) -> None:
    run_state.write(tmp_path, RunState(8, "", 3))
    given: Any = {"overrides": f"engine={engine} records.folder='{tmp_path}'"}
    loop = server_app.server_fn(Context(7, 0, {}, RecordDict(), given)).server
    assert isinstance(loop, RoundLoop)
    assert loop.recorder.superseded() == superseded


def test_the_log_of_a_run_that_is_submitted_again_says_from_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(server_app, "log", lambda _, text, *words: told.append(text % words))
    overrides = f"engine=deployment records.folder='{tmp_path}'"
    for more in ("", " records.restarts=1"):
        given: Any = {"overrides": overrides + more}
        loop = server_app.server_fn(Context(7, 0, {}, RecordDict(), given)).server
        loop.recorder.checkpoint({"models": np.ones((1, 3), np.float32)}, {})
    results = f"results of this run: {tmp_path.resolve()}"
    assert told == [results, results, "resuming after round 0 from checkpoint.safetensors"]


def test_nodes_are_held_to_a_list_that_can_be_read(tmp_path: Path) -> None:
    words = f"engine=deployment engine.node_ids='{tmp_path}/ids' records.folder='{tmp_path}/run'"
    given: Any = {"overrides": words}
    context = Context(7, 0, {}, RecordDict(), given)
    with pytest.raises(ConfigError, match=r"- engine.node_ids: the file of node ids must be JSON"):
        server_app.server_fn(context)
    (tmp_path / "ids").write_text('{"4": "1234"}')
    loop = server_app.server_fn(context).server
    assert isinstance(loop, RoundLoop)
    assert loop.messenger.introducer.owners is not None
    assert loop.messenger.introducer.owners.client_of("1234") == 4
    with pytest.raises(RejectionError, match=r"the node must be in engine.node_ids=.*, got 7"):
        loop.messenger.introducer.owners.client_of("7")


@pytest.mark.parametrize(
    ("attack", "planted"), [("none", set()), ("minus_grad attack.clients=[1,3]", {1, 3})]
)
def test_only_clients_with_the_attack_of_the_run_may_say_that_they_are_malicious(
    tmp_path: Path, attack: str, planted: set[int]
) -> None:
    given: Any = {"overrides": f"attack={attack} records.folder='{tmp_path}'"}
    loop = server_app.server_fn(Context(7, 0, {}, RecordDict(), given)).server
    assert isinstance(loop, RoundLoop)
    assert loop.messenger.introducer.planted == planted


def test_a_run_warns_of_settings_without_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = f"engine.clip_update=9 engine.largest_update=5 records.folder='{tmp_path}'"
    given: Any = {"overrides": words}
    server_app.server_fn(Context(7, 0, {}, RecordDict(), given))
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith("engine.clip_update=9 has hardly any effect")


def _begun(folder: Path, *more: str) -> None:
    words = ["rounds=30", "population.groups=2", f"records.folder={folder}", *more]
    given: Any = {"overrides": shlex.join(words)}
    loop = server_app.server_fn(Context(7, 0, {}, RecordDict(), given)).server
    assert isinstance(loop, RoundLoop)
    loop.recorder.begin()


def test_the_settings_of_a_run_of_flowers_own_command_stay_with_it(tmp_path: Path) -> None:
    _begun(tmp_path / "flwr")
    assert read_overrides(tmp_path / "flwr") == ["rounds=30", "population.groups=2"]
    _begun(tmp_path / "fl-app", "records.started_by=me")  # it writes them by itself
    assert read_overrides(tmp_path / "fl-app") is None
