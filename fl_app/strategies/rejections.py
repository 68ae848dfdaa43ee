"""The clients whose replies are rejected in a round, with the reasons."""

from collections.abc import Iterable
from logging import getLogger

from fl_app.strategies.replies import RejectedReply

log = getLogger(__name__)


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
        """Record and log a client whose reply is rejected."""
        before = self.by_client.get(client)
        self.by_client[client] = why if before is None else f"{before}; {why}"
        log.warning("round %d: client %s rejected: %s", self.round, client, why)

    def add_failed(self, failures: Iterable[object], prefix: str = "") -> None:
        """Add the failures that are malformed replies, which a strategy cannot receive."""
        for failure in failures:
            if isinstance(failure, RejectedReply):
                self.add(failure.client_id, f"{prefix}{failure.reason}")
