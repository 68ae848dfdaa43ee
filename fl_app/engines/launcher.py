"""Replaces `flwr-clientapp`: lets the warm process start the client, and waits for its end.

Run as a program: launcher.py SOCKET VERSION FLWR_CLIENTAPP [arguments of flwr-clientapp]. The
client gets the arguments, working directory, environment and stdio of this process. Signals are
passed on to the client, and its exit code becomes that of this process. If no warm process of this
version answers, Flower's own command FLWR_CLIENTAPP runs instead. The first time this happens, the
reason is written to standard error, and a file beside the socket records that this was done. Only a
few modules of the standard library are imported, because every message repeats these imports.
"""

import json
import os
import signal
import socket
import sys
from types import FrameType
from typing import Any, NoReturn

TOLD = "told"
"""The file beside the socket that exists once the reason was written."""
PATIENCE_S = 120.0
"""How long the warm process may take for its imports, on a busy machine."""
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class NoClientError(Exception):
    """The warm process did not start a client and will not, so Flower's own command may."""


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
    """Return the client's process id and the connection that will bring its exit code.

    Raises an error only if no client runs: after the request was sent, the connection ends without
    an answer only if neither the warm process nor a client has it open.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(path)
    theirs = read(connection).get("version")  # before the request: a timeout starts no client
    if theirs != version:
        raise NoClientError(f"the warm process must be {version!r}, got {theirs!r}")
    connection.settimeout(None)
    request = {"argv": arguments, "cwd": os.getcwd(), "env": dict(os.environ)}
    line = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(connection, [line], [0, 1, 2])
    if rest := line[sent:]:  # the answer comes after the whole line was sent
        connection.sendall(rest)
    answer = read(connection)
    if "pid" not in answer:
        raise NoClientError(answer.get("refused", "the warm process ended"))
    return answer["pid"], connection


def read(connection: socket.socket) -> dict[str, Any]:
    """Return the next line's object, empty at the end of the connection."""
    line = b""
    while not line.endswith(b"\n"):
        piece = connection.recv(1)  # one byte, since the next object belongs to a later call
        if not piece:
            return {}
        line += piece
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"an answer must be an object, got {found!r}")
    return found


def _code(pid: int, connection: socket.socket) -> int:
    """Return the client's exit code, or the negative number of the signal that ended it."""

    def pass_on(number: int, _: FrameType | None) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return  # it has ended, and its code is on the way

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    try:
        # without a code, the warm process was killed, and then the client
        return int(read(connection).get("code", -signal.SIGKILL))
    except ConnectionError:
        return -signal.SIGKILL


def end_as(code: int) -> NoReturn:
    """End with the exit code of the client, or by the signal that ended it."""
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
        pass  # without the folder, the reason is written each time
    reason = " ".join(str(error).split()) or type(error).__name__
    print(
        f"WARNING : no warm process starts this client ({reason}); "
        "each client imports its libraries by itself until one does",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    main()
