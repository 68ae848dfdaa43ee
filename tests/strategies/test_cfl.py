"""CFL's splits, and robust rules, on toy clients."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from flwr.common import FitRes

from fl_app.params import Layout
from fl_app.records.history import UNDONE
from fl_app.strategies.cfl import Cfl
from fl_app.strategies.outcome import Event
from fl_app.strategies.server_context import largest
from fl_app.strategies.state import load, save
from fl_app.testing.toy import SIZE, TARGETS, builder, context, honest, parts, play, reply, roster
from fl_app.wiring import made

cfl = partial(made, "strategy=cfl")
robust = partial(made, "strategy=robust")

LIARS = {1, 4, 7}


def _attacked(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """All are of the first group; liars send the negative of their update."""
    answer = honest(client - client % 3, start, server_round)
    if client in LIARS:
        noise = np.random.default_rng((client, server_round)).normal(0, 0.01, len(start))
        model = start - 0.5 * (TARGETS[0] - start) + noise
        return reply(model.astype(np.float32))
    return answer


def test_liars_are_removed_by_name_and_never_asked_again() -> None:
    strategy, known = cfl(context(), participation=1.0), roster(12, groups=1)
    play(strategy, known, range(1, 2), client=_attacked)
    assert strategy.state.removed == dict.fromkeys(LIARS, 1)
    (event,) = strategy.events
    assert event.kind == "removed"
    assert "[1, 4, 7]" in event.detail
    assert strategy.outcome(1).suspects(largest) == LIARS
    play(strategy, known, range(2, 8), client=_attacked)
    assert not LIARS & set(strategy.cohort.client_ids)
    np.testing.assert_allclose(strategy.state.communities.models[0], TARGETS[0], atol=0.2)


def test_the_update_of_the_removed_never_reaches_the_mean() -> None:
    strategy = cfl(context(), participation=1.0)
    play(strategy, roster(12, groups=1), range(1, 2), client=_attacked)
    assert (strategy.state.communities.models[0][[0, 5]] > 0).all()


def test_clusters_are_split_until_they_agree() -> None:
    strategy = cfl(context(), participation=1.0, mode="clusters", alpha_threshold=0.5)
    play(strategy, roster(12), range(1, 8))
    view = strategy.view(7)
    assert view is not None
    found = {
        frozenset(view.client_ids[view.labels == row].tolist()) for row in np.unique(view.labels)
    }
    assert found == {frozenset(range(group, 12, 3)) for group in range(3)}
    assert strategy.outcome(7).phase == "clustered"
    for client, row in strategy.state.communities.members.items():
        np.testing.assert_allclose(
            strategy.state.communities.models[row], TARGETS[client % 3], atol=0.2
        )


def test_those_who_agree_are_never_split() -> None:
    def same(client: int, start: np.ndarray, server_round: int) -> FitRes:
        return reply(start + np.ones_like(start))

    strategy = cfl(context(), participation=0.5, mode="clusters")
    play(strategy, roster(8), range(1, 8), client=same)
    assert len(strategy.state.communities.models) == 1
    assert strategy.outcome(7).notes["alpha_cross"]["0"] == pytest.approx(1.0)


def test_only_the_freshly_heard_of_are_split() -> None:
    strategy = cfl(context(), participation=0.25, mode="clusters", alpha_threshold=0.5)
    play(strategy, roster(12), range(1, 2))
    cohort = set(strategy.cohort.client_ids)
    assert set(strategy.state.communities.members) == cohort


def test_a_cluster_is_cut_after_a_round_that_asked_all_of_it() -> None:
    known = roster(12)
    strategy = cfl(context(), participation=0.5, mode="clusters", alpha_threshold=0.5)
    play(strategy, known, range(1, 2))
    assert len(strategy.cohort.client_ids) == 6
    assert len(strategy.state.communities.models) == 1
    strategy.state.communities.members.update(dict.fromkeys(range(12), 0))
    again = cfl(context(), participation=0.5, mode="clusters", alpha_threshold=0.5)
    load(again.state, *save(strategy.state))
    for each in (strategy, again):
        play(each, known, range(2, 3))
        assert len(each.cohort.client_ids) == 12
        parts = {frozenset(c for c, row in each.state.communities.members.items() if row == r)
                 for r in range(2)}  # fmt: skip
        groups = [frozenset(range(group, 12, 3)) for group in range(3)]
        assert any({group, frozenset(range(12)) - group} == parts for group in groups)


def _apart(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """Each client goes its own way: no two are alike."""
    return reply(start + np.eye(len(start), dtype=np.float32)[client])


def test_clients_without_groups_are_not_split_under_a_gap() -> None:
    options = {"participation": 1.0, "mode": "clusters", "alpha_threshold": 0.5}
    for gap, clusters in ((None, 2), (0.1, 1)):
        strategy = cfl(context(), gap_above=gap, **options)
        play(strategy, roster(6), range(1, 2), client=_apart)
        assert len(strategy.state.communities.models) == clusters
    pair = cfl(context(), gap_above=0.1, **options)
    play(pair, roster(2), range(1, 2), client=_apart)
    assert len(pair.state.communities.models) == 1
    strategy = cfl(context(), gap_above=0.1, **options)
    play(strategy, roster(12), range(1, 8))
    assert len(strategy.state.communities.models) == 3


@pytest.mark.parametrize("option", [{"mean_below": 1e-6}, {"norm_above": 1e6}])
def test_the_gate_on_norms_holds_back_a_split(option: dict[str, float]) -> None:
    strategy = cfl(context(), participation=1.0, **option)
    play(strategy, roster(12, groups=1), range(1, 2), client=_attacked)
    assert strategy.state.removed == {}


def test_a_threshold_that_decays_splits_no_more() -> None:
    # the first alpha_cross is 1 / 17: below 0.5, above 0.5 * 0.01^2
    options = {"participation": 1.0, "mode": "clusters", "alpha_threshold": 0.5}
    late = cfl(context(), alpha_decay=0.01, **options)
    play(late, roster(12), range(3, 4))
    assert len(late.state.communities.models) == 1


RULES = {"median": 1e-3, "trimmed_mean": 0.3, "krum": 0.3, "multi_krum": 0.3, "bulyan": 0.3,
         "geometric_median": 0.3}  # fmt: skip


@pytest.mark.parametrize("rule", list(RULES))
def test_robust_rules_stand_a_few_liars(rule: str) -> None:
    def wild(client: int, start: np.ndarray, server_round: int) -> FitRes:
        if client in (1, 4):
            return reply(np.full_like(start, 1000.0 * (client - 2)))
        return honest(client - client % 3, start, server_round)

    strategy = robust(context(), participation=1.0, rule=rule, malicious=2, trim=0.2)
    play(strategy, roster(12, groups=1), range(1, 10), client=wild)
    np.testing.assert_allclose(strategy.state.communities.models[0], TARGETS[0], atol=0.3)


@pytest.mark.parametrize("rule", list(RULES))
def test_robust_rules_take_any_number_of_replies(rule: str) -> None:
    for clients in range(1, 8):
        strategy = robust(context(), participation=1.0, rule=rule, malicious=3)
        play(strategy, roster(clients, groups=1), range(1, 3))
        assert np.isfinite(strategy.state.communities.models).all()


def test_a_split_into_clusters_of_noise_is_given_up_and_there_are_no_others() -> None:
    def alike(client: int, start: np.ndarray, server_round: int) -> FitRes:
        noise = np.random.default_rng(client).normal(0, 1.0, SIZE)
        return reply((0.5 * start + noise).astype(np.float32))

    split_soon = {"gap_above": None, "alpha_threshold": 0.9, "fallback": True}
    strategy = builder("cfl_clusters", participation=1.0, **split_soon)(context(rounds=20))
    kinds = []
    for now in range(1, 20):
        play(strategy, roster(12), range(now, now + 1), client=alike)
        kinds += [event.kind for event in strategy.events]
    # each client was alone at last, and two of them gain by that
    assert kinds.index("fell back") == len(kinds) - 1
    assert sorted(np.bincount(list(strategy.state.communities.members.values()))) == [1, 1, 10]
    assert strategy.state.settled


def test_no_cluster_is_asked_as_a_whole_once_a_split_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strategy = cfl(context(), participation=0.5, mode="clusters", alpha_threshold=0.5)
    play(strategy, roster(12), range(1, 2))
    assert strategy.state.due == {0}
    strategy.state.due = set()
    undone = [Event(UNDONE, "2 communities are one again")]
    monkeypatch.setattr("fl_app.strategies.cfl.decide", lambda *_: undone)
    play(strategy, roster(12), range(2, 3))
    assert strategy.state.settled
    assert strategy.state.due == set()


MANY = 200
"""Parameters of the model below: in few dimensions, noise alone can look like groups."""


@pytest.fixture
def wide_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let toy clients compare models of MANY parameters."""
    monkeypatch.setattr("fl_app.testing.toy.TARGETS", np.zeros((3, MANY), np.float32))


