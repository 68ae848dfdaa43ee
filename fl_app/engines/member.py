"""A process of a federation, and what is needed to start it again."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from fl_app.engines.nodes import REFUSED
from fl_app.engines.processes import Process, tail
from fl_app.engines.stale_reply import NodeLog

BACK_OFF_S = 1.0
"""Wait before the first restart."""


@dataclass
class Member:
    """A process of the federation, with everything that is needed to restart it.

    `number` is that of a SuperNode, which is its client id.
    """

    name: str
    command: list[str]
    home: Path
    process: Process
    number: int | None = None
    started: float = 0.0
    wait_s: float = BACK_OFF_S
    due: float | None = None
    node_log: NodeLog = field(init=False)
    _ended: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.started_as(self.process)

    def started_as(self, process: Process) -> None:
        """Note that the member runs as this process from now on."""
        self.process, self.started, self.due = process, time.monotonic(), None
        self.node_log = NodeLog(process.log, process.start)

    def fault(self) -> str | None:
        """Return why a SuperNode that runs must be restarted; None: it need not.

        Its SuperExec starts its clients. If it was killed, the SuperNode neither ends nor starts
        another one, and all its messages wait.
        """
        if self.number is None or not self.process.alive:
            return None
        if self.node_log.behind():
            return "it has a reply that no run awaits"
        if self.node_log.left:
            return "it has left the SuperLink after an error"
        before, self._ended = self._ended, self.process.ended_children()
        return "its SuperExec has ended" if before & self._ended else None

    def last_words(self) -> str:
        """Return why the member may not be online, as far as that is known."""
        if self.process.popen.poll() == 0:
            return f"{self.name}: {REFUSED}"
        return f"{self.name}: {' '.join(tail(self.process.log, lines=2).split())}"
