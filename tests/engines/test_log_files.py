"""Logs of processes that run for months stay small, and no line of them is torn."""

import errno
import shutil
from pathlib import Path

import pytest

from fl_app.engines import log_files
from fl_app.engines.processes import Supervisor


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(log_files, "MOST_BYTES", 10)
    return tmp_path / "superlink.log"


def test_the_writer_goes_on_at_the_beginning_of_the_emptied_log(log: Path) -> None:
    with log.open("ab", buffering=0) as writer:
        writer.write(b"0123456789")
        log_files.limit(log)
        assert not log_files.former(log).exists()
        writer.write(b"!")
        log_files.limit(log)
        assert log_files.former(log).read_bytes() == b"0123456789!"
        writer.write(b"next")
    assert log.read_bytes() == b"next"


def test_only_the_last_former_content_stays(log: Path) -> None:
    for sign in "ab":
        log.write_text(sign * 11)
        log_files.limit(log)
    assert log_files.former(log).read_text() == "b" * 11
    assert sorted(path.name for path in log.parent.iterdir()) == [
        "superlink.former.log",
        "superlink.log",
    ]


def test_a_log_that_somebody_removed_is_no_error(log: Path) -> None:
    log_files.limit(log)
    assert not log.exists()


def test_on_a_full_disk_the_log_is_emptied_without_a_copy(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log.write_text("a" * 11)
    log_files.limit(log)
    log.write_text("b" * 11)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    log_files.limit(log)
    assert log.read_text() == ""
    assert not log_files.former(log).exists()


def test_a_process_that_starts_begins_with_a_short_log(log: Path) -> None:
    log.write_text("x" * 11)
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = supervisor.start("echo", ["echo", "begun"], log=log, cwd=log.parent)
        assert process.popen.wait(60) == 0
        assert process.output == "begun\n"
    assert log.read_text() == "begun\n"
