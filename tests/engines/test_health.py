"""A health check tells a part that is at work from one that ended, hangs or lost its connection."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from fl_app.engines import health

WORK = """import socket, sys, time
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
while True:
    time.sleep(0.02)
"""


@pytest.fixture
def part(tmp_path):
    """Yield a process of a program `flower-part`, and the port to which it is connected."""
    program = tmp_path / "flower-part"
    program.write_text(WORK)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        words = [sys.executable, str(program), str(port)]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"connected\n"
            yield process, port
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_process_is_at_work_until_it_is_stopped_or_ends(part, monkeypatch):
    monkeypatch.setattr(health, "WATCHED_S", 0.3)
    process, port = part
    words = ["--process", "flower-part", "--port"]
    assert health.main([*words, str(port)]) == 0
    assert "must have a connection to port 9" in str(health.main([*words, "9"]))
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)  # it stops only when it next gets a processor
    assert "stopped or stuck" in str(health.main([*words, str(port)]))
    process.kill()
    process.wait()
    assert "no such process" in str(health.main([*words, str(port)]))


def test_a_file_that_is_touched_must_be_new(tmp_path):
    file = tmp_path / "looked"
    assert "got FileNotFoundError" in str(health.main(["--file", str(file)]))
    file.touch()
    assert health.main(["--file", str(file)]) == 0
    os.utime(file, (time.time() - 301,) * 2)
    assert "every 300 s, got 301 s" in str(health.main(["--file", str(file)]))


def test_it_imports_no_library():
    code = "import sys, fl_app.engines.health; print({'torch', 'numpy', 'flwr'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
