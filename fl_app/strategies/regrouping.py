"""Communities that take the place of others: what becomes of models and members."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from fl_app.aggregation import weighted_mean
from fl_app.graph.client_graph import ClientGraph
from fl_app.strategies.state import Communities
from fl_app.types import Labels


def splits(after: Mapping[int, int], before: Mapping[int, int]) -> bool:
    """Return whether clients of a community before are in several communities after."""
    rows = {(before[client], after[client]) for client in before.keys() & after.keys()}
    return len(rows) > len({row for row, _ in rows})


def inside(graph: ClientGraph, client_ids: Labels, before: Mapping[int, int]) -> dict[int, int]:
    """Return the communities of clients (n,) that a graph finds in each one before by itself.

    Those that have had models of their own for some rounds differ by noise, which hides the groups
    in one. Clients of none before are in none.
    """
    found = dict[int, int]()
    for row in sorted({*before.values()}):
        some = [client for client in client_ids.tolist() if before.get(client) == row]
        if some:
            labels = graph.labels(graph.vectors.rows_of(some)) + len({*found.values()})
            found |= dict(zip(some, labels.tolist(), strict=True))
    return found


def split_by(found: Mapping[int, int], before: Mapping[int, int]) -> dict[int, int]:
    """Return the communities before, of which those that `found` splits are as it says.

    The others stay as they are, also where `found` joins them with clients of another one. That is
    no evidence: each has its own model, and the updates of its clients tell nothing of the others
    any more. Numbered by the first client of each.
    """
    places: dict[int, set[int]] = {}
    for client in before.keys() & found.keys():
        places.setdefault(before[client], set()).add(found[client])
    number: dict[tuple[bool, int], int] = {}
    members = {}
    for client in sorted(found):
        row = before.get(client, -1)
        stays = len(places.get(row, ())) == 1
        key = stays, row if stays else found[client]
        members[client] = number.setdefault(key, len(number))
    return members


def regrouped(now: Communities, after: Mapping[int, int]) -> Communities:
    """Return communities (k, d) with the members `after`, which begin where these were.

    Each has the mean of its clients' models; if none of them had one, the mean over all clients.
    A client that is in none of them goes where its community went, unless this was split.
    """
    went: dict[int, Counter[int]] = {}
    for client in sorted(now.members.keys() & after.keys()):
        went.setdefault(now.members[client], Counter())[after[client]] += 1
    members = {
        client: next(iter(went[row]))
        for client, row in now.members.items()
        if client not in after and len(went.get(row, ())) == 1
    } | dict(after)
    count = max(after.values(), default=0) + 1
    if len(now.models) == 1:
        return Communities(np.repeat(now.models, count, axis=0), members)
    shares = np.zeros((count, len(now.models)))
    for row, counts in went.items():
        for label, clients in counts.items():
            shares[label, row] = clients
    shares[~shares.any(axis=1)] = shares.sum(axis=0)
    return Communities(np.stack([weighted_mean(now.models, each) for each in shares]), members)
