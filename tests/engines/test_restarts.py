"""A lost run is submitted again from its checkpoint; any other end is an end."""

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fl_app.engines import flower, restarts
from fl_app.engines.flower import COMPLETED, Connection, RunResult, RunStatus
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.processes import ProcessError
from fl_app.engines.restarts import UNREACHABLE, LostRuns, Supervised, lost
from fl_app.records import run_state
from fl_app.records.run_state import RunState

KILLED = RunResult(flower.FAILED, "", why="No heartbeat received from the task")
DONE = RunResult(COMPLETED, "")
Outcome = RunResult | BaseException | int
"""How a submission ends; a number is that of rounds that it records before it is killed."""


class Scene(list[str]):
    """What was submitted, with how each submission ends."""

    def __init__(self, folder: Path, outcomes: Sequence[Outcome]) -> None:
        self.folder, self.outcomes = folder, list(outcomes)
        self.followed: list[int] = []
        self.state = "finished:failed"

    def submit(self, overrides: str) -> int:
        self.append(overrides)
        return len(self)

    def follow(self, run_id: int) -> RunResult:
        self.followed.append(run_id)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        if isinstance(outcome, int):
            (self.folder / "rounds.jsonl").write_text("{}\n" * outcome)
            return KILLED
        return outcome

    def run(self, limit: int = 2, tick: Callable[[], None] = lambda: None) -> RunResult:
        return Supervised(
            folder=self.folder,
            limit=limit,
            submit=self.submit,
            look=lambda run_id: RunStatus(self.state, ""),
            follow=self.follow,
            on_tick=tick,
        ).run("rounds=4 a='b c'")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scene]:
    monkeypatch.setattr(restarts, "_WAIT_S", 0.0)
    return lambda *outcomes: Scene(tmp_path, outcomes)


@pytest.mark.parametrize(
    ("status", "why", "expected"),
    [
        (flower.FAILED, "No heartbeat received from the task", True),
        (flower.FAILED, "Task failed with unknown error.", True),  # SIGTERM of the ServerApp
        (flower.FAILED, "ServerApp failed with exception: 3 channels", False),
        (flower.FAILED, "ServerApp failed with exception: stopped on request", False),
        (flower.FAILED, "ServerApp failed with exception: [Errno 28] No space left", True),
        (flower.STOPPED, "", False),
        (COMPLETED, "", False),
        (flower.UNKNOWN, "", True),
        (UNREACHABLE, "", True),
    ],
)
def test_what_counts_as_lost(status: str, why: str, expected: bool) -> None:
    assert lost(status, why) is expected


def test_a_killed_run_is_submitted_again_with_the_same_settings(
    scene: Callable[..., Scene],
) -> None:
    played = scene(2, DONE)
    assert played.run() == DONE
    assert shlex.split(played[0]) == ["rounds=4", "a=b c"]
    assert shlex.split(played[1]) == ["rounds=4", "a=b c", "records.restarts=1"]
    state = run_state.read(played.folder)
    assert state is not None
    assert (state.run_id, state.restarts, state.unfinished, state.rounds) == (2, 1, False, 2)


def test_only_losses_without_a_further_round_count(scene: Callable[..., Scene]) -> None:
    played = scene(1, 2, 3, 4, DONE)
    assert played.run(limit=1).ok
    assert len(played) == 5
    assert "records.restarts=4" in played[-1]


def test_a_run_that_is_lost_in_vain_is_given_up(scene: Callable[..., Scene], caplog) -> None:
    played = scene(3, 3, 1, DONE)  # a resumed run first forgets the rounds after its checkpoint
    assert played.run(limit=2) == KILLED
    assert len(played) == 3
    assert "lost 3 times without a further round (engine.restarts=2)" in caplog.text
    state = run_state.read(played.folder)
    assert state is not None
    assert not state.unfinished
    never = scene(3, DONE)
    assert never.run(limit=0) == KILLED


@pytest.mark.parametrize(
    "end",
    [
        DONE,
        RunResult(flower.STOPPED, ""),
        RunResult(flower.FAILED, "", why="ServerApp failed with exception: no data"),
    ],
)
def test_any_other_end_is_the_end(scene: Callable[..., Scene], end: RunResult) -> None:
    played = scene(end)
    assert played.run() == end
    assert len(played) == 1
    assert run_state.unfinished([played.folder]) == []


