"""Notices in a SuperNode's log that it has a client for a message that was ignored.

Flower notes the task of a message before it has all of the message. If the run ends in between, the
message is ignored and the task stays. Its client hangs, or its reply is sent when the next message
has come. The reply to that one then waits for a further message, which a server that waits for the
reply does not send. All later runs wait in vain; only a new start of the SuperNode helps.

It also tells of a SuperNode that has left the SuperLink because of an error that Flower does not
retry, such as that of a database that was locked for too long. Other threads keep its process.
"""

import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from fl_app.engines import log_files

_RUN = re.compile(r"\[RUN (\d+)[,\]]")
_IGNORED = "is not in `RUNNING` status. Ignoring message "
_STARTED = "Start `flwr-clientapp` process"
_LEFT = re.compile(r"ERROR\b.{0,8}:\s+<_\w*RpcError of RPC that terminated")
"""Flower logs the error alone only where it leaves; of others it says before what failed."""
_RECEIVING, _SENDING = "Receiving: ", "Sending: "


@dataclass
class Lines:
    """The lines of a SuperNode's log so far, as far as they tell what it has left undone.

    `left`: whether it has left the SuperLink because of an error.
    """

    left: bool = field(default=False, init=False)
    _run: str | None = field(default=None, init=False)
    _received: str | None = field(default=None, init=False)
    _ignored: bool = field(default=False, init=False)
    _started: bool = field(default=False, init=False)

    def show(self, line: str) -> bool:
        """Whether with this line the log shows that the SuperNode must be started anew.

        This is certain if a client started for a message that was ignored because its run had
        ended, or if a reply belongs to another run than the message that came before it.
        """
        self.left = self.left or _LEFT.search(line) is not None
        if found := _RUN.search(line):
            self._run = found[1]
        elif _RECEIVING in line:
            self._received, self._ignored, self._started = self._run, False, False
        elif _IGNORED in line:
            self._ignored = True
            return self._started
        elif _STARTED in line:
            self._started = True
            return self._ignored
        elif _SENDING in line:
            return self._received is not None and self._run != self._received
        return False


@dataclass
class NodeLog:
    """The log of a SuperNode from byte `position` on, read as it grows."""

    path: Path
    position: int
    _rest: bytes = b""
    _lines: Lines = field(default_factory=Lines)

    def behind(self) -> bool:
        """Whether the new lines show that the SuperNode must be started anew: see `Lines`."""
        try:
            new = self._unread()
        except OSError:  # a log that somebody removed shows nothing
            return False
        *lines, self._rest = (self._rest + new).split(b"\n")
        return any(self._lines.show(line.decode(errors="replace")) for line in lines)

    @property
    def left(self) -> bool:
        """Whether the lines that `behind` has read show that it has left the SuperLink."""
        return self._lines.left

    def _unread(self) -> bytes:
        """Return what is new; of a log that was emptied, first what its former file has of it."""
        missed, position = b"", self.position
        if self.path.stat().st_size < position:
            self.position = 0
            with contextlib.suppress(OSError):  # the disk had no room for it
                missed = _from(log_files.former(self.path), position)
        new = _from(self.path, self.position)
        self.position += len(new)
        return missed + new


def _from(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read()
