"""The trial of a split: a common model beside those of communities, and what clients tell of both.

In the first rounds after a split, every client that trains holds out some of its samples. It gets
a common model beside its own, and reports the losses of both on these samples. The common model is
the mean of all models that come back, as in FedAvg; clients without a community train it. What
becomes of the split is decided by `fl_app.strategies.fallback`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_app.aggregation import Rule, weighted_mean
from fl_app.evaluation.benefit import relative_gains
from fl_app.ingress import screen
from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, LARGEST, Report
from fl_app.strategies.cohort import Offer, Rows
from fl_app.strategies.replies import Replies
from fl_app.strategies.state import MethodState
from fl_app.types import Vector, Vectors

SAME = 1e-5
"""Gains up to this are those of equal models."""
LOSSES = Report(length=2 * HELD_OUT_PARTS, low=-LARGEST, high=LARGEST)


@dataclass(kw_only=True)
class JudgedState(MethodState):
    """The state of a method whose splits are judged, in a checkpoint."""

    common: Vector | None = None
    """The one model (d,) beside the communities' while a split is on trial; None: none is."""
    split_at: int = 0
    """The round after which the trial began."""
    gains: dict[int, list[float]] = field(default_factory=dict)
    """The sums of each client's gains (p,) since the last look, by part of its held-out samples."""
    looks: dict[int, int] = field(default_factory=dict)
    """In how many of these rounds each client compared two models that differ for it."""
    latest: dict[int, list[float]] = field(default_factory=dict)
    """The gains (p,) of the clients that compared such models in the last round of these."""
    looked: bool = False
    """Whether the first of LOOKS was made; a skipped round has none."""
    prolonged: bool = False
    """Whether the trial goes on to PROLONGED."""


@dataclass(kw_only=True)
class SettledState(JudgedState):
    """The state of a method that would split again what was undone, in a checkpoint."""

    settled: bool = False
    """Whether a split was undone, or left by clients; then the method makes no other."""


def begin(state: JudgedState, server_round: int, common: Vector | None = None) -> None:
    """Begin the trial of the communities after a split; one on trial is extended.

    The common model starts as `common` (d,), or as the mean of the communities' models, weighted by
    their members.
    """
    if common is not None:
        state.common = common
    elif state.common is None:
        now = state.communities
        state.common = weighted_mean(now.models, now.sizes.astype(float))
    state.split_at, state.looked, state.prolonged = server_round, False, False
    forget(state)


def forget(state: JudgedState) -> None:
    """Forget what the clients told."""
    state.gains, state.looks, state.latest = {}, {}, {}


def offered(state: JudgedState, client_ids: Sequence[int]) -> Offer:
    """Return all models and the common one (k + 1, d), and each client's row and the common row.

    Clients without a community train the common model.
    """
    members, common = state.communities.members, len(state.communities.models)
    rows: list[Rows] = [(members.get(client, common),) for client in client_ids]
    return beside(state, state.communities.models, rows)


def beside(state: JudgedState, models: Vectors, rows: list[Rows]) -> Offer:
    """Return models (m, d) with the common one (m + 1, d), and each client's rows and its row."""
    assert state.common is not None
    return np.concatenate([models, state.common[None, :]]), rows, [len(models)] * len(rows)


def learn(state: JudgedState, replies: Replies, rule: Rule, clip_update: float | None) -> None:
    """While a split is on trial, train the common model by all replies; note what they tell.

    Models farther from it than `clip_update` times the usual distance come nearer (None: none
    does), since a client that went astray in its own community would take all others with it.
    """
    if state.common is None:
        return
    train(state, replies, rule, clip_update)
    note(state, replies)


def train(state: JudgedState, replies: Replies, rule: Rule, clip_update: float | None) -> None:
    """Train the common model by these replies, as in `learn`."""
    assert state.common is not None
    models = replies.models
    if clip_update is not None:
        models = screen.within(models, state.common, multiple=clip_update)
    state.common = rule(models, replies.weights)


def note(state: JudgedState, replies: Replies, *, joint: np.ndarray | None = None) -> None:
    """Add to the gains what the clients tell of the two models, first of that which they trained.

    `joint` (n,) says which of them trained the common model; None: none did.
    """
    told = replies.reports[HELD_OUT].reshape(-1, 2, HELD_OUT_PARTS)
    if joint is not None:
        told = np.where(joint[:, None, None], told[:, ::-1], told)
    gains, state.latest = relative_gains(told[:, 0], told[:, 1]), {}
    for client, each in zip(replies.client_ids.tolist(), gains, strict=True):
        if np.abs(each).max() > SAME:  # else it could hold out nothing, or got one model twice
            state.latest[client] = each.tolist()
            before = state.gains.get(client, [0.0] * HELD_OUT_PARTS)
            state.gains[client] = (np.array(before) + each).tolist()
            state.looks[client] = state.looks.get(client, 0) + 1


def of_communities(state: JudgedState, replies: Replies) -> Replies:
    """Return the replies that trained the model of a community, not the common one."""
    if state.common is None:
        return replies
    return replies.where(replies.starts < len(state.communities.models))
