"""Last models of absent clients, which move along with their communities.

A community's model is the mean of its members' last models. With few of them in a round, most are
old, and the mean lags behind the model that FedAvg would train with the same clients. So the last
model `v_j` of a member that did not train moves by the mean step of the k members that did:
`v_j + k / (k + 1) mean_i(w_i - s_i)`, with the model `w_i` that client i of the same community
returned, and `s_i` that which it received. The factor, as if one more had stayed where it was, lets
a single one take all others along by half of its step only: it may lie. The papers of the methods
have none of it. In FedVARP (Jhunjhunwala et al., UAI 2022) and MIFA (Gu et al., NeurIPS 2021)
absent clients count by their own last updates again.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fl_app.aggregation import Rule
from fl_app.graph.vector_backends import InMemory
from fl_app.graph.vectors import ClientVectors
from fl_app.strategies.replies import Replies
from fl_app.types import CatchUp, Vector, Vectors, Weights

Steps = Mapping[int, Vector]
"""How far absent members of a community move (d,), by the row of the community."""


def catches_up(catch_up: CatchUp, vectors: ClientVectors, *, judges: bool) -> bool:
    """Return whether models catch up: by default where the fallback judges, in memory.

    On disk, each move would round them to 16 bits.
    """
    return judges and isinstance(vectors.backend, InMemory) if catch_up == "auto" else catch_up


def steps_of(
    replies: Replies, sent: Vectors, members: Mapping[int, int], rule: Rule, weights: Weights
) -> Steps:
    """Return k / (k + 1) times the mean steps of communities by `rule`, from models `sent` (m, d).

    `weights` (n,) are those of the clients that replied, k of which are in a community.
    """
    rows = np.array([members.get(client, -1) for client in replies.client_ids.tolist()], int)
    updates = replies.models - sent[replies.starts]
    found = dict[int, Vector]()
    for row in np.unique(rows[rows >= 0]).tolist():
        mine = rows == row
        share = np.float32(mine.sum() / (mine.sum() + 1))
        found[row] = share * rule(updates[mine], weights[mine])
    return found


def move(
    vectors: ClientVectors, clients: Iterable[int], members: Mapping[int, int], steps: Steps
) -> None:
    """Move the vectors (l * d,) of these clients by the steps (d,) of their communities.

    Each of the l parts of a vector moves.
    """
    known = {*vectors.client_ids.tolist()}
    for client in sorted(known.intersection(clients)):
        step = steps.get(members.get(client, -1))
        if step is not None:
            vectors.move(client, np.resize(step, vectors.length))


def carried(
    vectors: ClientVectors,
    joint: Sequence[int],
    heard: Sequence[int],
    members: Mapping[int, int],
    rule: Rule,
) -> dict[int, Vector]:
    """Return new vectors of the clients `joint`, which trained the common model in this round.

    Their last ones would be older than those of the others of their community that were `heard`,
    and far from them by that. The mean of the others takes their place.
    """
    mates = dict[int, list[int]]()
    for client in heard:
        mates.setdefault(members.get(client, -1), []).append(client)
    known = {*vectors.client_ids.tolist()}.intersection(joint)
    places = {client: members[client] for client in sorted(known & members.keys())}
    means = dict[int, Vector]()
    for row in {*places.values()} & mates.keys():
        some = vectors.read(vectors.rows_of(mates[row]))
        means[row] = rule(some, np.ones(len(some)))
    return {client: means[row] for client, row in places.items() if row in means}
