"""Asks new nodes who they are, and admits those that are clients of the run."""

from collections.abc import Sequence, Set
from logging import getLogger

import flwr
from flwr.app import RecordDict
from flwr.common import GetPropertiesIns, MessageTypeLegacy
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.introductions import Introductions, identity
from fl_app.engines.node_ids import NodeOwners
from fl_app.engines.outgoing import grid_of, message_to, node_of, pushed
from fl_app.engines.puller import Puller, Silence
from fl_app.ingress.introductions import BeyondError, Identity
from fl_app.ingress.rejection import RejectionError, shown, trusted
from fl_app.strategies.roster import Roster

log = getLogger(__name__)
AT_ONCE = 1000
"""New nodes per batch of introductions, since each message needs memory."""


class Introducer:
    """Introduces the nodes of the `clients` clients of a run to the roster.

    With `owners`, a node can introduce itself only as the client whose key it has. Only the clients
    in `planted` may say that they are malicious.
    """

    def __init__(self, roster: Roster, *, clients: int, puller: Puller) -> None:
        self.roster, self.clients = roster, clients
        self.owners: NodeOwners | None = None
        self.planted: Set[int] = frozenset()
        self._outside = Introductions()
        self._introducing: dict[str, ClientProxy] = {}
        self._puller = puller

    def introduce(self) -> Introductions:
        """Ask new nodes for their identity; return the nodes that are not admitted so far.

        Does not wait for answers: a later call reads those that arrive later.
        """
        asked = {proxy.cid for proxy in self._introducing.values()}
        strangers = [proxy for proxy in self.roster.strangers() if proxy.cid not in asked]
        for start in range(0, len(strangers), AT_ONCE):
            self._ask(strangers[start : start + AT_ONCE])
            self._listen()
        if not strangers:
            self._listen()
        found = self._outside
        self._forget_gone(found)
        waiting = [f"node {proxy.cid}" for proxy in self._introducing.values()]
        return Introductions(
            found.failed.copy(), found.rejected.copy(), waiting, found.extra.copy(),
            found.beyond.copy(),
        )  # fmt: skip

    def _forget_gone(self, found: Introductions) -> None:
        """Forget the nodes that failed or were rejected and have left; silent ones stay named."""
        failed = {who for who, why in found.failed.items() if not isinstance(why, Silence)}
        gone = failed | {who for who in found.rejected if isinstance(who, str)} | {*found.beyond}
        gone -= {f"node {cid}" for cid in self.roster.clients} if gone else set()
        for who in gone:
            found.rejected.pop(who, None)
            found.beyond.pop(who, None)
            if who in failed:
                del found.failed[who]

    def _ask(self, strangers: Sequence[ClientProxy]) -> None:
        ins = compat.getpropertiesins_to_recorddict
        kind = MessageTypeLegacy.GET_PROPERTIES
        messages = [message_to(p, ins(GetPropertiesIns({})), kind, 0, None) for p in strangers]
        sent = pushed(grid_of(strangers[0]), messages)
        self._introducing.update((each, strangers[place]) for each, place in sent.items())

    def _listen(self) -> None:
        """Read the introductions that have arrived."""
        if self._introducing:
            grid = grid_of(next(iter(self._introducing.values())))
            for message_id, reply in self._puller.look(grid, list(self._introducing)):
                stop_request.check()
                self._introduce(self._introducing.pop(message_id), reply, self._outside)

    def _introduce(self, proxy: ClientProxy, reply: RecordDict | str, found: Introductions) -> None:
        grid, node = grid_of(proxy), f"node {proxy.cid}"
        inside = grid.client_of(node_of(proxy)) if isinstance(grid, InProcessGrid) else None
        who = node if inside is None else inside
        found.failed.pop(node, None)
        found.rejected.pop(who, None)
        found.beyond.pop(node, None)
        found.extra.discard(node)
        if self.owners is not None and not self.owners.know(proxy.cid, of=self.clients):
            found.extra.add(node)
        if isinstance(reply, str):
            found.failed[node] = reply
            return
        try:
            expected = inside if self.owners is None else self.owners.client_of(proxy.cid)
            told = trusted(identity, reply, self.clients, expected, self.planted)
            if not self.roster.introduce(proxy, told):
                found.extra.add(node)
                holder = self.roster.proxy(told.client_id).cid
                rule = f"an id that no other node has, and node {holder} has it; one of the two is "
                rule += "wrong: give every node a different partition-id, or remove that node"
                raise RejectionError("client_id", rule, shown(told.client_id))
        except BeyondError as error:
            remedy = "if it is to participate, give it a partition-id below population.clients"
            found.beyond[node] = f"introduction: {error}; {remedy}"
            return
        except RejectionError as error:
            found.rejected[who] = f"introduction: {error}"
            return
        _warn_of_release(told)


def _warn_of_release(told: Identity) -> None:
    """Warn of a client with another release of Flower than the server's."""
    if _release(told.flower) not in ("", _release(flwr.__version__)):
        log.warning(
            "client %d has flwr %s and the server %s; they are not known to work together: "
            "install the server's version on the client's machine",
            told.client_id, told.flower, flwr.__version__,
        )  # fmt: skip


def _release(version: str) -> str:
    """Return `1.39` of `1.39.0`; releases of Flower with the same are compatible."""
    return ".".join(version.split(".")[:2])
