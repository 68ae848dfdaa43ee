"""Waits for clients to connect, and lets every new node introduce itself."""

import time
from logging import getLogger

from fl_app.engines import stop_request
from fl_app.engines.client_messenger import ClientMessenger, Introductions
from fl_app.strategies.replies import RejectedReply
from fl_app.strategies.roster import Roster

log = getLogger(__name__)
POLL_S = 0.5


class Connections:
    """The connected nodes of a run of so many `clients`, of which it needs `least`.

    `timeout_s`: seconds to wait for clients.
    """

    def __init__(
        self,
        messenger: ClientMessenger,
        roster: Roster,
        *,
        clients: int,
        least: int,
        timeout_s: float,
    ) -> None:
        self.messenger, self.roster = messenger, roster
        self.clients, self.least, self.timeout_s = clients, least, timeout_s
        self._outside = Introductions()

    @property
    def refused(self) -> list[RejectedReply]:
        """The nodes that were not let in for what they said of themselves."""
        return [RejectedReply(client, why) for client, why in self._outside.rejected.items()]

    def introduce(self) -> None:
        """Ask new nodes who they are; note and log those who did not get in."""
        before, self._outside = self._outside, self.messenger.introduce()
        refused = self._outside.failed, self._outside.rejected
        if self._outside.answered and refused != (before.failed, before.rejected):
            log.warning("not let in: %s", self._outside)

    def require(self) -> None:
        """Wait where fewer clients are connected than the run needs."""
        if len(self.roster.proxies()) < self.least:
            self.wait(self.least)

    def wait(self, needed: int) -> None:
        """Wait until `needed` clients are known, or the others have answered and are not let in.

        When the time is up the run goes on with `engine.min_success` clients or more. Raises
        TimeoutError for fewer.
        """
        deadline = time.monotonic() + self.timeout_s
        while True:
            self.introduce()
            present = len(self.roster.proxies())
            enough = present >= self.least
            if present >= needed or (enough and present + self._outside.answered >= needed):
                break
            if time.monotonic() > deadline and enough:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{present} of {needed} clients connected within "
                    f"{self.timeout_s} s, engine.min_success is {self.least}; start the others "
                    f"or raise engine.connect_timeout_s; {self._outside}"
                )
            stop_request.wait(POLL_S)
        if present < needed:
            log.warning(
                "the run goes on with %d of %d clients, without clients %s; %s",
                present, needed, self.roster.lost(self.clients), self._outside,
            )  # fmt: skip
