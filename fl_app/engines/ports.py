"""Which TCP ports of this machine are free, and what uses one that is not."""

import contextlib
import errno
import random
import socket
from pathlib import Path

from fl_app.engines.processes import ProcessError

PORTS = range(20_000, 32_000)
"""Below the ports of outgoing connections on Linux, so that these do not use them."""
_LISTENS = "0A"
_PROC = Path("/proc")


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of 127.0.0.1 that nothing listens on.

    Raises ProcessError if there are fewer.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(PORTS, k=len(PORTS)):
        if len(found) == count:
            return found
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise ProcessError(
        f"{count} ports of 127.0.0.1 in {PORTS.start}..{PORTS.stop - 1} must be free, got "
        f"{len(found)}; see with ss -ltnp what uses them"
    )


def problem(group: str, host: str, port: int) -> str | None:
    """Return why nothing could listen on `group`.host and `group`.port; None: it could."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # as servers do: a connection that was closed a moment ago does not hold the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except PermissionError:
        return f"{group}.port must be one that you may open, got {port}; use one above 1023"
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"{group}.port must be free on {host}, got {port}, which {_user(port)} uses; end "
                f"that process, or choose another {group}.port"
            )
        return (
            f"{group}.host must be an address of this machine, got {host!r}; use 127.0.0.1, or "
            "0.0.0.0 for all of its addresses"
        )
    return None


def _user(port: int) -> str:
    """Return what listens on a port, in words."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for handle in _PROC.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or belongs to another user
            if str(handle.readlink()) in sockets:
                process = handle.parent.parent
                name = (process / "comm").read_text().strip()
                return f"{name} (process {process.name})"
    return "another process (sudo ss -ltnp tells which)"


def _listening(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a port; none without /proc."""
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):  # without IPv6
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    found.append(words[9])
    return found
