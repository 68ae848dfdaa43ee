"""A signal to a program: the first asks, a second ends it, and nothing holds its end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fl_app.engines import signals

PROGRAM = """
import sys, threading, time
from pathlib import Path
from fl_app.engines import signals

folder = Path(sys.argv[1])
signals.PATIENCE_S = signals.EXIT_S = 0.5
signals.answer()

def said(name):
    return lambda: (folder / name).touch()

def ready():
    print("ready", flush=True)

def until_asked():
    while not signals.asked():
        time.sleep(0.01)

with signals.answered():
{body}
"""
FOREVER = "threading.Thread(target=threading.Event().wait).start()"
"""A thread that Python would wait for."""
OF_RUN = "with signals.of_run(ask=said('asked'), last=said('last')):"
BEFORE_A_RUN = """
    {forever}
    ready()
    time.sleep(600)
"""
IN_A_RUN = """
    {forever}
    {of_run}
        signals.PATIENCE_S = 50  # on a busy machine it takes a while to be interrupted
        try:
            ready()
            time.sleep(600)
        except KeyboardInterrupt:
            said("interrupted")()
            raise
"""
DEFERRED = """
    {of_run}
        with signals.deferred():
            ready()
            until_asked()
            time.sleep(2 * signals.PATIENCE_S)
            said("whole")()
        said("never")()
"""
SWALLOWED = """
    {of_run}
        while True:
            try:
                ready()
                time.sleep(600)
            except KeyboardInterrupt:
                pass
"""
LEFT_BEHIND = """
    {of_run}
        {forever}
    ready()
    sys.exit(3)
"""
HURRIED = """
    {of_run}
        with signals.deferred():
            ready()
            until_asked()
            signals.HURRY_S = 0.1
            done = signals.patiently(threading.Event().wait, 600, hurried=signals.asked)
            said("left out" if not done else "done")()
"""


def started(folder: Path, body: str) -> "subprocess.Popen[str]":
    """Start a program and return once it is ready."""
    text = PROGRAM.format(body=body.format(forever=FOREVER, of_run=OF_RUN))
    words = [sys.executable, "-c", text, str(folder)]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (BEFORE_A_RUN, set()),
        (IN_A_RUN, {"asked", "interrupted"}),
        (DEFERRED, {"asked", "whole"}),
        (SWALLOWED, {"asked", "last"}),
        (HURRIED, {"asked", "left out"}),
    ],
    ids=["before a run", "in a run", "deferred", "swallowed", "hurried"],
)
def test_one_signal_ends_the_program_with_130(
    tmp_path: Path, number: signal.Signals, body: str, said: set[str]
) -> None:
    process = started(tmp_path, body)
    process.send_signal(number)
    assert process.wait(60) == 130
    assert {path.name for path in tmp_path.iterdir()} == said


BROKEN = """
    {of_run}
        try:
            ready()
            time.sleep(600)
        except KeyboardInterrupt:
            raise LookupError("a bug after the stop") from None
"""


def test_a_bug_after_a_signal_is_told_with_its_traceback(tmp_path: Path) -> None:
    process = started(tmp_path, BROKEN)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert told.startswith("stopping;")
    assert told.endswith("LookupError: a bug after the stop\n")


TWICE = """
    {of_run}
        with signals.deferred():
            ready()
            until_asked()
            ready()
            time.sleep(600)
"""


def test_a_second_signal_ends_the_program_at_once_with_its_last_things(tmp_path: Path) -> None:
    process = started(tmp_path, TWICE)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(2 * signals.ONE_PRESS_S)  # sooner it is one press
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert {path.name for path in tmp_path.iterdir()} == {"asked", "last"}


def test_what_holds_the_end_of_python_does_not_hold_that_of_the_program(tmp_path: Path) -> None:
    assert started(tmp_path, LEFT_BEHIND).wait(60) == 3


def test_a_call_that_ends_in_time_is_done_and_raises_what_it_raises() -> None:
    calls: list[int] = []
    assert signals.patiently(lambda: calls.append(1), 60, hurried=lambda: False)
    assert calls == [1]
    with pytest.raises(ZeroDivisionError):
        signals.patiently(lambda: 1 // 0, 60, hurried=lambda: False)