def test_ctrl_c_is_an_end_and_a_kill_is_not(scene: Callable[..., Scene]) -> None:
    stopped = scene(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert run_state.unfinished([stopped.folder]) == []
    killed = scene(SystemExit())  # leaves what a killed command leaves
    with pytest.raises(SystemExit):
        killed.run()
    assert run_state.unfinished([killed.folder]) == [killed.folder]


def test_a_run_that_outlives_its_command_or_a_silent_superlink_is_followed(
    scene: Callable[..., Scene],
) -> None:
    first = scene(SystemExit())
    with pytest.raises(SystemExit):
        first.run()
    again = scene(ProcessError("the SuperLink must answer"), DONE)
    again.state = "running"
    assert again.run().ok
    assert (again.followed, list(again)) == ([1, 1], [])


def test_a_superlink_that_stays_away_ends_the_wait(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(restarts, "_WAIT_S", 0.0)
    played = Scene(tmp_path, [ProcessError("the SuperLink must answer")] * 3)

    def silent(run_id: int) -> RunStatus:
        raise FlowerError("flwr ls did not answer")

    result = Supervised(
        folder=tmp_path, limit=2, submit=played.submit, look=silent, follow=played.follow,
        on_tick=lambda: None,
    ).run("")  # fmt: skip
    assert (result.status, result.detail) == (UNREACHABLE, "the SuperLink must answer")
    assert len(played) == 1


def test_one_process_at_a_time_continues_a_run(scene: Callable[..., Scene]) -> None:
    played = scene(DONE)
    with run_state.claimed(played.folder) as mine:
        assert mine
        with pytest.raises(FlowerError, match=r"one process at a time .* fl-app watch"):
            played.run()
    assert played.run().ok


def test_a_service_submits_lost_runs_again_and_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = {
        1: RunStatus(flower.FAILED, "No heartbeat received from the task"),
        2: RunStatus("running", ""),
        3: RunStatus(flower.STOPPED, ""),
        4: RunStatus(flower.UNKNOWN, "a new database"),
    }
    submitted: list[str] = []

    def submit(
        connection: Connection, app: Path, *, overrides: str, composed: str, federation: object
    ) -> int:
        submitted.append(overrides)
        assert composed == overrides.upper()
        assert (app / "pyproject.toml").exists()
        return 10 + len(submitted)

    def under_way(connection: Connection) -> list[int]:
        return [number for number, each in statuses.items() if "finished" not in each.state]

    monkeypatch.setattr(flower, "status", lambda connection, run_id: statuses[run_id])
    monkeypatch.setattr(flower, "under_way", under_way)
    monkeypatch.setattr(flower, "submit", submit)
    for run_id in statuses:
        run_state.write(
            tmp_path / "outputs" / f"run{run_id}", RunState(run_id, f"seed={run_id}", 5)
        )
    lasting = RunState(9, "", 5, unfinished=False)
    run_state.write(tmp_path / "outputs" / "demo" / "over", lasting)
    conf = Path(restarts.__file__).parents[2] / "conf"
    service = LostRuns(Connection("here"), [tmp_path / "outputs"], conf, str.upper)
    told = service.look()
    assert submitted == ["seed=1 records.restarts=1", "seed=4 records.restarts=1"]
    assert [line.partition(": ")[2] for line in told] == [
        "submitted again as run 11, restart 1",
        "the run has ended as finished:stopped",
        "submitted again as run 12, restart 1",
    ]
    statuses |= {11: RunStatus("pending", ""), 12: RunStatus("running", "")}
    assert service.look() == []


def test_a_damaged_folder_is_told_once_and_stops_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(connection: Connection, run_id: int) -> RunStatus:
        if run_id == 2:
            raise FlowerError("flwr ls cannot be read")
        return RunStatus(flower.UNKNOWN, "")

    def submit(connection: Connection, app: Path, **given: object) -> int:
        submitted.append(str(given["overrides"]))
        return 10

    submitted: list[str] = []
    monkeypatch.setattr(flower, "under_way", lambda connection: [])
    monkeypatch.setattr(flower, "status", status)
    monkeypatch.setattr(flower, "submit", submit)
    for run_id in (1, 2, 3):
        run_state.write(tmp_path / f"run{run_id}", RunState(run_id, f"seed={run_id}", 5))
    (tmp_path / "run1" / "rounds.jsonl").write_text("garbage\n{}\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / run_state.FILE).write_text("[" * 200_000)
    conf = Path(restarts.__file__).parents[2] / "conf"
    service = LostRuns(Connection("here"), [tmp_path], conf, str.upper)
    told = service.look()
    assert submitted == ["seed=3 records.restarts=1"]
    assert f"{tmp_path}/run1: the run is not continued while this holds: ValueError" in told[1]
    assert "line 1 of" in told[1]
    assert told[2].endswith("FlowerError: flwr ls cannot be read")
    monkeypatch.setattr(LostRuns, "_continue", lambda *given: 1 / 0)
    assert len(service.look()) == 3
    assert service.look() == []


def test_a_silent_superlink_is_asked_once_a_look_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def under_way(connection: Connection) -> list[int]:
        asked.append(connection.name)
        raise FlowerError("flwr ls did not answer")

    monkeypatch.setattr(flower, "under_way", under_way)
    service = LostRuns(Connection("here"), [tmp_path], tmp_path, str.upper)
    assert service.look() == []
    assert asked == []
    for run_id in (1, 2, 3):
        run_state.write(tmp_path / f"run{run_id}", RunState(run_id, "", 5))
    assert [service.look(), service.look()] == [["lost runs wait: flwr ls did not answer"], []]
    assert asked == ["here", "here"]
    monkeypatch.setattr(flower, "under_way", lambda connection: [1, 2, 3])
    assert service.look() == []
    monkeypatch.setattr(flower, "under_way", under_way)
    assert len(service.look()) == 1
    monkeypatch.setattr(flower, "under_way", lambda connection: [])
    monkeypatch.setattr(flower, "status", lambda connection, run_id: RunStatus("pending", ""))
    assert service.look() == []  # they were submitted after the list was read
    assert len(run_state.unfinished([tmp_path])) == 3


def test_a_state_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert run_state.read(tmp_path) is None
    for text in ("{", "[]", json.dumps({"run_id": 1})):
        (tmp_path / run_state.FILE).write_text(text)
        assert run_state.read(tmp_path) is None
    assert not run_state.superseded(tmp_path, 1)
    run_state.write(tmp_path, RunState(2, "", 5))
    assert run_state.superseded(tmp_path, 1)
    assert not run_state.superseded(tmp_path, 2)
    run_state.finish(tmp_path, 1)
    assert run_state.unfinished([tmp_path]) == [tmp_path]
    run_state.finish(tmp_path)
    assert run_state.unfinished([tmp_path]) == []


def test_a_full_disk_stops_nobody_who_follows_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    run_state.write(tmp_path, RunState(1, "", 5))
    monkeypatch.setattr(run_state, "replacing", full)
    run_state.finish(tmp_path)
    assert "run.json could not be written: [Errno 28]" in caplog.text
    assert run_state.unfinished([tmp_path]) == [tmp_path]
