"""What is found out before a run begins, apart from its settings."""

import errno
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from fl_app import launch, one_run
from fl_app.config import load
from fl_app.engines import deployment, simulation
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.processes import ProcessError
from fl_app.records import checkpoint, releases, run_state
from fl_app.records.checkpoint import FORMER, Checkpoint
from fl_app.records.names import CHECKPOINTS
from fl_app.records.reading import read_names
from fl_app.records.run_state import RunState
from fl_app.resumed_run import check_under_way
from fl_app.schema import ConfigError
from fl_app.server_wiring import strategy
from fl_app.strategies.state import save

SMALL = ["data=digits", "population=iid", "population.clients=2", "rounds=1", "strategy=fedavg"]


class BegunError(Exception):
    """The run would begin."""


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run end with BegunError where it would begin."""

    def begin(*_: object) -> None:
        raise BegunError

    monkeypatch.setattr(one_run, "launch", begin)


@pytest.fixture
def port(ends: None) -> Iterator[str]:
    """A setting of a run whose port for metrics is taken."""
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


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], "run/federation"),
        (["engine.folder=mine"], "mine"),
        (["engine.connection=of-others"], None),
        (["engine.folder=up", "engine.connection=fl-app"], "up"),
        (["engine.node_ids=list.json"], None),
    ],
)
def test_the_nodes_of_a_federation_of_ours_are_held_to_their_clients(
    words: list[str], place: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "up" / "home").mkdir(parents=True)
    (tmp_path / "up" / "home" / "config.toml").touch()
    config = load([*SMALL, "engine=deployment", *words])
    file = None if place is None else f"engine.node_ids='{tmp_path / place / 'nodes.json'}'"
    assert one_run._node_ids(config, Path("run")) == ([] if file is None else [file])
    assert one_run._node_ids(load(SMALL), Path("run")) == []


def test_a_run_that_goes_on_on_another_engine_leaves_the_settings_of_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ["engine.connection=fl-app", "engine.folder=up", "engine.restarts=2"]
    saved = [*SMALL, "engine=deployment", *places, "engine.sample_cap=4"]
    (tmp_path / "overrides.yaml").write_text(yaml.safe_dump(saved))
    given: list[list[str]] = []
    monkeypatch.setattr(one_run, "run", lambda overrides, *_, **__: given.append(overrides))
    for changes in ([], ["engine=deployment"], ["engine=inprocess"]):
        one_run.resume(tmp_path, changes)
    kept = [each for each in saved if each not in places]
    assert given == [saved, [*saved, "engine=deployment"], [*kept, "engine=inprocess"]]


def test_a_run_over_grpc_keeps_its_id_when_it_is_resumed(tmp_path: Path) -> None:
    config = load([*SMALL, "engine=deployment"])
    (given,) = one_run._id(config, tmp_path, resume=False)
    assert one_run._id(config, tmp_path, resume=False) != [given]
    assert one_run._id(load(SMALL), tmp_path, resume=False) == []
    assert one_run._id(config, tmp_path, resume=True) == []  # an earlier version started it
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(load([*SMALL, given]).resolved))
    assert one_run._id(config, tmp_path, resume=True) == [given]


@pytest.mark.parametrize(
    "name",
    [
        "clients/h.csv",
        "project/notes.txt",
        "config.yaml",
        "figures/accuracy.png",
        "points.safetensors",
    ],
)
def test_a_run_replaces_no_files_but_those_of_a_run(name: str, ends: None, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"with your own {name.partition('/')[0]}, which the run"):
        one_run.run(SMALL, tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_takes_the_folder_of_an_earlier_one_but_not_its_checkpoint(
    ends: None, tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(BegunError):
            one_run.run(SMALL, tmp_path)
        made = sorted(path.name for path in (tmp_path / CHECKPOINTS).glob("*"))
        checkpoint.write(tmp_path / CHECKPOINTS, Checkpoint(1, {}))
    assert made == [FORMER]


OF_A_RUN = (
    "rounds.jsonl", "models.safetensors", "serving.json", "points.safetensors", "report.html",
    "snapshots/round_00002.safetensors", "figures/similarity.png", "figures/similarity.pdf",
    "tensorboard/events.out.tfevents.1.host", "client_names.json", "config.yaml", "summary.json",
)  # fmt: skip
OF_THE_USER = ("notes.txt", "snapshots/mine.npz", "figures/poster.png", "tensorboard/mine.txt")


@pytest.mark.parametrize("resume", [False, True])
def test_a_new_run_keeps_no_results_of_an_earlier_one_and_the_files_of_the_user(
    resume: bool, ends: None, tmp_path: Path
) -> None:
    for name in ("overrides.yaml", *OF_A_RUN, *OF_THE_USER):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    if resume:
        (tmp_path / "config.yaml").write_text("{}")
        (tmp_path / "client_names.json").write_text("[]")
    with pytest.raises(BegunError):
        one_run.run([*SMALL, "records.report=false"], tmp_path, resume=resume)
    left = {name for name in (*OF_A_RUN, *OF_THE_USER) if (tmp_path / name).exists()}
    kept = {*OF_A_RUN, *OF_THE_USER} - {"summary.json"} if resume else {*OF_THE_USER}
    assert left - {"summary.json"} == kept


def test_what_clients_released_stays_spent_if_a_run_starts_again_from_its_beginning(
    ends: None, tmp_path: Path
) -> None:
    (tmp_path / "overrides.yaml").write_text(yaml.safe_dump(SMALL))
    (tmp_path / releases.FILE).write_text("{}\n")
    with pytest.raises(BegunError):
        one_run.resume(tmp_path, [])
    assert (tmp_path / releases.FILE).exists()
    with pytest.raises(BegunError):
        one_run.run(SMALL, tmp_path)
    assert not (tmp_path / releases.FILE).exists()


HOLDING = """
import sys
from pathlib import Path
from fl_app.records.output_folder import held

