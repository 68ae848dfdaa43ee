"""Runs in the place of `flwr-clientapp`: lets the warm process start the client, and waits for it.

Run as a program: launcher.py SOCKET VERSION FLWR_CLIENTAPP [arguments of flwr-clientapp]. The
client gets the arguments, working directory, environment and stdio of this process; signals are
passed on to it; its exit code becomes that of this process. When no warm process of this version
answers, Flower's own command FLWR_CLIENTAPP runs instead. The first time standard error tells
why; a file beside the socket notes that it is told. Standard library only, and little of it:
what is imported here is paid for every message.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType
from typing import Any, NoReturn

TOLD = "told"
"""The file beside the socket that says that the log has the reason."""
PATIENCE_S = 120.0
"""How long the warm process may take for its imports, on a busy machine."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class NoClientError(Exception):
    """The warm process has not started a client, and will not: Flower's own command may."""


def main() -> NoReturn:
    """Run the client in a fork of the warm process, else as Flower does."""
    path, version, own, *arguments = sys.argv[1:]
    # a signal that comes before the client's id is known waits, and is then passed on
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        pid, connection = start(path, version, arguments)
    except (OSError, ValueError, NoClientError) as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        _tell_once(os.path.dirname(path), error)
        os.execv(own, [own, *arguments])
    end_as(_code(pid, connection))


def start(path: str, version: str, arguments: list[str]) -> tuple[int, socket.socket]:
    """Return the client's process id and the connection over which its exit code will come.

    Raises an error only where no client runs: after the request was sent it ends without an
    answer only when neither the warm process nor the client holds the connection.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(path)
    theirs = read(connection).get("version")  # before the request: one that waits is not sent
    if theirs != version:
        raise NoClientError(f"the warm process must be {version!r}, got {theirs!r}")
    connection.settimeout(None)
    request = {"argv": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}
    line = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(connection, [line], [0, 1, 2])
    if rest := line[sent:]:  # an answer can come, and the connection end, once all is sent
        connection.sendall(rest)
    answer = read(connection)
    if "pid" not in answer:
        raise NoClientError(answer.get("refused", "the warm process ended"))
    return answer["pid"], connection


def read(connection: socket.socket) -> dict[str, Any]:
    """Return the next line's object, empty at the end of the connection."""
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(1)  # no further: the next object is another call's
        if not piece:
            return {}
        line += piece
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"an answer must be an object, got {found!r}")
    return found


def _code(pid: int, connection: socket.socket) -> int:
    """Return the client's exit code, or minus the signal that ended it."""

    def pass_on(number: int, _: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return  # it has ended, and its code is on the way

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        # nobody told the code: the warm process was killed, and then the client too
        return int(read(connection).get("code", -signal.SIGKILL))
    except ConnectionError:
        return -signal.SIGKILL


def end_as(code: int) -> NoReturn:
    """End as the client has ended, by the same signal if it was one."""
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(abs(code))


def _tell_once(folder: str, error: Exception) -> None:
    try:
        os.close(os.open(os.path.join(folder, TOLD), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError:
        pass  # the folder is gone, and so is the note: it is told each time
    reason = " ".join(str(error).split()) or type(error).__name__
    print(
        f"WARNING : no warm process starts this client ({reason}); "
        "each client imports its libraries by itself until one does",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
