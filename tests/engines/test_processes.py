"""The supervisor leaves nothing behind: on leaving, on an error, and when it is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fl_app.engines import processes, watchdog
from fl_app.engines.ports import free_ports
from fl_app.engines.processes import (
    ProcessError,
    Supervisor,
    kill_all,
    spawn,
    tail,
    wait_for_line,
    wait_for_port,
)

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="reading marks needs /proc"
)
DAEMON = "sleep 300 & setsid sleep 300 & echo started; wait"
"""A shell whose second child leaves the session, as Flower's SuperExec does."""


ENDS = """
import os, threading, time
from fl_app.engines.processes import OF_COMMANDS, kill_all_for_good, spawn
from fl_app.engines.watchdog import MARK

started = []

def again_and_again():
    while True:
        child = spawn(["sleep", "300"], env={**os.environ, MARK: OF_COMMANDS})
        started.append(child)

threading.Thread(target=again_and_again, daemon=True).start()
time.sleep(0.5)
kill_all_for_good()
print(len(started), OF_COMMANDS, flush=True)
os._exit(0)
"""
"""A program that ends while another of its threads starts processes."""


def start(supervisor, folder, script, name="shell"):
    return supervisor.start(name, ["bash", "-c", script], log=folder / f"{name}.log", cwd=folder)


def until(condition, timeout_s=120.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_leaving_stops_also_what_left_the_session(tmp_path):
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, DAEMON)
        wait_for_line(process, "started", timeout_s=120)
        until(lambda: len(watchdog.marked(supervisor.token)) == 3)
    assert watchdog.marked(supervisor.token) == []
    assert process.popen.returncode is not None


def fail_inside(supervisor, folder):
    with supervisor:
        wait_for_line(start(supervisor, folder, DAEMON), "started", timeout_s=120)
        raise ZeroDivisionError


def test_an_error_inside_stops_everything_and_is_passed_on(tmp_path):
    supervisor = Supervisor({"PATH": "/usr/bin:/bin"})
    with pytest.raises(ZeroDivisionError):
        fail_inside(supervisor, tmp_path)
    assert watchdog.marked(supervisor.token) == []


def test_what_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        stubborn = start(supervisor, tmp_path, "trap '' TERM; echo started; sleep 300 & wait; wait")
        wait_for_line(stubborn, "started", timeout_s=120)
        supervisor.end(stubborn, grace_s=0.3)
        assert stubborn.popen.returncode == -signal.SIGKILL


PARENT = """
import sys
from pathlib import Path
from fl_app.engines.processes import Supervisor, wait_for_line
folder = Path(sys.argv[1])
with Supervisor({"PATH": "/usr/bin:/bin"}, scratch=folder / "scratch") as supervisor:
    words = ["bash", "-c", sys.argv[2]]
    process = supervisor.start("shell", words, log=folder / "shell.log", cwd=folder)
    wait_for_line(process, "started", timeout_s=120)
    print(supervisor.token, flush=True)
    process.popen.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_parent_ends_everything(tmp_path, number):
    (tmp_path / "scratch").mkdir()
    words = [sys.executable, "-c", PARENT, str(tmp_path), DAEMON]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        token = parent.stdout.readline().strip()
        assert len(token) == 32
        assert watchdog.marked(token)
        parent.send_signal(number)
    until(lambda: not watchdog.marked(token))
    until(lambda: not (tmp_path / "scratch").exists())


def test_an_early_end_is_an_error_with_the_end_of_the_log(tmp_path):
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, "echo no such certificate; exit 7")
        with pytest.raises(ProcessError, match=r"(?s)shell.*code 7.*no such certificate"):
            wait_for_line(process, "ready", timeout_s=120)


def test_waiting_for_a_line_ends_with_the_timeout(tmp_path):
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, "sleep 300")
        with pytest.raises(ProcessError, match=r"write 'ready' within 0\.3 s"):
            wait_for_line(process, "ready", timeout_s=0.3)


def test_a_line_of_an_earlier_process_in_the_same_log_does_not_count(tmp_path):
    (tmp_path / "shell.log").write_text("ready\n")
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, "sleep 300")
        with pytest.raises(ProcessError):
            wait_for_line(process, "ready", timeout_s=0.3)


def test_a_port_is_awaited(tmp_path):
    (port,) = free_ports(1)
    server = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    with Supervisor({}) as supervisor:
        process = supervisor.start("web", server, log=tmp_path / "web.log", cwd=tmp_path)
        wait_for_port(process, port, timeout_s=120)
        assert process.alive


def test_tail_is_the_last_lines_and_empty_without_a_log(tmp_path):
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("a\nb\nc\n")
    assert tail(log, lines=2) == "b\nc"


def test_a_process_that_ends_starts_no_other_one(tmp_path):
    """A thread that starts a process again and again leaves none behind."""
    program = tmp_path / "ends.py"
    program.write_text(ENDS)
    found = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=120, check=True
    )
    count, token = found.stdout.split()
    assert int(count) > 1
    assert watchdog.marked(token) == []


def test_a_child_without_the_mark_is_killed_with_its_parent(tmp_path):
    """Ray's agents overwrite their environment with a title."""
    script = f"env --unset={watchdog.MARK} sleep 300 & echo started $!; wait"
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, script)
        wait_for_line(process, "started", timeout_s=120)
        child = int(process.output.split()[1])
        until(lambda: watchdog.MARK.encode() not in Path(f"/proc/{child}/environ").read_bytes())
        assert child in watchdog.marked(supervisor.token)
        kill_all()
        assert b"sleep" not in command_of(child)


def command_of(pid):
    """Return the command of a process; b"" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_kill_lets_others_start(tmp_path):
    kill_all()
    assert spawn(["true"]).wait() == 0


def test_a_process_that_was_noticed_to_have_ended_is_never_signalled_by_its_id(
    tmp_path, monkeypatch
):
    """Its id may be that of another one's group by then."""
    killed = []
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, "exit 0")
        until(lambda: not process.alive)
        monkeypatch.setattr(processes.os, "killpg", lambda group, _: killed.append(group))
        supervisor.end(process)
    assert killed == []


@pytest.mark.parametrize("by", [lambda supervisor, _: supervisor.stop(), Supervisor.end])
def test_what_an_ended_process_left_in_its_group_is_ended(tmp_path, by):
    with Supervisor({"PATH": "/usr/bin:/bin"}) as supervisor:
        process = start(supervisor, tmp_path, "sleep 300 & echo started")
        until(lambda: not process.alive)
        other = start(supervisor, tmp_path, "echo started; exec sleep 300", "other")
        wait_for_line(other, "started", timeout_s=120)
        assert len(watchdog.marked(supervisor.token)) == 2
        by(supervisor, process)
        rest = [other.popen.pid] if by is Supervisor.end else []
        until(lambda: watchdog.marked(supervisor.token) == rest)
        supervisor.end(other)
