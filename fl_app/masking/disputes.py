"""Who is left out of a secure sum when a client cannot open what another one sent."""

from collections import Counter
from collections.abc import Collection, Mapping


def left_out(refused: Mapping[int, Collection[int]]) -> dict[int, list[int]]:
    """Return the clients to leave out of a sum, each with those that it is in dispute with.

    `refused` has for each client that sent a vector those whose shares it could not open. Only one
    of the two has their common mask in its vector, so they cannot both stay; which of them lies
    cannot be known. Who is in dispute with several goes first, since one liar among honest clients
    is. Of two that are left with one dispute both go: so a liar that picks one victim goes too.
    """
    open_ = {
        frozenset((client, other))
        for client, others in refused.items()
        for other in others
        if other in refused
    }
    found: dict[int, list[int]] = {}
    while open_:
        counts = Counter(client for pair in open_ for client in pair)
        most = max(counts.values())
        worst = min(client for client, count in counts.items() if count == most)
        gone = {worst} if most > 1 else {*counts}
        for client in sorted(gone):
            pairs = [pair for pair in open_ if client in pair]
            found[client] = sorted(other for pair in pairs for other in pair - {client})
        open_ = {pair for pair in open_ if not pair & gone}
    return found
