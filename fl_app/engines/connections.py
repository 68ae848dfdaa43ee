"""Waits for clients to connect, and asks every new node for its identity."""

import time
from logging import getLogger

from fl_app.engines import stop_request
from fl_app.engines.introducer import Introducer
from fl_app.engines.introductions import Introductions
from fl_app.engines.puller import Silence
from fl_app.engines.shortage import NodeWait
from fl_app.records.audit import AuditLog
from fl_app.strategies.replies import ClientFailure, RejectedReply
from fl_app.strategies.roster import Roster

log = getLogger(__name__)
POLL_S = 0.5


class Connections:
    """The connected nodes of a run with `clients` clients.

    At least `min_success` of them are needed, and `fewest`, without which no round trains a model.
    `timeout_s`: seconds to wait for clients. `node_wait` gives up earlier on nodes that have
    never connected; None: it does not.
    """

    node_wait: NodeWait | None = None

    def __init__(
        self,
        introducer: Introducer,
        roster: Roster,
        *,
        clients: int,
        min_success: int,
        fewest: int = 1,
        timeout_s: float,
        audit: AuditLog,
    ) -> None:
        self.audit = audit
        self.introducer, self.roster = introducer, roster
        self.clients, self.timeout_s = clients, timeout_s
        self.least = max(min_success, fewest)
        self._needed = (
            f"engine.min_success={min_success} clients" if min_success >= fewest
            else f"{fewest} clients, without which no round trains a model,"
        )  # fmt: skip
        self._outside = Introductions()
        self._open = False

    @property
    def refused(self) -> list[RejectedReply]:
        """The nodes whose introduction was rejected."""
        return [RejectedReply(client, why) for client, why in self._outside.rejected.items()]

    @property
    def failed(self) -> list[ClientFailure]:
        """The nodes whose client raised when it was asked for its identity.

        Not those that are gone, nor those of no client of the run, as one that was added meanwhile.
        """
        found = self._outside
        told = {who: why for who, why in found.failed.items() if not isinstance(why, Silence)}
        return [ClientFailure(who, why) for who, why in told.items() if who not in found.extra]

    def introduce(self) -> None:
        """Ask new nodes for their identity; log those that are not admitted."""
        before, self._outside = self._outside, self.introducer.introduce()
        self._open = _may_come(before, self._outside)
        refused = self._outside.refused
        if refused and refused != before.refused:
            log.warning("nodes that are not admitted: %s", self._outside)
            for who, why in self._outside.told.items():
                if before.told.get(who) != why:
                    self.audit.append("rejected", who=str(who), why=why)
        if self.roster.joined:
            came = {str(client): f"node {node}" for client, node in self.roster.joined.items()}
            self.roster.joined.clear()
            self.audit.append("joined", clients=came)

    def require(self) -> None:
        """Wait if fewer clients are connected than the run needs."""
        if len(self.roster.proxies()) < self.least:
            self.roster.wake()
            self.wait(self.least)

    def wait(self, needed: int) -> None:
        """Wait until `needed` clients are known, or all others have failed or were rejected.

        A node that is no client of the run is not one of these others: they may be connecting.
        After the timeout, the run continues with at least `least` clients. Raises
        TimeoutError for fewer, and TooFewNodesError if fewer nodes than that have connected.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            self.introduce()
            present = len(self.roster.proxies())
            enough = present >= self.least
            refused = enough and present + self._outside.answered >= needed
            if present >= needed or (refused and not self._open):
                break
            if self.node_wait is not None:
                nodes, known = list(self.roster.all()), self.roster.proxies()
                self.node_wait.check(nodes, needed, known, least=self.least)
            if time.monotonic() > deadline and enough:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"at least {self._needed} must connect within "
                    f"{self.timeout_s} s, got {present} of {needed}; start the others, "
                    "or raise engine.connect_timeout_s on a busy machine, where clients start "
                    f"slowly; {self._outside}"
                )
            stop_request.wait(POLL_S)
        if present < needed:
            log.warning(
                "the run continues with %d of %d clients, without clients %s; %s",
                present, needed, self.roster.lost(self.clients), self._outside,
            )  # fmt: skip


def _may_come(before: Introductions, now: Introductions) -> bool:
    """Whether a node that was asked can still be admitted, by its first answer or its next one.

    One that was silent is asked again, since it may have been starting: once, as it may be gone.
    """
    silent = {who for who, why in now.failed.items() if isinstance(why, Silence)}
    for who in silent:
        if not isinstance(before.failed.get(who), Silence):
            return True
    refused = {*now.told, *(now.failed.keys() - silent)}
    return any(who not in refused for who in now.waiting)
