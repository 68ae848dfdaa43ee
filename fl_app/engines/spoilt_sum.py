"""A secure sum that some clients spoil is formed again without them."""

from collections.abc import Callable, Collection, Mapping
from logging import getLogger
from typing import TypeVar

from fl_app.strategies.replies import TooFewRepliesError

log = getLogger(__name__)
SUMS = 3
"""How often a sum is formed at most."""
Client = TypeVar("Client")
Found = TypeVar("Found")


class SpoiltSumError(TooFewRepliesError):
    """A sum that cannot be formed because of some `clients`, and may be without them."""

    def __init__(self, why: str, clients: Collection[int]) -> None:
        super().__init__(why)
        self.clients = frozenset(clients)


def formed(clients: Mapping[int, Client], form: Callable[[Mapping[int, Client]], Found]) -> Found:
    """Return `form(clients)`; if some spoil its sum, that of the others."""
    for _ in range(SUMS - 1):
        try:
            return form(clients)
        except SpoiltSumError as error:
            log.warning("%s; a sum is formed without %s", error, sorted(error.clients))
            clients = {each: one for each, one in clients.items() if each not in error.clients}
    return form(clients)
