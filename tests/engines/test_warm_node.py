"""A SuperNode of one's own has a warm process, and its service starts it again when it must."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_app.engines import flower_commands, warm_clients, warm_node, watchdog
from fl_app.engines.processes import Supervisor
from fl_app.engines.warm_clients import WarmClients

sys.path.insert(0, str(Path(__file__).parent))

from launching import until
from test_stale_reply import IGNORED, REFUSED, START

pytestmark = pytest.mark.skipif(not warm_clients.available(), reason="needs Linux")
REPO = Path(__file__).resolve().parents[2]
STAYS = "exec sleep 301"


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """Return a supervisor whose warm process only sleeps."""
    monkeypatch.setattr(WarmClients, "command", ["sleep", "300"])
    monkeypatch.setattr(flower_commands, "executable", lambda _: "/nowhere/flwr-clientapp")
    monkeypatch.setattr(warm_node, "LOOK_S", 0.05)
    with Supervisor(dict(os.environ), scratch=warm_clients.new_folder()) as found:
        yield found


def run(supervisor: Supervisor, *lines: str) -> int:
    return warm_node._run(["sh", "-c", "\n".join(lines)], supervisor)


def said(lines: list[str]) -> str:
    return f"printf '%s\\n' {' '.join(map(shlex.quote, lines))}"


def test_output_and_status_are_those_of_the_supernode(supervisor, capfdbinary):
    assert run(supervisor, "command -v flwr-clientapp", "echo to stderr >&2", "exit 7") == 7
    told = capfdbinary.readouterr()
    assert told.out.decode().splitlines() == [
        str(supervisor.scratch / "commands" / "flwr-clientapp"), "to stderr",
    ]  # fmt: skip
    assert told.err == b""


def test_a_supernode_that_ends_unasked_without_a_reason_was_refused(supervisor, capfd):
    assert run(supervisor, "echo 'INFO : Starting Flower SuperNode'") == 0
    assert "its clock at most 5 s ahead of the SuperLink's" in capfd.readouterr().err


def test_a_command_that_only_shows_its_options_was_not_refused(supervisor, capfd):
    assert run(supervisor, "echo usage: flower-supernode") == 0
    assert capfd.readouterr().err == ""


def test_a_command_that_is_not_there_is_told(capfd):
    assert warm_node.main(["no-such-command"]) == warm_node.NOT_FOUND
    assert "must be a command that is there, got no-such-command" in capfd.readouterr().err


def test_a_killed_supernode_has_the_status_of_the_shell(supervisor):
    assert run(supervisor, "kill -9 $$") == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([said([*IGNORED, *START]), STAYS], "a reply that no run awaits"),
        ([said([f"ERROR :     {REFUSED}"]), STAYS], "it has left the SuperLink"),
        (["python3 -c 'import os, time; os.fork() or os._exit(0); time.sleep(301)'"], "SuperExec"),
    ],
)
def test_a_supernode_that_cannot_go_on_ends_for_its_service(supervisor, capfd, lines, why):
    # sh replaces itself, so that the child that has ended is that of the SuperNode
    assert run(supervisor, *lines[:-1], f"exec {lines[-1].removeprefix('exec ')}") == 75
    assert why in capfd.readouterr().err
    left = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in watchdog.marked(supervisor.token)]
    assert len(left) == 1  # the warm process, which the supervisor ends
    assert b"301" not in left[0]


def test_the_warm_process_is_started_again(supervisor, monkeypatch, capfd):
    monkeypatch.setattr(WarmClients, "command", ["sh", "-c", "echo no memory; exit 1"])
    monkeypatch.setattr(warm_node, "FIRST_WAIT_S", 0.1)
    process = warm_node.WarmProcess(supervisor, WarmClients(supervisor.scratch))
    started = [process._process.popen]
    for command in (["sh", "-c", "echo no memory; exit 1"], ["sleep", "300"]):
        monkeypatch.setattr(WarmClients, "command", command)
        until(lambda: process.check() or process._process.popen not in started)
        started.append(process._process.popen)
    assert process._process.alive
    told = capfd.readouterr().err.splitlines()
    assert [each.split("again in ")[1] for each in told] == ["0.1 s: no memory", "0.2 s: no memory"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(number):
    words = [sys.executable, "-m", "fl_app.engines.warm_node", "sh", "-c"]
    with subprocess.Popen(
        [*words, f"echo $FL_APP_SUPERVISOR; command -v flwr-clientapp; {STAYS}"],
        stdout=subprocess.PIPE, text=True, cwd=REPO,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        token, launcher = (program.stdout.readline().strip() for _ in range(2))
        until(lambda: len(watchdog.marked(token)) >= 2)  # the SuperNode and the warm process
        program.send_signal(number)
    assert program.returncode == (128 + number if number == signal.SIGTERM else -number)
    until(lambda: not watchdog.marked(token))
    until(lambda: not Path(launcher).exists())


def test_where_no_process_can_be_forked_it_becomes_the_supernode(monkeypatch, capfd):
    called: list[object] = []
    monkeypatch.setattr(warm_clients, "available", lambda: False)
    monkeypatch.setattr(os, "execvp", lambda *words: called.append(words) or sys.exit(9))
    with pytest.raises(SystemExit):
        warm_node.main(["flower-supernode", "--insecure"])
    assert called == [("flower-supernode", ["flower-supernode", "--insecure"])]
    assert "each client imports its libraries by itself" in capfd.readouterr().err
    assert warm_node.main([]) == warm_node.main(["--help"]) == 2
    assert "python -m fl_app.engines.warm_node flower-supernode" in capfd.readouterr().err


def test_it_imports_only_the_standard_library():
    program = (
        "import sys; before = set(sys.modules); import fl_app.engines.warm_node\n"
        "names = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'fl_app'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPO
    )
    assert done.stdout.strip() == "[]"
