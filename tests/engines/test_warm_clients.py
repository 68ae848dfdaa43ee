"""A federation has a warm process of its own, starts it again, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app.engines import federation as federations
from fl_app.engines import warm_clients, watchdog
from fl_app.engines.warm_clients import WarmClients

sys.path.insert(0, str(Path(__file__).parent))

from launching import install, stand_in, until

pytestmark = pytest.mark.skipif(not warm_clients.available(), reason="needs Linux")
PARENT = """
import json, os, subprocess, sys
from pathlib import Path
from fl_app.engines.processes import Supervisor, wait_for_line
folder, command, launcher, program = json.loads(sys.argv[1])
with Supervisor(dict(os.environ), scratch=Path(folder)) as supervisor:
    log = Path(folder) / "log"
    warm = supervisor.start("warm", command, log=log, cwd=Path(folder))
    wait_for_line(warm, "ready", timeout_s=120)
    client = supervisor.start("client", [launcher, program], log=log, cwd=Path(folder))
    wait_for_line(client, "begun", timeout_s=120)
    print(supervisor.token, flush=True)
    client.popen.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind_when_the_parent_ends(monkeypatch, number):
    found = WarmClients(warm_clients.new_folder())
    install(found, monkeypatch)
    program = "import time; print('begun', flush=True); time.sleep(300)"
    sought = str(found.commands / "flwr-clientapp")
    given = json.dumps([str(found.folder), stand_in(found), sought, program])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, given],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        token = parent.stdout.readline().strip()
        marked = watchdog.marked(token)
        assert len(marked) >= 3  # the warm process, the launcher, the client
        parent.send_signal(number)
    until(lambda: not watchdog.marked(token))
    until(lambda: not found.folder.exists())


def test_a_federation_starts_its_warm_process_again(tmp_path, monkeypatch):
    monkeypatch.setattr(federations, "BACK_OFF_S", 0.1)
    federation = federations.Federation(tmp_path, nodes=1, warm=True)
    federation.supervisor.scratch = warm_clients.new_folder()
    with federation.supervisor as supervisor:
        federation._start_warm(WarmClients(federation.supervisor.scratch))
        (member,) = federation.members
        path = supervisor.environment["PATH"].split(os.pathsep)
        assert Path(path[0], "flwr-clientapp").exists()
        sock = Path(member.command[-1])
        until(sock.exists)
        former = member.process.popen
        former.kill()
        former.wait()
        until(lambda: federation.check() or member.process.popen is not former)
        assert (federation.restarts, member.process.alive) == (1, True)
    assert watchdog.marked(supervisor.token) == []


def test_without_fork_or_by_choice_clients_start_as_flower_does(tmp_path, monkeypatch):
    assert federations.Federation(tmp_path, nodes=1, warm=True).warm
    assert not federations.Federation(tmp_path, nodes=1, warm=False).warm
    monkeypatch.setattr(warm_clients.sys, "platform", "darwin")
    assert not federations.Federation(tmp_path, nodes=1, warm=True).warm
