"""Replaces `flwr-clientapp` by a launcher, so that clients need not import their libraries.

Flower finds `flwr-clientapp` on the SuperNode's PATH. `install` makes a folder that must come first
on this PATH. The launcher in it calls the warm process, or Flower's own command if none answers.
"""

import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fl_app.engines import flower_commands, launcher, warm_process

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
        """The command of the warm process; without -P, modules beside its file hide others."""
        return [sys.executable, "-P", warm_process.__file__, str(self.folder / _SOCKET)]

    @property
    def commands(self) -> Path:
        """The folder that must come first on a SuperNode's PATH."""
        return self.folder / _COMMANDS

    def install(self) -> None:
        """Write the launcher as a shell script, since Python's path may be too long for `#!`."""
        words = [sys.executable, "-I", "-S", launcher.__file__, str(self.folder / _SOCKET)]
        words += [warm_process.version(), flower_commands.executable(warm_process.COMMAND)]
        command = self.commands / warm_process.COMMAND
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        command.chmod(0o700)


def new_folder() -> Path:
    """Return a new folder with a short path, since that of a socket has at most 107 characters."""
    usual = tempfile.gettempdir()
    parent = usual if len(usual) <= _LONGEST_PARENT else "/tmp"
    return Path(tempfile.mkdtemp(prefix="fl-app-", dir=parent))


def available() -> bool:
    """Whether this system can fork clients: only Linux. On macOS such a fork may crash."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # older than Linux 5.3, or forbidden in this container
        return False
    return True
