"""Trials of communities that are found before models have learned: clients take turns.

Models of such communities begin apart, and their mean lags behind a model that all clients train:
communities that one model would beat looked better than it. Here every other client of a community
trains the common model in a round, and the others that of their community; in the next round it is
the other way round. All of them compare the two: `fl_app.strategies.fallback`.

They take no turns if fewer than MOST of them train in a round. The few that would be left to its
community train a model that seems worse than it is.
"""

import numpy as np

from fl_app.aggregation import Rule
from fl_app.strategies.cohort import Offer, Rows
from fl_app.strategies.replies import Replies
from fl_app.strategies.trial import JudgedState, beside, note, train
from fl_app.types import Vectors

MOST = 2 / 3
"""Share of the clients."""


def in_turns(
    state: JudgedState, server_round: int, models: Vectors, rows: list[Rows], participation: float
) -> Offer:
    """Return models (m, d) with the common one (m + 1, d), and each client's rows to train.

    Last the rows with which each compares: that of the common model, or its own if it trains this.
    Clients with several rows, or that of the common model, have no turns; with a `participation`
    below MOST nobody has.
    """
    stock, given, compared = beside(state, models, list(rows))
    assert compared is not None
    common = len(models)
    alone = [k for k, each in enumerate(rows) if len(each) == 1 and each[0] != common]
    single = alone if participation >= MOST else []
    for place, k in enumerate(sorted(single, key=lambda k: rows[k][0])):
        if (place + server_round) % 2:
            given[k], compared[k] = (common,), rows[k][0]
    return stock, given, compared


def learn_in_turns(
    state: JudgedState, replies: Replies, common: int, rule: Rule, clip_update: float | None
) -> Replies:
    """Train the common model by those that had its row; return the replies of the others.

    Without turns all train it, by the models of their communities. Without a trial those that are
    returned are all.
    """
    if state.common is None:
        return replies
    joint: np.ndarray = replies.starts == common
    train(state, replies.where(joint) if joint.any() else replies, rule, clip_update)
    note(state, replies, joint=joint)
    return replies.where(~joint)
