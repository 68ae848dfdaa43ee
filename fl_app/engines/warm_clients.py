"""Puts a launcher in the place of `flwr-clientapp`, for clients that need not import first.

Flower finds `flwr-clientapp` on the SuperNode's PATH; `install` makes a folder that goes first on
it. What is there hands over to the warm process, and to Flower's own command where none answers.
"""

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fl_app.engines import flower, launcher, warm_process

NAME = "warm-clients"
_SOCKET = "socket"
_COMMANDS = "commands"
_LONGEST_PARENT = 80


@dataclass(frozen=True)
class WarmClients:
    """The files of a federation's warm process, in a folder that only their owner can enter."""

    folder: Path

    @property
    def command(self) -> list[str]:
        """The command of the warm process; without -P its modules would hide others' names."""
        return [sys.executable, "-P", warm_process.__file__, str(self.folder / _SOCKET)]

    @property
    def commands(self) -> Path:
        """The folder that goes first on a SuperNode's PATH."""
        return self.folder / _COMMANDS

    def install(self) -> None:
        """Write the launcher: a shell's, as the path of a Python may be too long for `#!`."""
        words = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder / _SOCKET)]
        words += [warm_process.version(), flower.executable(warm_process.COMMAND)]
        command = self.commands / warm_process.COMMAND
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        command.chmod(0o700)


def new_folder() -> Path:
    """Return a new folder, whose path leaves room: that of a socket ends at 107 characters."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _LONGEST_PARENT else "/tmp"
    return Path(tempfile.mkdtemp(prefix="fl-app-", dir=parent))


def available() -> bool:
    """Return whether this system can: Linux. On macOS a fork after such imports may crash."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # older than Linux 5.3, or forbidden in this container
        return False
    return True
