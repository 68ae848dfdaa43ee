"""A fork of the warm process is the process that Flower would have started."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import torch

from fl_app.engines import launcher, warm_clients, warm_process
from fl_app.engines.processes import Supervisor, wait_for_line
from fl_app.engines.warm_clients import WarmClients
from fl_app.run_config import carried

sys.path.insert(0, str(Path(__file__).parent))

from launching import install, launched, stand_in, until

pytestmark = pytest.mark.skipif(not warm_clients.available(), reason="needs Linux")
REPO = Path(__file__).resolve().parents[2]
ARGUMENTS = """
import json, os
print(json.dumps([sys.argv, os.getcwd(), os.environ["COLOUR"], sys.stdin.read(), os.getpid()]))
print("to stderr", file=sys.stderr)
"""
DRAWS = """
import random, numpy, torch
print(random.random(), numpy.random.rand(), torch.rand(1).item())
"""
NUMERIC = """
import numpy, torch
a = numpy.arange(250_000, dtype=float).reshape(500, 500) / 250_000
b = torch.from_numpy(a)
print(float(abs((b @ b).numpy() - a @ a).max()) < 1e-6)
"""
WAITS = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
print(os.getpid(), flush=True)
for _ in range(3000):
    time.sleep(0.1)  # a signal just before one long sleep would be handled only after it
"""
CALLS = """
import grpc
with grpc.insecure_channel(sys.argv[2]) as channel:
    print(channel.unary_unary("/echo/echo")(b"heard").decode())
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmClients]:
    folder = warm_clients.new_folder()
    found = WarmClients(folder)
    patch = pytest.MonkeyPatch()
    install(found, patch)
    patch.undo()
    with Supervisor(dict(os.environ), scratch=folder) as supervisor:
        process = supervisor.start("warm", stand_in(found), log=folder / "warm.log", cwd=folder)
        wait_for_line(process, "ready", timeout_s=120)
        yield found


def test_a_client_gets_arguments_folder_environment_and_stdio(warm, tmp_path):
    given = {**os.environ, "COLOUR": "blue", "FLWR_HOME": "elsewhere"}
    done = launched(warm, ARGUMENTS, "a b", "'c", input="asked", cwd=tmp_path, env=given)
    told = json.loads(done.stdout)
    assert told[:-1] == [
        ["flwr-clientapp", ARGUMENTS, "a b", "'c"], str(tmp_path), "blue", "asked",
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "to stderr\n")
    again = launched(warm, ARGUMENTS, cwd=tmp_path, env=given, input="")
    assert json.loads(again.stdout)[-1] != told[-1]


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no model')", 1, "no model"),
        ("raise ZeroDivisionError", 1, "ZeroDivisionError"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'left', file=sys.stderr)", 0, "left"),
    ],
)
def test_the_exit_code_is_that_of_the_client(warm, program, code, error):
    done = launched(warm, program)
    assert (done.returncode, done.stdout) == (code, "")
    assert error in done.stderr


def test_clients_draw_different_numbers_from_the_global_generators(warm):
    one, two = (launched(warm, DRAWS).stdout.split() for _ in range(2))
    assert len({*one, *two}) == 6


def test_a_client_computes_and_talks_grpc(warm):
    assert launched(warm, NUMERIC).stdout == "True\n"
    handler = grpc.unary_unary_rpc_method_handler(lambda said, _: said)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("echo", {"echo": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        done = launched(warm, CALLS, f"127.0.0.1:{port}", timeout=120)
        assert done.stdout == "heard\n", done.stderr
    finally:
        server.stop(None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 7), (signal.SIGKILL, -9)])
def test_a_signal_to_the_launcher_reaches_the_client(warm, number, code):
    words = [str(warm.commands / "flwr-clientapp"), WAITS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert pid != process.pid
        process.send_signal(number)
    assert process.returncode == code
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_signal_before_the_launcher_knows_its_client_is_passed_on_too(tmp_path):
    path = str(tmp_path / "socket")
    words = [sys.executable, "-I", "-S", launcher.__file__, path, "1", "/bin/false"]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        client, process = subprocess.Popen(["sleep", "300"]), subprocess.Popen(words)
        try:
            connection, _ = listening.accept()
            connection.sendall(b'{"version": "1"}\n')
            assert connection.recv(1_000_000).endswith(b"\n")  # the request, so a client may run
            process.send_signal(signal.SIGTERM)
            connection.sendall(b'{"pid": %d}\n' % client.pid)
            assert client.wait(30) == -signal.SIGTERM
            connection.sendall(b'{"code": 7}\n')
            assert process.wait(30) == 7
        finally:
            for each in (client, process):
                each.kill()
                each.wait()


def test_the_warm_process_keeps_nothing_of_its_clients(warm):
    pid = launched(warm, "import os; print(os.getppid())").stdout.strip()
    tasks = Path("/proc", pid, "task")
    until(lambda: not tasks.joinpath(pid, "children").read_text())  # nor one that has ended
    until(lambda: not any("pidfd" in each for each in open_files(pid)))
    until(lambda: sum("socket" in each for each in open_files(pid)) == 1)  # where it listens
    assert not any("nvidia" in each for each in open_files(pid))
    assert len(list(tasks.iterdir())) == 1


def open_files(pid: str) -> list[str]:
    found = []
    for each in Path("/proc", pid, "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return found


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTHONPATH"])
def test_a_variable_that_acts_on_imports_must_be_the_same(warm, name):
    (warm.folder / launcher.TOLD).unlink(missing_ok=True)
    done = launched(warm, "sys.exit(3)", env={**os.environ, name: "17"})
    assert done.stdout == "own sys.exit(3)\n"
    assert f"its environment differs in {name}" in done.stderr


def test_a_process_with_cuda_or_threads_is_not_forked(monkeypatch):
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait, name="of a library")
    thread.start()
    try:
        assert "of a library" in warm_process.unsafe()
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        assert "CUDA is initialised" in warm_process.unsafe()
    finally:
        waiting.set()
        thread.join()


def test_a_folder_that_others_can_enter_is_refused(tmp_path):
    tmp_path.chmod(0o755)
    done = subprocess.run(
        WarmClients(tmp_path).command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "must be accessible only to its owner" in done.stderr


def test_a_missing_and_a_broken_library_are_skipped(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('no such operator')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    names = ("missing_library", "broken_library", "colorsys")
    monkeypatch.setattr(warm_process, "LIBRARIES", names)
    warm_process.import_libraries()
    assert "colorsys" in sys.modules
    told = "broken_library cannot be imported: RuntimeError: no such operator\n"
    assert capsys.readouterr().out == told


LIBRARIES = """
import importlib.util, json, sys, threading
spec = importlib.util.spec_from_file_location("warm_process", sys.argv[1])
warm = sys.modules["warm_process"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(warm)
for name in warm.LIBRARIES:
    importlib.import_module(name)
warm.command()
loaded, ours = set(sys.modules), [name for name in sys.modules if name.startswith("fl_app")]
unsafe = warm.unsafe()
import fl_app.client_app
from fl_app.run_config import load_text
load_text(*sys.argv[2:], on_client=True)
more = [name for name in {*sys.modules} - loaded if not name.startswith("fl_app")]
print(json.dumps([ours, unsafe, more]))
"""


def test_the_search_for_the_command_is_not_repeated_in_each_client(monkeypatch):
    found = warm_process.command()
    monkeypatch.setattr(warm_process, "entry_points", None)
    assert warm_process.command() is found


def test_the_libraries_are_all_that_a_client_imports_and_nothing_of_ours():
    overrides = "experiment=federation_demo"
    words = [sys.executable, "-c", LIBRARIES, warm_process.__file__, overrides, carried(overrides)]
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[], None, []]
