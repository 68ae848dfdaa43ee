"""The introductions of nodes: who is not admitted, and what a reply says of its node."""

from collections.abc import Set
from dataclasses import dataclass, field

from flwr.app import RecordDict
from flwr.compat.common import recorddict_compat as compat

from fl_app.ingress.extent import check_extent, check_single
from fl_app.ingress.fits import check_status
from fl_app.ingress.introductions import Identity, read_introduction


@dataclass
class Introductions:
    """Nodes that are not admitted.

    `failed` and `rejected` give the reason by node; `rejected` by client id if the engine knows
    it. Nodes in `waiting` have not answered yet; one that is not admitted is asked again. Those in
    `extra` are no client of the run: their client is connected, is beyond those of the run, or
    `engine.node_ids` does not have them. `beyond` gives the reason for those that said so
    themselves, as nodes of later runs do: these have neither failed nor are they rejected.
    """

    failed: dict[str, str] = field(default_factory=dict)
    rejected: dict[int | str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    extra: set[str] = field(default_factory=set)
    beyond: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = [f"{who}: {why}" for who, why in self.refused.items()]
        parts += [f"{who} has not answered yet" for who in self.waiting]
        return "; ".join(parts) or "no node was rejected"

    @property
    def told(self) -> dict[int | str, str]:
        """The reasons for those whose introduction was read and not admitted."""
        return self.rejected | dict[int | str, str](self.beyond)

    @property
    def refused(self) -> dict[int | str, str]:
        """The reasons for all that are not admitted and do not wait."""
        return dict[int | str, str](self.failed) | self.told

    @property
    def answered(self) -> int:
        """Number of clients whose node failed or was rejected."""
        return sum(who not in self.extra for who in (*self.failed, *self.rejected))


def identity(
    content: RecordDict, clients: int, expected: int | None, planted: Set[int]
) -> Identity:
    """Return the identity in a reply; raises RejectionError: see `read_introduction`."""
    check_extent(content, arrays=None)
    check_single(content, "getpropertiesres.properties")
    reply = compat.recorddict_to_getpropertiesres(content)
    check_status(reply.status.code)
    return read_introduction(reply.properties, clients, expected, planted)
