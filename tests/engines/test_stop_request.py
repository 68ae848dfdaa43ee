"""A request to stop: taken up at any time, answered at a safe point, never within a round's end."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.stop_request import STOP, STOPPING, TAKEN_UP_S

PATIENCE_S = 60.0


def taken_up(folder: Path) -> None:
    """Ask, and return once the loop knows."""
    stop_request.ask(folder)
    assert stop_request._loop.asked.wait(PATIENCE_S)


def test_nobody_asks_and_nothing_is_raised(tmp_path: Path) -> None:
    with stop_request.listening(tmp_path):
        stop_request.check()
        stop_request.wait(0.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("look", [stop_request.check, lambda: stop_request.wait(PATIENCE_S)])
def test_a_request_interrupts_at_the_next_look_and_leaves_no_file(
    tmp_path: Path, look: Callable[[], None]
) -> None:
    def loop() -> None:
        with stop_request.listening(tmp_path):
            taken_up(tmp_path)
            assert {path.name for path in tmp_path.iterdir()} == {STOPPING}
            look()

    with pytest.raises(KeyboardInterrupt):
        loop()
    assert list(tmp_path.iterdir()) == []
    stop_request.check()  # it was of that loop alone


def test_a_request_made_before_the_loop_listens_is_taken_up(tmp_path: Path) -> None:
    stop_request.ask(tmp_path)
    with stop_request.listening(tmp_path), pytest.raises(KeyboardInterrupt):
        stop_request.wait(PATIENCE_S)


def test_a_stop_that_is_held_off_comes_after_the_block_and_limits_the_evaluation(
    tmp_path: Path,
) -> None:
    with stop_request.listening(tmp_path):
        with stop_request.held():
            assert stop_request.latest() == float("inf")
            taken_up(tmp_path)
            stop_request.check()
            stop_request.wait(0.0)
            assert stop_request.latest() < float("inf")
        with pytest.raises(KeyboardInterrupt):
            stop_request.check()


def test_a_run_is_over_when_its_loop_has_stopped_or_nobody_listens(tmp_path: Path) -> None:
    stop_request.ask(tmp_path)
    assert stop_request.is_over(tmp_path, 0.0)  # its records have not begun
    (tmp_path / "rounds.jsonl").touch()
    assert not stop_request.is_over(tmp_path, 0.0)
    assert stop_request.is_over(tmp_path, TAKEN_UP_S + 1)
    (tmp_path / STOP).rename(tmp_path / STOPPING)
    assert not stop_request.is_over(tmp_path, TAKEN_UP_S + 1)
    (tmp_path / STOPPING).unlink()
    assert stop_request.is_over(tmp_path, 0.0)


def test_a_withdrawn_request_is_none(tmp_path: Path) -> None:
    stop_request.ask(tmp_path)
    (tmp_path / STOPPING).touch()
    stop_request.withdraw(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_clients_that_train_in_this_process_hold_no_stop(tmp_path: Path) -> None:
    app, trains, go_on = ClientApp(), threading.Event(), threading.Event()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        trains.set()
        assert go_on.wait(PATIENCE_S)
        return Message(RecordDict(), reply_to=message)

    def ask() -> None:
        assert trains.wait(PATIENCE_S)
        stop_request.ask(tmp_path)

    grid = InProcessGrid(app, nodes=3, run_config={}, workers=1)
    messages = [grid.create_message(RecordDict(), "train", n, "1") for n in grid.get_node_ids()]
    threading.Thread(target=ask).start()
    try:
        with stop_request.listening(tmp_path), pytest.raises(KeyboardInterrupt):
            grid.send_and_receive(messages)
    finally:
        grid.close()  # waits for nobody: the client still trains
        assert not go_on.is_set()
        go_on.set()
