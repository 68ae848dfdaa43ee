"""A process that has imported a client's libraries and forks a process for each client.

Run as a program: warm_process.py SOCKET. `flwr-clientapp` starts a process for each message, whose
imports take seconds of processor time and most of a gigabyte. A fork of this process has imported
the libraries already, and shares their memory until it writes to it. Otherwise it is like the
process that Flower would have started. One warm process serves all SuperNodes of a federation on
one machine. They belong to the same user, so a process for each SuperNode would need more memory
and separate nothing more. `fl_app` is not imported here, because each run brings its own version.

A fork copies only one thread. Therefore no library may have started threads here, and neither CUDA
nor gRPC may be in use. (OpenBLAS starts threads at its import, and ends them before a fork.)
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import stat
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, NoReturn

COMMAND = "flwr-clientapp"
LIBRARIES = (
    "numpy", "torch", "torch.func", "torch.nn.utils.stateless", "flwr.app", "flwr.client",
    "flwr.clientapp", "flwr.common", "hydra", "hydra.core.global_hydra", "omegaconf", "pydantic",
    "pydantic.dataclasses", "jaxtyping", "yaml", "httpcore", "encodings.cp437", "sklearn.datasets",
    "torchvision", "torch._dynamo",
)  # fmt: skip
"""What `fl_app.client_app` imports, and what most data sets need; what is missing or broken is
skipped.

The names in a bundle are in cp437. The last is imported by the first optimiser of a process, unless
it is plain SGD.
"""
READ_AT_IMPORT = (
    "PYTHON", "LD_", "FLWR_", "TORCH_", "PYTORCH_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "GRPC_ENABLE_",
)  # fmt: skip
"""Beginnings of environment variables that act on the imports; a client must have equal values.

