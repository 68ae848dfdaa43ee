"""Two liars of twelve that send any finite model: every model stays finite, groups stay groups.

Without a screen before the strategy, methods that train one model for all first, by the plain
mean, follow a far model; those that find communities in every round must not. With bounded updates
none does.
"""

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from flwr.common import FitRes
from methods import builder
from told import told_losses

from fl_app.graph.measures import DcflKind
from fl_app.learner_reports import HELD_OUT, PREFIX
from fl_app.params import from_bytes
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.changing import ChangingCommunities
from fl_app.strategies.fallback import LOOKS
from fl_app.strategies.state import NORMS, load, save
from fl_app.strategies.trial import JudgedState
from fl_app.testing.toy import SIZE, TARGETS, context, honest, play, reply, roster

LIARS = (3, 7)
ROUNDS = 8
PLANTED = {frozenset(set(range(group, 12, 3)) - set(LIARS)) for group in range(3)}


def _honest_model(client: int, start: np.ndarray, server_round: int) -> np.ndarray:
    return from_bytes(honest(client, start, server_round).parameters.tensors[0])


Lie = Callable[[int, np.ndarray, int], np.ndarray]
LIES: dict[str, Lie] = {
    "times a million": lambda client, start, r: start * 1e6 + 1e6,
    "turned round": lambda client, start, r: -_honest_model(client, start, r),
    "zeros": lambda client, start, r: np.zeros(SIZE),
    "opposites": lambda client, start, r: (1 if client == LIARS[0] else -1) * np.arange(1.0, 7),
    "constant": lambda client, start, r: np.full(SIZE, 1e15),
    "far opposites": lambda client, start, r: np.full(SIZE, 1e15 if client == LIARS[0] else -1e15),
    "what it received, and its negative": lambda client, start, r: (
        start if client == LIARS[0] else -start
    ),
    "a twin": lambda client, start, r: _honest_model(0, start, r),
}
METHODS = {
    "communities": builder("communities", participation=1.0),
    "communities 1nn": builder("communities_1nn", participation=1.0),
    "communities wnn": builder("communities_wnn", participation=1.0),
    "communities euclidean": builder("communities", participation=1.0, similarity="euclidean"),
    "communities cosine": builder("communities", participation=1.0, similarity="cosine"),
    "late": builder("late", participation=1.0, cluster_round=3),
    "late median": builder("late", participation=1.0, cluster_round=3, rule="median"),
    "hierarchical median": builder(
        "hierarchical", participation=1.0, cluster_round=3, rule="median"
    ),
    "flic": builder("flic", participation=1.0, cluster_round=3),
    "hierarchical": builder("hierarchical", participation=1.0, cluster_round=3),
    "hierarchical euclidean": builder(
        "hierarchical", participation=1.0, cluster_round=3, threshold=1.0, distance="euclidean"
    ),
    "pacfl": builder("pacfl", participation=1.0),
    "flux": builder("flux", participation=1.0, cluster_round=3),
    "fedem": builder("fedem", participation=1.0),
    "fedrc": builder("fedrc", participation=1.0),
    "feddrift": builder("feddrift", participation=1.0, start="own"),
    "fedgwc": builder("fedgwc", participation=1.0, tolerance=10.0, split_below=1.0),
    "cfl": builder("cfl", participation=1.0, mode="clusters", alpha_threshold=0.5, norm_above=0.2),
    "dcfl": builder("dcfl", participation=1.0),
    "dcfl median": builder("dcfl", participation=1.0, rule="median"),
    **{
        f"dcfl {kind}": builder("dcfl", participation=1.0, distance=kind)
        for kind in get_args(DcflKind)
        if kind != "complete"
    },
}


@cache
def _played(method: str, name: str | None, clip: float | None = None) -> CommunityStrategy:
    """Return a method after its rounds; tests look at it, and change nothing."""
    lie = None if name is None else LIES[name]

    def client(client_id: int, start: np.ndarray, server_round: int) -> FitRes | None:
        if client_id not in LIARS:
            return honest(client_id, start, server_round)
        if lie is None:
            return None
        model = np.clip(lie(client_id, start, server_round), -1e17, 1e17)
        return reply(model.astype(np.float32))

    strategy = METHODS[method](context(clip_update=clip))
    play(strategy, roster(12), range(1, ROUNDS + 1), client=client)
    return strategy


def _honest_groups(strategy: CommunityStrategy) -> set[frozenset[int]]:
    """Return the honest clients of each community."""
    view = strategy.view(ROUNDS)
    assert view is not None
    found = [set(view.client_ids[view.labels == row].tolist()) for row in np.unique(view.labels)]
    return {frozenset(group - set(LIARS)) for group in found} - {frozenset()}


NEAR = ("turned round", "zeros", "opposites", "what it received, and its negative", "a twin")
"""Lies that are no longer than a few honest updates: a mean of twelve survives them."""
EVERY_ROUND = (
    "communities", "communities 1nn", "communities wnn", "communities cosine", "dcfl",
    "dcfl median", "dcfl euclidean", "pacfl", "flux",
)  # fmt: skip
MEAN_FIRST = ("late", "flic", "hierarchical", "hierarchical euclidean", "cfl")
MEDIAN_FIRST = ("late median", "hierarchical median")


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("method", list(METHODS))
def test_every_model_stays_finite(method: str, lie: str) -> None:
    strategy = _played(method, lie)
    assert strategy.rejections.by_client == {}
    models, offers = strategy.attribute([c for c in range(12) if c not in LIARS])
    assert all(offers)
    assert np.isfinite(models).all()
    arrays, _ = save(strategy.state)
    assert all(np.isfinite(each).all() for each in arrays.values())


