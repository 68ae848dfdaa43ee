"""Runs `fl-app` for tests in processes that are forked from one that has imported it.

The imports take seconds, which most tests of a run need not repeat. In all other respects the
processes are like those of a user: arguments, folder, streams, exit status and signals.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

SCRIPT = "--script"
IMPORTED = (
    "fl_app.main", "fl_app.client_app", "fl_app.server_app", "fl_app.report.figures",
    "networkx", "sklearn.datasets", "sklearn.metrics",
)  # fmt: skip
"""What runs import at their start, and later when they need it."""


class Opened:
    """A process that was started; its streams are files."""

    def __init__(self, arguments: list[str], cwd: Path) -> None:
        self._streams = TemporaryDirectory(prefix="fl-app-door-")
        self.arguments = arguments
        order = {"arguments": arguments, "cwd": str(cwd), "streams": self._streams.name}
        self.pid = _ask(order)

    def ended(self) -> bool:
        """Tell whether the process has ended, without waiting for it."""
        return bool(_ask({"ended": self.pid}))

    def said(self) -> str:
        """Return the output so far."""
        folder = Path(self._streams.name)
        return "".join((folder / name).read_text() for name in ("stdout", "stderr"))

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end; return the exit status and the output."""
        folder = Path(self._streams.name)
        code = _ask({"wait": self.pid})
        said = [(folder / name).read_text() for name in ("stdout", "stderr")]
        self._streams.cleanup()
        return subprocess.CompletedProcess(self.arguments, code, *said)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `fl-app` with these arguments in a folder; `SCRIPT` and a text: run that Python."""
    return Opened(list(arguments), cwd).wait()


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, bufsize=1,
    )  # fmt: skip
    atexit.register(server.kill)
    return server


def _ask(order: dict[str, object]) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(order) + "\n")
    answer = server.stdout.readline()
    assert answer, "the door is closed: its process has ended"
    return int(answer)


def _serve() -> None:
    for module in IMPORTED:
        import_module(module)
    ended: dict[int, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            pid = order["wait"]
            status = ended.pop(pid) if pid in ended else os.waitpid(pid, 0)[1]
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        if "ended" in order:
            pid = order["ended"]
            if pid not in ended and (found := os.waitpid(pid, os.WNOHANG))[0]:
                ended[pid] = found[1]
            print(int(pid in ended), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            _become(order)
        print(pid, flush=True)


def _become(order: dict[str, str]) -> None:
    """Turn a process that was just forked into `fl-app`."""
    os.chdir(order["cwd"])
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(order["streams"]) / name, flags), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    raise Forked(order["arguments"])


class Forked(BaseException):
    """Ends the serving loop in a forked process."""

    def __init__(self, arguments: str) -> None:
        super().__init__()
        self.arguments = list(arguments)


def _main() -> None:
    try:
        _serve()
    except Forked as forked:
        arguments = forked.arguments
    else:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if arguments[0] == SCRIPT:
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<script>", "exec"), {"__name__": "__main__"})
        return
    from fl_app.__main__ import main

    sys.argv = ["fl-app", *arguments]
    main()


if __name__ == "__main__":
    _main()
