"""The clients by a stable client id instead of Flower's node id.

A node id is random in each simulation. The client id is the partition id in a simulation and the
configured id in a deployment. Each node sends it in its introduction.
"""

from collections.abc import Iterable, Mapping
from logging import getLogger
from operator import itemgetter

from flwr.server.client_manager import ClientManager, SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress.introductions import Identity

__all__ = ["Identity", "Roster", "roster"]
log = getLogger(__name__)
LONGEST_REST = 32
"""Rounds after which a client that was always silent is asked again, at the latest."""


class Roster(SimpleClientManager):
    """Flower's client manager, with the identity of each node.

    A doubted node must introduce itself again before it is used. One that was silent in k rounds,
    without a round in between in which it trained, is asked for that only 2^(k-1) rounds later, at
    most LONGEST_REST. A node that trains but is silent in evaluations never rests. `joined` has
    the node id of each client that came, or came back with another node, until somebody takes it
    out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._identities: dict[str, Identity] = {}
        self._holders: dict[int, ClientProxy] = {}
        self._doubted: set[str] = set()
        self._silent: set[str] = set()  # in this round
        self._heard: set[str] = set()
        self._silences: dict[str, int] = {}  # since the node last trained
        self._resting: dict[str, int] = {}  # further rounds
        self.absent: frozenset[int] = frozenset()
        self.joined: dict[int, str] = {}
        # replaced whenever nodes change; then `_sorted` is outdated
        self._present = object()
        self._sorted: tuple[object, dict[int, ClientProxy]] = object(), {}

    def register(self, client: ClientProxy) -> bool:
        """Add a node; Flower calls this in a separate thread."""
        new = super().register(client)
        if client.cid in self._identities:
            self._doubted.add(client.cid)
        self._present = object()
        return new

    def unregister(self, client: ClientProxy) -> None:
        """Remove a node that is gone."""
        super().unregister(client)
        self._present = object()

    def doubt(self, client: ClientProxy, *, training: bool = True) -> None:
        """Exclude a node that did not answer until it introduces itself again.

        `training`: it was silent in training, of which it may have answered an earlier stage.
        """
        if client.cid in self._identities:
            self._doubted.add(client.cid)
            self._silent.add(client.cid)
            if training:
                self._heard.discard(client.cid)
            self._present = object()

    def heard(self, clients: Iterable[ClientProxy]) -> None:
        """Note the nodes that have trained."""
        self._heard.update(client.cid for client in clients)

    def begin_round(self) -> None:
        """Let nodes rest that were silent again, and end the rest of others."""
        self._resting = {cid: left - 1 for cid, left in self._resting.items() if left > 1}
        for cid in self._heard:
            self._silences.pop(cid, None)
        for cid in self._silent - self._heard:
            times = self._silences[cid] = self._silences.get(cid, 0) + 1
            if times > 1:
                self._resting[cid] = min(2 ** (times - 1), LONGEST_REST) - 1
        self._silent, self._heard = set(), set()

    def wake(self) -> None:
        """End the rest of all nodes, since too few others are there."""
        self._resting = {}

    def strangers(self) -> list[ClientProxy]:
        """Return the connected nodes that must introduce themselves, also again if doubted."""
        known = (self._identities.keys() - self._doubted) | self._resting.keys()
        return [proxy for cid, proxy in list(self.all().items()) if cid not in known]

    def introduce(self, proxy: ClientProxy, identity: Identity) -> bool:
        """Store the identity of a node; return False if another live node has this client id."""
        holder = self._holders.get(identity.client_id)
        if holder is not None and holder.cid != proxy.cid and holder.cid in self.clients:
            return False
        before = self._identities.get(proxy.cid)
        former = None if before is None else self._holders.get(before.client_id)
        if before is not None and former is not None and former.cid == proxy.cid:
            del self._holders[before.client_id]
        if holder is None or holder.cid != proxy.cid:
            self.joined[identity.client_id] = proxy.cid
        self._identities[proxy.cid] = identity
        self._holders[identity.client_id] = proxy
        self._doubted.discard(proxy.cid)
        self._present = object()
        return True

    def proxies(self) -> Mapping[int, ClientProxy]:
        """Return the connected clients by client id, in the order of the ids.

        Clients in `absent` are excluded.
        """
        present, (known, connected) = self._present, self._sorted
        if known is not present:  # sorting a hundred thousand takes half a second
            nodes = [(self.client_id(proxy), proxy) for proxy in list(self.clients.values())]
            nodes.sort(key=itemgetter(0))
            doubted = self._doubted.copy()
            connected = {c: proxy for c, proxy in nodes if c >= 0 and proxy.cid not in doubted}
            self._sorted = present, connected
        if not self.absent:
            return connected
        return {client: p for client, p in connected.items() if client not in self.absent}

    def members(self) -> list[int]:
        """Return the sorted clients that have introduced themselves, also if not connected now."""
        return sorted(self._holders.keys() - self.absent)

    def client_id(self, proxy: ClientProxy) -> int:
        """Return the client id of a node, or -1 before it has introduced itself."""
        identity = self._identities.get(proxy.cid)
        return -1 if identity is None else identity.client_id

    def proxy(self, client_id: int) -> ClientProxy:
        """Return the last node that introduced itself as this client, connected or not."""
        return self._holders[client_id]

    def samples(self, client_id: int) -> int:
        """Return the number of training samples in a client's introduction."""
        return self._identities[self._holders[client_id].cid].samples

    def lost(self, clients: int) -> list[int]:
        """Return which of `clients` clients are neither connected nor absent by the schedule."""
        present = self.proxies().keys()
        if len(present) + len(self.absent) >= clients:
            return []
        return sorted(set(range(clients)) - present - self.absent)

    def malicious(self) -> set[int]:
        """Return the malicious clients of a simulation; used only for metrics."""
        return {who.client_id for who in self._identities.values() if who.malicious}

    def groups(self) -> dict[int, int]:
        """Return the planted group of every client that sent one; used only for metrics."""
        return {who.client_id: who.group for who in self._identities.values() if who.group >= 0}


def roster(client_manager: ClientManager) -> Roster:
    """Return the client manager as the Roster of `RoundLoop`; raises TypeError for another."""
    if not isinstance(client_manager, Roster):
        raise TypeError(
            f"the client manager must be a Roster, got {type(client_manager).__name__}; "
            "return ServerAppComponents(server=RoundLoop(...))"
        )
    return client_manager
