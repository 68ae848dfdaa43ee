"""The audit log shows every later change of itself."""

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from fl_app import oversight
from fl_app.records import audit
from fl_app.records.audit import FILE, FIRST, AuditLog, check, digest_of, fingerprint


@pytest.fixture
def path(tmp_path: Path) -> Path:
    log = AuditLog(tmp_path)
    log.append("started", by="mary")
    log.append("joined", clients={"0": "node 7"})
    AuditLog(tmp_path).append("rejected", who="1", why='loss must be finite, got "é"')
    return tmp_path / FILE


def test_a_log_that_two_processes_wrote_is_one_chain(path: Path) -> None:
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["event"] for entry in entries] == ["started", "joined", "rejected"]
    assert [entry["before"] for entry in entries] == [FIRST, *(e["hash"] for e in entries[:-1])]
    found = check(path)
    assert (found.lines, found.last, found.problems) == (3, entries[-1]["hash"], ())
    assert path.stat().st_mode & 0o777 == 0o600


def test_processes_that_write_by_turns_continue_one_chain(path: Path, monkeypatch) -> None:
    first, second = AuditLog(path.parent), AuditLog(path.parent)
    for log in (first, second, second, first):
        log.append("joined")
    assert check(path).problems == ()
    assert check(path).lines == 7
    with path.open("rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        monkeypatch.setattr(audit, "_PAUSE_S", 0.0)
        first.append("ended")
    assert check(path).lines == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [lines[0].replace("mary", "eve"), *lines[1:]], "line 1 must have the hash"),
        (lambda lines: [lines[0], lines[2]], "line 2 must name the hash of the line before"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1 must name the hash"),
        (lambda lines: [*lines, lines[2]], "line 4 must name the hash"),
        (lambda lines: [lines[0], "no entry", *lines[1:]], "line 2 must be an object"),
        (lambda lines: [*lines, "[1]"], "line 4 must be an object"),
        (lambda lines: [*lines, "[" * 100_000], "line 4 must be an object"),
        (lambda lines: [*lines, '{"hash":"ab"}'], "line 4 must be an object"),
        (
            lambda lines: [lines[0].replace("mary", "\\ud800"), *lines[1:]],
            "line 1 must have the hash",
        ),
        (
            lambda lines: [lines[0].replace("{", '{"by":"eve",'), *lines[1:]],
            "line 1 must have the t",
        ),
        (lambda lines: [lines[0].replace(":", ": ", 1), *lines[1:]], "line 1 must have the text"),
        (lambda lines: [lines[0] + "\r", *lines[1:]], "line 1 must have the text"),
    ],
)
def test_a_changed_removed_moved_or_added_line_is_named(path: Path, change, said: str) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n", newline="")
    assert any(problem.startswith(said) for problem in check(path).problems)
    with pytest.raises(SystemExit, match="1"):
        oversight.check_audit([str(path.parent), "--show"])


@pytest.mark.parametrize("end", ["[" * 100_000, '{"hash":"\\ud800"}', ""])
def test_a_log_goes_on_after_any_line(path: Path, end: str) -> None:
    path.write_text(f"{path.read_text()}{end}\n")
    AuditLog(path.parent).append("ended", why="half a pair: \ud800")
    assert [problem[:6] for problem in check(path).problems] == ["line 4"]


def test_missing_last_lines_are_found_by_a_hash_that_was_noted(path: Path) -> None:
    last = check(path).last
    assert check(path, last=last).problems == ()
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert check(path).problems == ()
    (problem,) = check(path, last=last).problems
    assert f"the last hash must be {last}" in problem


def test_a_line_that_a_crash_cut_is_named_and_the_chain_goes_on(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'{"event":"join')
    log = AuditLog(path.parent)
    log.append("ended")
    assert [json.loads(x).get("event") for x in path.read_text().splitlines()[4:]] == [
        "torn line",
        "ended",
    ]
    assert check(path).problems == ()
    path.write_text(path.read_text().replace('"join\n', '"left\n'))
    assert check(path).problems != ()


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog) -> None:
    log = AuditLog(tmp_path)
    log.path.mkdir()
    log.append("started")
    assert "audit log" in caplog.text


def test_a_line_for_which_there_is_no_room_leaves_no_part_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, whole = AuditLog(path.parent), path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        log.append("lost")
    assert path.read_bytes() == whole
    log.append("ended")
    assert check(path).problems == ()
    assert check(path).lines == 4


def test_the_command_tells_whole_from_broken(path: Path, capsys) -> None:
    oversight.check_audit([str(path.parent), "--show"])
    told = capsys.readouterr().out
    assert 'joined {"clients": {"0": "node 7"}}' in told
    assert "whole: 3 lines, last hash " in told
    path.write_text(path.read_text().replace("mary", "eve"))
    with pytest.raises(SystemExit, match="1"):
        oversight.check_audit([str(path.parent)])
    assert "broken: 3 lines" in capsys.readouterr().out
    with pytest.raises(ValueError, match="must be a folder with"):
        oversight.check_audit([str(path.parent / "elsewhere")])


def test_files_are_named_by_their_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc\n")
    assert digest_of(tmp_path / "a").startswith("edeaaff3f1774ad2")
    assert fingerprint(tmp_path / "a").startswith("SHA256:ba7816bf8f01cfea")
