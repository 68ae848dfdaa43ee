"""The clients whose replies are rejected in a round, with the reasons."""

from collections.abc import Iterable
from logging import getLogger

from fl_app.ingress.wire import BOUNDED
from fl_app.strategies.replies import RejectedReply

log = getLogger(__name__)
_DIVERGED = (
    "training diverges where parameters are huge or not finite: a lower learning rate helps, for "
    "the columns of a table data.standardise=true where it is not set, and for numbers to predict, "
    "which no setting scales, a unit in which they are about 1, such as thousands"
)


class Rejections:
    """Collects the rejections of one `round`: `by_client` has the reasons by client id.

    A node without a client id is listed by its node id.
    """

    def __init__(self) -> None:
        self.round = 0
        self.by_client: dict[int | str, str] = {}

    def begin(self, server_round: int) -> None:
        """Clear the rejections of the last round."""
        self.round, self.by_client = server_round, {}

    def add(self, client: int | str, why: str) -> None:
        """Record and log a client whose reply is rejected; each reason is recorded once."""
        before = self.by_client.get(client)
        if before is None:
            self.by_client[client] = why
        elif f"; {why}; " not in f"; {before}; ":
            self.by_client[client] = f"{before}; {why}"
        log.warning("round %d: client %s rejected: %s", self.round, client, why)

    def add_failed(self, failures: Iterable[object], prefix: str = "") -> None:
        """Add the failures that are malformed replies, which a strategy cannot receive."""
        for failure in failures:
            if isinstance(failure, RejectedReply):
                self.add(failure.client_id, f"{prefix}{failure.reason}")

    def __str__(self) -> str:
        """Return each reason once, with its clients, and what usually helps; none without any."""
        clients: dict[str, list[str]] = {}
        for client, why in self.by_client.items():
            clients.setdefault(why, []).append(str(client))
        told = [f"{why} (of {', '.join(who)})" for why, who in clients.items()]
        if any(BOUNDED in why for why in clients):
            told.append(_DIVERGED)
        return "; ".join(told) or "none"
