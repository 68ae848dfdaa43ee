"""The launcher runs Flower's own command where no warm process of its version answers."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_app.engines import warm_clients, warm_process
from fl_app.engines.processes import Supervisor, wait_for_line
from fl_app.engines.warm_clients import WarmClients

sys.path.insert(0, str(Path(__file__).parent))

from launching import install, launched, stand_in

pytestmark = pytest.mark.skipif(not warm_clients.available(), reason="needs Linux")


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[WarmClients]:
    """A launcher whose warm process does not run."""
    folder = warm_clients.new_folder()
    found = WarmClients(folder)
    with Supervisor({}, scratch=folder):
        install(found, monkeypatch)
        yield found


def test_without_a_warm_process_flowers_command_runs_and_the_log_says_so_once(cold):
    done = launched(cold, "--token", "a b")
    assert (done.returncode, done.stdout) == (0, "own --token a b\n")
    assert done.stderr.count("no warm process starts this client") == 1
    assert launched(cold).stderr == ""


def answers(path: str, greeting: bytes) -> None:
    """Accept one connection, say `greeting`, read what comes, and end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def answer() -> None:
        with listener, listener.accept()[0] as connection:
            connection.sendall(greeting)
            if greeting:
                connection.recv(1)

    threading.Thread(target=answer, daemon=True).start()


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (json.dumps({"version": "0"}).encode() + b"\n", "got '0'"),
        (json.dumps({"version": warm_process.version()}).encode() + b"\n", ""),
        (b"", "got None"),
        (b"[1]\n", "must be an object"),
        (b"not json\n", "Expecting value"),
    ],
)
def test_one_of_another_version_or_that_dies_in_between_is_passed_by(cold, greeting, why):
    answers(cold.command[-1], greeting)
    done = launched(cold, "here")
    assert done.stdout == "own here\n"
    assert "no warm process starts this client" in done.stderr
    assert why in done.stderr


def test_a_client_outlives_its_warm_process_and_still_tells_its_code(cold):
    with Supervisor(dict(os.environ)) as supervisor:
        log = cold.folder / "warm.log"
        process = supervisor.start("warm", stand_in(cold), log=log, cwd=cold.folder)
        wait_for_line(process, "ready", timeout_s=120)
        words = [str(cold.commands / "flwr-clientapp")]
        words += ["print('begun', flush=True); sys.stdin.read(); sys.exit(4)"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline() == b"begun\n"
            process.popen.kill()
            process.popen.wait()
            client.stdin.close()
        assert client.returncode == 4
        assert launched(cold, "next").stdout == "own next\n"