with held(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


def test_one_process_at_a_time_writes_a_run_into_a_folder(ends: None, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ConfigError, match=f"in which process {other.pid} runs; wait for"):
            one_run.run(SMALL, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        (tmp_path / "overrides.yaml").write_text(yaml.safe_dump(SMALL))
        (tmp_path / "rounds.jsonl").write_text("{}\n")  # it has no checkpoint yet
        with pytest.raises(ConfigError, match=f"in which process {other.pid} runs; wait for"):
            one_run.resume(tmp_path, [])
        other.kill()
    with pytest.raises(BegunError):
        one_run.run(SMALL, tmp_path)


def _stop_after_a_round(folder: Path) -> None:
    with pytest.raises(BegunError):
        one_run.run(SMALL, folder)
    checkpoint.write(folder / CHECKPOINTS, Checkpoint(1, *save(strategy(load(SMALL)).state)))


def test_settings_that_do_not_fit_the_checkpoint_are_not_kept(ends: None, tmp_path: Path) -> None:
    _stop_after_a_round(tmp_path)
    before = (tmp_path / "overrides.yaml").read_text()
    with pytest.raises(BegunError):  # before it has continued
        one_run.resume(tmp_path, ["rounds=2"])
    assert (tmp_path / "overrides.yaml").read_text() == before


def test_a_method_that_cannot_continue_the_state_is_named(ends: None, tmp_path: Path) -> None:
    _stop_after_a_round(tmp_path)
    former = {"strategy": {"_target_": "fl_app.strategies.fedavg.FedAvg"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(former))
    told = r"strategy must be that of the run, fl_app\.strategies\.fedavg\.FedAvg, whose state fl"
    with pytest.raises(ConfigError, match=told):
        one_run.resume(tmp_path, ["strategy=ifca"])


def _lose_a_field(file: Path) -> None:
    found = checkpoint.read(file.parent)
    del found.state["communities"]["members"]
    checkpoint.write(file.parent, found)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_lose_a_field, r"has no field 'communities\.members' of Communities; resume with"),
        (lambda file: file.write_bytes(b"\0" * 99), "no checkpoint in .* is intact"),
    ],
)
def test_a_run_whose_checkpoint_cannot_be_continued_keeps_its_results(
    spoil: Callable[[Path], None], why: str, ends: None, tmp_path: Path
) -> None:
    _stop_after_a_round(tmp_path)
    (tmp_path / "summary.json").write_text('{"status": "completed"}')
    spoil(tmp_path / CHECKPOINTS / checkpoint.FILE)
    with pytest.raises(ConfigError, match=why):
        one_run.resume(tmp_path, ["rounds=2"])
    assert (tmp_path / "summary.json").read_text() == '{"status": "completed"}'


