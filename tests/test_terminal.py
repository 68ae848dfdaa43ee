"""The output in the terminal may end before a run."""

from pathlib import Path

import pytest

from fl_app import terminal

FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is always full")
def test_a_full_disk_behind_the_output_is_told_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with FULL.open("w") as output:
        monkeypatch.setattr("sys.stdout", output)
        console = terminal.console()
        for _ in range(2):
            console.print("round=1")
    (line,) = caplog.messages
    assert line.startswith("the output cannot be written any more, the run goes on: ")


def test_a_closed_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    terminal.console().print("round=1")


def test_a_closed_pipe_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise AssertionError("nothing was written")

        def fileno(self) -> int:
            return -1

    monkeypatch.setattr("sys.stdout", Pipe())
    with pytest.raises(BrokenPipeError):
        terminal.console().file.write("round=1")