def _wide(*, contrast: bool) -> Cfl:
    layout, initial = Layout(("w",), ((MANY,),), 1), np.zeros(MANY, np.float32)
    given = context(contrast=contrast, layout=layout, initial=initial)
    return cfl(given, participation=1.0, mode="clusters", alpha_threshold=0.5, fallback=False)


def _noisy(groups: int) -> Callable[[int, np.ndarray, int], FitRes]:
    """Return clients whose updates are mostly noise, of this number of groups."""

    def client(number: int, start: np.ndarray, server_round: int) -> FitRes:
        noise = np.random.default_rng((number, server_round)).normal(0, 0.05, MANY)
        signal = np.eye(MANY)[number % groups]
        return reply((start + 0.3 * signal + noise).astype(np.float32))

    return client


@pytest.mark.usefixtures("wide_targets")
def test_with_contrast_clusters_are_split_by_cumulated_updates_alone() -> None:
    found = {}
    for contrast in (True, False):
        strategy = _wide(contrast=contrast)
        play(strategy, roster(12), range(1, 13), client=_noisy(groups=3))
        found[contrast] = parts(strategy)
    assert found[True] == {frozenset(range(group, 12, 3)) for group in range(3)}
    assert len(found[False]) > 3


@pytest.mark.usefixtures("wide_targets")
def test_with_contrast_clients_of_one_kind_stay_one_cluster() -> None:
    strategy = _wide(contrast=True)
    play(strategy, roster(12), range(1, 13), client=_noisy(groups=1))
    assert len(strategy.state.communities.models) == 1


def test_contrast_refuses_conditions_on_norms() -> None:
    with pytest.raises(ValueError, match=r"mean_below.*must be null.*got 0.5 and None"):
        cfl(context(contrast=True), mean_below=0.5)
