"""A simulation whose Ray was too slow to start is started again."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fl_app.engines import flower
from fl_app.engines.flower import RunResult
from fl_app.engines.simulation import NOT_STARTED, of_ray, started

FINE, BROKEN = RunResult(flower.COMPLETED, "", 1), RunResult(flower.FAILED, "it failed", 1)
SLOW = f"Exception: {NOT_STARTED}. This could happen\nRuntimeError: An error was encountered.\n"


def _player(plays: list[tuple[RunResult, str]], log: Path) -> Callable[[], RunResult]:
    left: Iterator[tuple[RunResult, str]] = iter(plays)

    def play() -> RunResult:
        result, said = next(left)
        log.write_text(said)
        return result

    return play


@pytest.mark.parametrize(
    ("plays", "wanted"),
    [
        ([(FINE, "")], FINE),
        ([(FINE, SLOW)], FINE),
        ([(BROKEN, "ValueError: no data")], BROKEN),
        ([(BROKEN, SLOW), (BROKEN, SLOW), (FINE, "")], FINE),
        ([(BROKEN, SLOW), (BROKEN, "ValueError: no data")], BROKEN),
    ],
)
def test_only_a_run_that_ray_did_not_start_is_played_again(
    plays: list[tuple[RunResult, str]], wanted: RunResult, tmp_path: Path
) -> None:
    log = tmp_path / "flower.log"
    assert started(_player(plays, log), log) == wanted
    assert log.read_text() == plays[-1][1]


def test_a_machine_that_never_starts_ray_is_told_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "flower.log"
    result = started(_player([(BROKEN, SLOW)] * 4, log), log)
    assert not result.ok
    assert "within 30 s, got none in 4 attempts; stop other work" in result.detail


def test_clients_have_the_priority_of_their_run_unless_the_user_wants_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_worker_niceness", raising=False)
    assert of_ray(tmp_path, None) == {"RAY_TMPDIR": str(tmp_path), "RAY_worker_niceness": "0"}
    monkeypatch.setenv("RAY_worker_niceness", "5")
    assert of_ray(tmp_path, "a:1") == {"RAY_ADDRESS": "a:1", "RAY_worker_niceness": "5"}