@pytest.mark.parametrize("method", [*EVERY_ROUND, *MEAN_FIRST])
def test_without_liars_the_groups_are_found(method: str) -> None:
    assert _honest_groups(_played(method, None)) == PLANTED


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("method", EVERY_ROUND)
def test_groups_found_in_every_round_stay_groups(method: str, lie: str) -> None:
    assert _honest_groups(_played(method, lie)) == PLANTED


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("method", MEDIAN_FIRST)
def test_groups_found_after_a_median_stay_groups(method: str, lie: str) -> None:
    assert _honest_groups(_played(method, lie)) == PLANTED


@pytest.mark.parametrize("lie", NEAR)
@pytest.mark.parametrize("method", MEAN_FIRST)
def test_groups_found_after_a_mean_stay_groups(method: str, lie: str) -> None:
    assert _honest_groups(_played(method, lie)) == PLANTED


@pytest.mark.parametrize("lie", list(LIES))
@pytest.mark.parametrize("method", MEAN_FIRST)
def test_groups_found_after_a_mean_of_bounded_updates_stay_groups(method: str, lie: str) -> None:
    strategy = _played(method, lie, clip=2.0)
    assert strategy.rejections.by_client == {}
    assert _honest_groups(strategy) == PLANTED


@pytest.mark.parametrize("lie", ["times a million", "constant", "far opposites"])
@pytest.mark.parametrize("method", ["communities", "communities 1nn", "dcfl", "dcfl euclidean"])
def test_the_honest_reach_their_targets_beside_far_models(method: str, lie: str) -> None:
    strategy = _played(method, lie)
    for client in set(range(12)) - set(LIARS):
        models, (rows,) = strategy.attribute([client])
        assert min(np.abs(models[row] - TARGETS[client % 3]).max() for row in rows) < 0.1


FAR = ("times a million", "constant", "far opposites")
NEWCOMER = 99


@pytest.mark.parametrize("lie", FAR)
@pytest.mark.parametrize("method", ["communities", "communities wnn", "dcfl", "dcfl median"])
def test_a_newcomer_gets_a_model_without_the_far_ones(method: str, lie: str) -> None:
    models, ((row,),) = _played(method, lie, clip=2.0).attribute([NEWCOMER])
    usual, ((other,),) = _played(method, None, clip=2.0).attribute([NEWCOMER])
    among_targets = float(np.linalg.norm(TARGETS[0] - TARGETS[1]))
    assert float(np.linalg.norm(models[row] - usual[other])) < 0.5 * among_targets


@pytest.mark.parametrize("method", ["communities", "dcfl"])
def test_one_model_after_an_undone_split_is_not_moved_by_long_updates(method: str) -> None:
    reached = []
    for far in (1.0, 1e6):
        made = builder(method, participation=1.0, fallback=True)(context(clip_update=2.0))
        state = cast(ChangingCommunities, made).state
        play(made, roster(12), range(1, 9), client=partial(_harmed, far=far, state=state))
        assert state.one
        reached.append(state.global_model)
    assert float(np.linalg.norm(reached[1] - reached[0])) < 2 * float(np.linalg.norm(reached[0]))


def _harmed(
    client: int, start: np.ndarray, server_round: int, *, far: float, state: JudgedState
) -> FitRes:
    """Say that the community's model is worse than that of all, and train; liars go too far."""
    model = _honest_model(client, start, server_round)
    if client in LIARS:
        model = np.clip(start + np.float32(far) * (model - start), -1e15, 1e15)
    answer = reply(model)
    if 1 < server_round <= 1 + LOOKS[0]:
        losses = told_losses(state, start, 2.0, 1.0)
        answer.metrics[f"{PREFIX}{HELD_OUT}"] = losses.tobytes()
    return answer


@pytest.mark.parametrize("method", ["fedavg", "ifca", "late"])
def test_in_a_cohort_of_two_former_rounds_tell_what_is_long(method: str) -> None:
    """The first cohorts are larger, as where a method has removed the other clients."""
    moved = {}
    for far in (1.0, 1e6):
        fallen = {"cluster_round": 9} if method == "late" else {}
        strategy = builder(method, participation=1.0, **fallen)(context(clip_update=2.0))
        play(strategy, roster(6), range(1, 4), client=honest)
        start = strategy.state.communities.models.copy()
        assert len(strategy.state.norms) == NORMS
        play(strategy, roster(2), range(4, 5), client=partial(_second_goes_too_far, far=far))
        moved[far] = float(np.linalg.norm(strategy.state.communities.models - start))
    assert moved[1e6] < 10 * moved[1.0] + 10 * max(strategy.state.norms[:-2])


def _second_goes_too_far(
    client: int, start: np.ndarray, server_round: int, *, far: float
) -> FitRes:
    model = _honest_model(client, start, server_round)
    return reply(start + np.float32(far if client == 1 else 1.0) * (model - start))


def test_norms_of_former_rounds_survive_a_restart_and_rejected_ones_are_not_among_them() -> None:
    strategy = builder("fedavg", participation=1.0)(context(clip_update=2.0, largest_update=10.0))

    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        model = _honest_model(who, start, now)
        return reply(start + np.float32(1e6 if who == LIARS[0] else 1.0) * (model - start))

    play(strategy, roster(4), range(1, 2), client=client)
    assert {*strategy.rejections.by_client} == {LIARS[0]}
    assert len(strategy.state.norms) == 3
    assert max(strategy.state.norms) < 10
    arrays, values = save(strategy.state)
    again = builder("fedavg", participation=1.0)(context())
    load(again.state, arrays, values)
    assert again.state.norms == strategy.state.norms