def test_a_run_without_a_checkpoint_keeps_its_results(ends: None, tmp_path: Path) -> None:
    _stop_after_a_round(tmp_path)
    (tmp_path / "rounds.jsonl").write_text("{}\n")
    (tmp_path / "summary.json").write_text('{"status": "completed"}')
    (tmp_path / CHECKPOINTS / checkpoint.FILE).unlink()  # as on a full disk
    before = (tmp_path / "overrides.yaml").read_text()
    with pytest.raises(ConfigError, match="must have a checkpoint from which the run goes on, got"):
        one_run.resume(tmp_path, ["rounds=2"])
    assert (tmp_path / "summary.json").read_text() == '{"status": "completed"}'
    assert (tmp_path / "overrides.yaml").read_text() == before
    run_state.write(tmp_path, RunState(1, "", 5))
    check_under_way(tmp_path)  # it is under way, and only followed


def test_a_run_with_damaged_records_can_be_resumed(ends: None, tmp_path: Path) -> None:
    """The message on the damage says so; the loop writes the records of the checkpoint."""
    _stop_after_a_round(tmp_path)
    (tmp_path / "rounds.jsonl").write_text('{"round": 1, "pha\n')
    with pytest.raises(BegunError):
        one_run.resume(tmp_path, [])


def test_a_page_that_a_full_disk_does_not_take_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rounds.jsonl").write_text("{}\n")
    (tmp_path / "config.yaml").touch()

    def write(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "no room")  # there is some, but not for the page

    monkeypatch.setattr("fl_app.report.page.write_page", write)
    one_run._write_page(tmp_path)
    (said,) = caplog.records
    told = f"{OSError(errno.ENOSPC, 'no room')}; write it with fl-app report {tmp_path}"
    assert said.getMessage() == f"the report could not be written: {told}"
    assert not said.exc_info


@pytest.mark.parametrize(
    ("data", "target"),
    [("data.target=multilabel", "multilabel"), ("data.target=regression", "regression")],
)
def test_reports_of_classes_are_refused_before_a_run_without_classes(
    data: str, target: str, ends: None, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("x,y,z\n" + "1,0,1\n2,1,0\n" * 9)
    given = [
        "data=table", "data.file=rows.csv", f"data.root={tmp_path}", "data.label=[y,z]", data,
        f"task={target}", "network=mlp", "population=iid", "population.clients=2", "strategy=flux",
        "rounds=9", "strategy.cluster_round=3",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=f"asks for class_latent_moments .*, got {target}"):
        one_run.run(given, tmp_path / "run")
    with pytest.raises(BegunError):
        one_run.run([*given, "strategy.descriptor=data"], tmp_path / "run")


def test_clients_that_data_name_keep_their_ids(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("x,y\n" + "1,no\n2,yes\n" * 9)
    settings = [
        "data=client_files", f"data.root={tmp_path}", "data.label=y", "network=mlp", "rounds=1",
        "population=by_column", "population.clients=2", "strategy=fedavg", "records.figures=false",
        "records.report=false", "tracking=none", "client.epochs=1", "seed=1",
    ]  # fmt: skip
    one_run.run(settings, tmp_path / "run")
    before = read_names(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text("population: {_targ")  # torn by a power cut
    one_run.resume(tmp_path / "run", ["population.clients=4", "rounds=2"])
    after = read_names(tmp_path / "run")
    assert (after[:2], sorted(after)) == (before, [*"abcd"])
    assert after != sorted(after)  # the first two were drawn
