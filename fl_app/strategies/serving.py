"""Names the models that a method's clients use, for the records."""

from collections.abc import Collection, Sequence
from hashlib import blake2b

import numpy as np

from fl_app.records.serving import GLOBAL_MODEL, REFERENCE, Served, community_name
from fl_app.strategies import abilities
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Rows
from fl_app.types import Vector, Vectors, Weights

CHUNK = 256
"""Clients whose models are computed at once, since a method may make a model for each."""


def served(
    method: CommunityStrategy,
    client_ids: Sequence[int],
    server_round: int,
) -> Served:
    """Return the models of clients after a round, as they evaluate them.

    Models that are none of the method's `communities`, its global model or its `mixtures` are
    stored whole, and only for the clients that evaluate, at most `records.evaluate_at_most`; other
    clients with such a model are missing.
    A client that had a choice has the model of its last one.
    """
    scored = set(method.to_evaluate(server_round, list(client_ids)))
    names = _Names(method.state.communities.models, method.state.global_model)
    clients: dict[int, tuple[str, ...]] = {}
    for start in range(0, len(client_ids), CHUNK):
        every = client_ids[start : start + CHUNK]
        mixtures = abilities.mixtures(method, every)
        clients |= {client: (names.mixture(each),) for client, each in mixtures.items()}
        some = [client for client in every if client not in mixtures]
        stock, rows = method.attribute(some)
        offers = {c: _chosen(method, c, given) for c, given in zip(some, rows, strict=True)}
        stores = {row for client, given in offers.items() if client in scored for row in given}
        found = names.all(stock, stores)
        for client, given in offers.items():
            named = tuple(name for row in given if (name := found[row]) is not None)
            if len(named) == len(given):
                clients[client] = named
    described = abilities.descriptors(method)
    if described is not None:
        names.models[REFERENCE] = described.reference
    return Served(clients, names.models, names.mixtures, described)


def _chosen(method: CommunityStrategy, client: int, rows: Rows) -> Rows:
    """Return the row that a client chose last; else all."""
    choice = method.state.evaluated.get(client)
    if choice is None and isinstance(method, abilities.Chooses):
        choice = method.chosen(client)
    return (choice,) if choice is not None and len(rows) > 1 and choice in rows else rows


class _Names:
    """The names of models that a method sends.

    `models` has those that are no community's, `mixtures` the weights of the others by community.
    """

    def __init__(self, communities: Vectors, global_model: Vector | None) -> None:
        self.communities = communities
        self.models: dict[str, Vector] = {}
        self.mixtures: dict[str, dict[str, float]] = {}
        self._rows = [_digest(model) for model in communities]
        self._known: dict[bytes, str] = {}
        if global_model is not None:
            self.models[GLOBAL_MODEL] = global_model
            self._known[_digest(global_model)] = GLOBAL_MODEL

    def all(self, stock: Vectors, stores: Collection[int]) -> list[str | None]:
        """Return the name of each model (m, d); None for one outside `stores` without a name."""
        if stock is self.communities:
            return [community_name(row) for row in range(len(stock))]
        return [self._name(row, model, row in stores) for row, model in enumerate(stock)]

    def mixture(self, weights: Weights) -> str:
        """Return the name of a mean of the community models with weights (k,)."""
        rounded: Vector = weights.astype(np.float32)  # as `mixed` uses them
        digest = _digest(rounded)
        if digest not in self._known:
            rows = np.flatnonzero(rounded).tolist()
            name = self._known[digest] = self._next()
            self.mixtures[name] = {community_name(row): float(rounded[row]) for row in rows}
        return self._known[digest]

    def _next(self) -> str:
        stored = len(self.models) - (GLOBAL_MODEL in self.models)
        return f"mixture_{stored + len(self.mixtures)}"

    def _name(self, row: int, model: Vector, stores: bool) -> str | None:
        digest = _digest(model)
        if row < len(self._rows) and self._rows[row] == digest:
            return community_name(row)
        if digest not in self._known and stores:
            name = self._next()
            self.models[name], self._known[digest] = model.copy(), name
        return self._known.get(digest)


def _digest(model: Vector) -> bytes:
    return blake2b(np.ascontiguousarray(model).data, digest_size=16).digest()