The variables of CUDA are read later, when a client initialises CUDA.
"""
READ_LATER = ("FLWR_HOME",)
_REQUEST_S = 10.0
_PIECE = 1 << 16
_LONGEST = 1 << 22


@dataclass(eq=False)
class Client:
    """A running client: the connection to its launcher, its process, and its pidfd."""

    connection: socket.socket
    pid: int
    pidfd: int


class Server:
    """Forks a client for each launcher that connects, and sends it the client's exit code."""

    def __init__(self, listener: socket.socket, environment: Mapping[str, str]) -> None:
        self.listener = listener
        self.environment = environment
        self.clients: list[Client] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def step(self) -> None:
        """Wait for an event and handle it."""
        for key, _ in self._selector.select():
            key.data()

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        files: list[int] = []
        try:
            connection.settimeout(_REQUEST_S)
            _send(connection, version=version())
            asked = _request(connection, files)
            connection.settimeout(None)
            if reason := unsafe() or differing(asked["env"], self.environment):
                _send(connection, refused=reason)
                connection.close()
            else:
                self._fork(connection, files, asked)
        except (OSError, ValueError, KeyError):
            connection.close()  # the launcher ended or has another version, or the fork failed
        finally:
            for file in files:
                os.close(file)

    def _fork(self, connection: socket.socket, files: list[int], asked: dict[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            self.listener.close()
            self._selector.close()
            for other in self.clients:
                other.connection.close()
                os.close(other.pidfd)
            set_since = {k: v for k, v in os.environ.items() if k not in self.environment}
            become_client(connection, files, {**asked, "env": {**set_since, **asked["env"]}})
        client = Client(connection, pid, os.pidfd_open(pid))
        self.clients.append(client)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._left, client))
        self._selector.register(client.pidfd, selectors.EVENT_READ, partial(self._ended, client))

    def _left(self, client: Client) -> None:
        """Kill a client whose launcher has ended, since the kill was meant for the client."""
        if client not in self.clients:
            return  # both have ended since the last step
        self._selector.unregister(client.connection)
        os.kill(client.pid, signal.SIGKILL)  # not waited for yet, so no other process has this id

    def _ended(self, client: Client) -> None:
        _, status = os.waitpid(client.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            _send(client.connection, code=code)  # not read if the client has sent its code itself
        with contextlib.suppress(KeyError):
            self._selector.unregister(client.connection)
        self._selector.unregister(client.pidfd)
        client.connection.close()
        os.close(client.pidfd)
        self.clients.remove(client)


def become_client(connection: socket.socket, files: list[int], asked: dict[str, Any]) -> NoReturn:
    """Turn this fork into the client of a launcher: run Flower's command and end.

    The client sends its exit code itself, because the warm process may have been killed meanwhile.
    """
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        sys.argv = [COMMAND, *asked["argv"]]
        reseed()
        _send(connection, pid=os.getpid())
        code = _run()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        _send(connection, code=code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)  # a normal exit would write to the shared memory, and so copy it


def _run() -> int:
    """Return the exit code of Flower's command, after its threads have ended too."""
    try:
        found = command()()
    except SystemExit as error:
        found = error.code
    threading._shutdown()  # type: ignore[attr-defined]  # as every Python process does
    if isinstance(found, str):
        print(found, file=sys.stderr)
        return 1
    return found or 0


@cache
def command() -> Any:
    """Return the function that Flower's own command calls.

    Found once, before any fork: the search reads the metadata of all installed packages.
    """
    (entry,) = entry_points(group="console_scripts", name=COMMAND)
    return entry.load()


def reseed() -> None:
    """Seed the global generators, since all forks start with the same state.

    The draws of fl_app are keyed. The draws of other libraries must differ between clients. Python
    seeds its own generator at a fork.
    """
    import numpy as np
    import torch

    np.random.seed()
    torch.default_generator.seed()


@cache
def version() -> str:
    """Return what must be equal for launcher and warm process, which may start days apart.

    Computed once: a library that is updated meanwhile is not the one that was imported.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    return f"1, flwr {version_of('flwr')}, torch {version_of('torch')}, Python {python}"


def unsafe() -> str | None:
    """Return why this process must not be forked, None if it may."""
    import torch

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "CUDA is initialised in the warm process, and a fork could not use it"
    if threading.active_count() > 1:
        return f"the warm process has threads: {threading.enumerate()}"
    return None


def differing(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str | None:
    """Return which variables of a launcher differ from those at the imports; None: none."""
    names = sorted(
        name
        for name in {*theirs, *ours} - {*READ_LATER}
        if name.startswith(READ_AT_IMPORT) and theirs.get(name) != ours.get(name)
    )
    return f"its environment differs in {', '.join(names)}" if names else None


def _request(connection: socket.socket, files: list[int]) -> dict[str, Any]:
    """Return a launcher's request, and append its stdio to `files`, also on an error."""
    line, received, *_ = socket.recv_fds(connection, _PIECE, 3)
    files += received
    while line and not line.endswith(b"\n") and len(line) < _LONGEST:
        line += connection.recv(_PIECE)
    found: dict[str, Any] = json.loads(line)
    return found


def _send(connection: socket.socket, **said: object) -> None:
    connection.sendall(json.dumps(said).encode() + b"\n")


def import_libraries() -> None:
    """Import LIBRARIES without those that are missing or broken; a client that needs one says so.

    A torchvision that was built for another torch, for example, raises RuntimeError.
    """
    for name in LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        except Exception as error:
            print(f"{name} cannot be imported: {type(error).__name__}: {error}", flush=True)


def main() -> None:
    """Listen, import the libraries, and serve until a signal ends this process."""
    path = Path(sys.argv[1])
    if stat.S_IMODE(path.parent.stat().st_mode) & 0o077:
        sys.exit(
            f"{path.parent} must be accessible only to its owner: whoever connects runs commands"
        )
    environment = dict(os.environ)
    path.unlink(missing_ok=True)  # of a warm process that was killed
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()  # before the imports, so that an early client waits for them
        import_libraries()
        command()
        gc.collect()
        gc.freeze()  # garbage collection in a client then does not write to shared memory
        print(f"ready: {version()}", flush=True)
        server = Server(listener, environment)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                server.step()


if __name__ == "__main__":
    main()
