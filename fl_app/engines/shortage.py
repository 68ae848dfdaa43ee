"""Ends a run early that has fewer nodes than clients, with the command that mends it."""

import shlex
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from fl_app.command_words import flwr_command
from fl_app.own import OPTIONS

OF_LAUNCH = tuple(
    f"records.{name}=" for name in ("folder", "resume", "restarts", "started_by", "id")
)
"""Overrides that the command fl-app adds to a run by itself."""
_NAMELESS = "<connection>"
"""For the name of the user's connection, which no process of a run knows."""


class TooFewNodesError(TimeoutError):
    """A run has fewer nodes than clients, and no more of them come."""


@dataclass
class NodeWait:
    """Waits for nodes that have never connected, as long as new ones come.

    `overrides` are those of the run, `by_flwr` says whether Flower's own command started it;
    `timeout_s`: seconds since the last new node. `project` has the user's own options and modules.
    """

    overrides: str
    by_flwr: bool
    timeout_s: float
    project: Path | None = None
    _known: set[str] = field(default_factory=set)
    _since: float | None = None

    def check(
        self,
        connected: Collection[str],
        clients: int,
        present: Collection[int] = (),
        *,
        least: int = 1,
    ) -> None:
        """Raise TooFewNodesError if too few nodes have ever connected and the time is up.

        `connected`: the ids of the nodes that are there now, of which a busy machine can lose one
        for a while; `present`: the client ids of those that have introduced themselves. With fewer
        clients than `least` no run would go on.
        """
        now = time.monotonic()
        if self._since is None or not self._known.issuperset(connected):
            self._known.update(connected)
            self._since = now
        if len(self._known) >= clients or now - self._since < self.timeout_s:
            return
        enough = len(self._known) >= max(least, 1)
        remedies = [self._with_these(clients, present)] if enough else []
        remedies.append(
            f"wait longer for the others: {self._command('engine.nodes_timeout_s=300')}"
        )
        note = f" ({_NAMELESS}: the one that you gave to flwr run)" if self.by_flwr else ""
        raise TooFewNodesError(
            f"{clients} clients need {clients} nodes, got {len(self._known)} and no new one in "
            f"{self.timeout_s:g} s; {'; or '.join(remedies)}{note}"
        )

    def _with_these(self, clients: int, present: Collection[int]) -> str:
        if max(present, default=0) < len(self._known):
            return f"run with these: {self._command(f'population.clients={len(self._known)}')}"
        absent = sorted({*range(clients)} - {*present})  # fewer clients would exclude a node
        command = self._command("engine.nodes_timeout_s=9999", "engine.connect_timeout_s=15")
        return f"run without clients {absent}: {command}"

    def _command(self, *changes: str) -> str:
        without = () if self.by_flwr else OF_LAUNCH
        replaced = tuple(change.partition("=")[0] + "=" for change in changes)
        given = shlex.split(self.overrides)
        words = [each for each in given if not each.startswith((*without, *replaced))]
        words += changes
        if self.by_flwr:
            return flwr_command(words, f"{_NAMELESS} ")
        if self.project is None:
            return shlex.join(["fl-app", *words])
        options = str(self.project / OPTIONS)
        command = shlex.join(["fl-app", "--config-dir", options, *words])
        return f"PYTHONPATH={shlex.quote(str(self.project))} {command}"


def too_few_simulated(overrides: str, nodes: int, clients: int) -> TooFewNodesError:
    """Return the error of a simulation whose nodes cannot carry several clients."""
    command = flwr_command(shlex.split(overrides))
    return TooFewNodesError(
        f"{clients} clients with population=own need {clients} nodes, got {nodes}, because each "
        f"has its own data; run: {command} --federation-config 'num-supernodes={clients}'"
    )
