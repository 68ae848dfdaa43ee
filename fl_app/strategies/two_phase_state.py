"""The state of a method that clusters its clients once, and when contrast looks again."""

from dataclasses import dataclass, field
from math import ceil

from fl_app.graph.client_graph import ClientGraph
from fl_app.strategies.graph_use import unused_graph
from fl_app.strategies.trial import JudgedState

LATER = 4
"""Contrast looks for groups again after one further round in LATER of those that it has waited."""


@dataclass(kw_only=True)
class TwoPhaseState(JudgedState):
    """The state of such a method in a checkpoint."""

    sums: ClientGraph = field(default_factory=unused_graph)
    """With contrast, the cumulated updates of each client, and their cosines; else empty."""
    clustered_at: int | None = None
    """The round after which the clients were clustered; None: not yet."""
    searches: int = 0
    """How often communities were looked for."""
    grouped: bool = False
    """Whether there were several."""
    by_own: bool = False
    """With contrast=both, whether they are those of the method's own graph."""
    undone_at: int | None = None
    """The round in which the last clustering was undone; None: it was not."""
    open: bool = False
    """Whether clients without a community train the model of the last one: some fell back to it."""
    look_at: int = 0
    """The round after which contrast looks for groups again."""
    waits: bool = False
    """With contrast=both, whether the own graph is still to be asked: see `two_phase.HEARD`."""
    idle: list[int] = field(default_factory=list)
    """The clients of which an event has told that they belong to no community."""

    @property
    def afresh(self) -> bool:
        """Whether the clients are not clustered yet, or no longer."""
        return self.clustered_at is None or self.undone_at is not None

    @property
    def since(self) -> int | None:
        """The round since which contrast looks for groups; None: it does not."""
        if self.undone_at is None:
            return self.clustered_at
        return self.undone_at if self.by_own else None

    def search(self, server_round: int, *, anew: bool) -> None:
        """Count a search, and note after which round contrast searches again."""
        waited = 0 if anew else server_round - (self.since or 0)
        self.look_at = server_round + max(1, ceil(waited / LATER))
        self.searches += 1

    def found(self, *, anew: bool, several: bool, own: bool) -> None:
        """Note what was found: whether there are groups, and by which graph."""
        self.grouped = several
        self.waits &= not several
        if anew or several:
            self.undone_at, self.by_own = None, own
