"""`graph.contrast=both`: contrast where it finds communities, else the method's own graph."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from contrasted import CLIENTS, MANY, Client, wide, widen
from flwr.common import FitIns, FitRes, Scalar
from told import told_losses

from fl_app import config
from fl_app.evaluation.benefit import Verdict
from fl_app.graph.communities import canonical
from fl_app.learner_reports import HELD_OUT, packed
from fl_app.records.history import UNDONE
from fl_app.server_wiring import strategy as built_strategy
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.changing import ChangingCommunities
from fl_app.strategies.fallback import fallen_back
from fl_app.strategies.state import load, save
from fl_app.strategies.trial import JudgedState
from fl_app.testing.toy import builder, parts, play, reply, roster
from fl_app.types import Vector

ONCE: dict[str, Any] = {"cluster_round": 3}
METHODS: dict[str, dict[str, Any]] = {
    "flic": ONCE,
    "late": ONCE,
    "hierarchical": ONCE,
    "cfl": {"mode": "clusters", "alpha_threshold": 0.5},
    "communities": {},
    "dcfl": {},
}
EVERY_ROUND = ("communities", "dcfl")
ONCE_METHODS = [name for name, options in METHODS.items() if options is ONCE]


@pytest.fixture(autouse=True)
def _wide_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    widen(monkeypatch)


def _built(name: str, *, auto: bool = True, rounds: int = 20, **options: Any) -> CommunityStrategy:
    chosen = METHODS[name] | {"fallback": "auto", "participation": 1.0} | options
    return builder(name, **chosen)(wide(or_own=auto, rounds=rounds))


def _steps(directions: np.ndarray, noise: float = 0.01) -> Client:
    """Return clients that step by their row (n, MANY), and noise."""

    def client(number: int, start: np.ndarray, server_round: int) -> FitRes:
        draw = np.random.default_rng((number, server_round))
        return reply((start + directions[number] + draw.normal(0, noise, MANY)).astype(np.float32))

    return client


PAIRS = np.outer([0.3, 0.3, -0.3, -0.3], np.eye(MANY)[9])
"""Two directions, each of two clients, whom contrast never tells apart."""
GROUPS = np.eye(3, MANY)[np.arange(CLIENTS) % 3]
TWO = {frozenset({0, 1}), frozenset({2, 3})}


@pytest.mark.parametrize("name", list(METHODS))
def test_where_contrast_finds_one_community_the_own_graph_is_asked(name: str) -> None:
    found = {}
    for auto in (False, True):
        strategy = _built(name, auto=auto, fallback=False)
        play(strategy, roster(4), range(1, 4), client=_steps(PAIRS))
        found[auto] = parts(strategy)
    assert found == {False: {frozenset(range(4))}, True: TWO}
    view = strategy.view(3)
    assert view is not None
    assert view.labels.tolist() == [0, 0, 1, 1]


ACROSS = (np.arange(CLIENTS) >= 6).astype(int)
"""Two communities, each with clients of all GROUPS."""


def _own_finds(
    monkeypatch: pytest.MonkeyPatch, strategy: CommunityStrategy, labels: np.ndarray
) -> None:
    """Let the own graph of a method find these communities (n,)."""
    state: Any = strategy.state
    monkeypatch.setattr(state.graph, "labels", lambda among=None: labels)


@pytest.mark.parametrize("name", ONCE_METHODS)
def test_where_contrast_knows_nobody_the_own_graph_is_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _built(name, fallback=False)
    _own_finds(monkeypatch, strategy, np.array([0, 1]))
    play(strategy, roster(2), range(1, 4), client=_steps(PAIRS))
    state: Any = strategy.state
    assert len(state.sums) == 0
    assert parts(strategy) == {frozenset({0}), frozenset({1})}
    assert state.clustered_at == 3


@pytest.mark.parametrize(
    ("share", "rounds", "asked"),
    [(0.5, 30, 8), (0.5, 18, 8), (0.5, 17, 7), (0.5, 13, 3), (0.1, 40, 3)],
)
@pytest.mark.parametrize("name", ["flic", "late"])
def test_where_few_train_the_own_graph_waits_if_contrast_knows_anybody(
    name: str, share: float, rounds: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client trains in 4 of 8 rounds, no wait is longer than until 10 are left.

    A single reply in a round shows no drift, by which contrast would know the client.
    """
    strategy = _built(name, rounds=rounds, participation=share, fallback=False)
    state: Any = strategy.state
    monkeypatch.setattr(state.sums, "labels", lambda among: np.zeros(len(among), int))
    monkeypatch.setattr(state.graph, "labels", lambda among: np.arange(len(among)) % 2)
    counts = []
    for now in range(1, min(asked + 3, rounds + 1)):
        play(strategy, roster(CLIENTS), range(now, now + 1), client=_steps(GROUPS))
        counts.append(len(state.communities.models))
    assert counts == [1 if now < asked else 2 for now in range(1, len(counts) + 1)]


@pytest.mark.parametrize("name", ONCE_METHODS)
def test_what_contrast_finds_while_the_own_graph_waits_stays(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _built(name, rounds=40, participation=0.5, fallback=False)
    state: Any = strategy.state
    sums, groups = state.sums.vectors, 1

    def labels(among: np.ndarray | None = None) -> np.ndarray:
        rows = np.arange(len(sums.client_ids)) if among is None else among
        return canonical(sums.ids_of(rows) % groups)

    monkeypatch.setattr(state.sums, "labels", labels)
    monkeypatch.setattr(state.graph, "labels", lambda among: np.arange(len(among)) % 2)
    for now in range(1, 20):
        groups = 1 if now < 6 else 3
        play(strategy, roster(CLIENTS), range(now, now + 1), client=_steps(GROUPS))
        assert not _by_own(strategy)
        assert state.waits == (3 <= now < 6)
    assert state.clustered_at == 6
    assert len(parts(strategy)) == 3


@pytest.mark.parametrize("name", list(METHODS))
def test_where_contrast_finds_several_they_are_the_communities(name: str) -> None:
    one, other = (_built(name, auto=auto, fallback=False) for auto in (False, True))
    for each in (one, other):
        play(each, roster(CLIENTS), range(1, 5), client=_steps(GROUPS))
    assert parts(other) == parts(one) == {frozenset(range(k, CLIENTS, 3)) for k in range(3)}
    view = other.view(4)
    assert view is not None
    assert view.distance is None  # they are of the cumulated updates


@pytest.mark.parametrize("name", list(METHODS))
def test_a_resumed_run_is_the_same(name: str) -> None:
    straight, first, second = (_built(name, fallback=True) for _ in range(3))
    play(straight, roster(4), range(1, 7), client=_steps(PAIRS))
    play(first, roster(4), range(1, 4), client=_steps(PAIRS))
    load(second.state, *save(first.state))
    play(second, roster(4), range(4, 7), client=_steps(PAIRS))
    assert second.state.communities.members == straight.state.communities.members
    models = straight.state.communities.models
    np.testing.assert_array_equal(second.state.communities.models, models)


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("name", EVERY_ROUND)
def test_who_fell_back_is_judged_anew_where_contrast_replaces_the_own_communities(
    name: str, auto: bool
) -> None:
    strategy = _built(name, auto=auto, fallback=True)
    assert isinstance(strategy, ChangingCommunities)
    play(strategy, roster(CLIENTS), range(1, 2), client=_steps(GROUPS))
    state, common = strategy.state, strategy.context.initial
    state.communities = fallen_back(
        state.communities, Verdict(True, clients=frozenset({0})), common
    )
    state.fallen, state.by_sums = {0}, False
    play(strategy, roster(CLIENTS), range(2, 6), client=_steps(GROUPS))
    own = frozenset({0}) if not auto else frozenset()
    planted = {frozenset(range(k, CLIENTS, 3)) - own for k in range(3)}
    assert parts(strategy) == planted | ({own} - {frozenset()})


def _say(monkeypatch: pytest.MonkeyPatch, strategy: CommunityStrategy, own: float) -> None:
    """Let clients tell this loss of their community's model, and 1 of the common one."""

    def compared(start: Vector, target: Vector, ins: FitIns) -> dict[str, Scalar]:
        assert isinstance(strategy.state, JudgedState)
        losses = told_losses(strategy.state, start, own, 1.0)
        return dict(packed(ins.config, {HELD_OUT: losses}))

    monkeypatch.setattr("fl_app.testing.toy.compared", compared)


def _events(strategy: CommunityStrategy, clients: int, rounds: range, client: Client) -> list[str]:
    kinds = []
    for now in rounds:
        play(strategy, roster(clients), range(now, now + 1), client=client)
        kinds += [event.kind for event in strategy.events]
    return kinds


@pytest.mark.parametrize("name", list(METHODS))
def test_after_the_own_communities_were_undone_contrast_looks_on(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _built(name, rounds=16)
    _say(monkeypatch, strategy, 2.0)
    assert UNDONE in _events(strategy, 4, range(1, 9), _steps(PAIRS))
    assert len(parts(strategy)) == 1
    _say(monkeypatch, strategy, 0.5)
    play(strategy, roster(CLIENTS), range(9, 17), client=_steps(3 * GROUPS))
    first = set(range(4))
    late = {part - first for part in parts(strategy)} - {frozenset()}
    assert late == {frozenset(range(k, CLIENTS, 3)) - first for k in range(3)}


def _by_own(strategy: CommunityStrategy) -> bool:
    """Return whether there are several communities, of the own graph."""
    state: Any = strategy.state
    if len(state.communities.models) == 1:
        return False
    return not state.by_sums if isinstance(strategy, ChangingCommunities) else state.by_own


@pytest.mark.parametrize("name", [name for name in METHODS if name != "cfl"])
def test_own_communities_across_groups_give_way_to_those_of_contrast(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _built(name, rounds=40)
    _say(monkeypatch, strategy, 1.0)
    _own_finds(monkeypatch, strategy, ACROSS)
    found = list[tuple[bool, int]]()
    for now in range(1, 20):
        client = _steps(GROUPS * (now > 3), noise=0.2)
        play(strategy, roster(CLIENTS), range(now, now + 1), client=client)
        assert isinstance(strategy.state, JudgedState)
        found.append((_by_own(strategy), strategy.state.split_at))
    own = [now for now, each in enumerate(found, 1) if each[0]]
    assert found[own[0] - 1] == (True, own[0])
    assert found[own[-1]] == (False, own[-1] + 1)  # their trial began
    assert parts(strategy) == {frozenset(range(k, CLIENTS, 3)) for k in range(3)}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "cfl"])
def test_contrast_does_not_find_own_communities_of_noise_by_how_their_models_move(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All clients follow the model that they start from, so that those of noise move apart."""

    def client(number: int, start: np.ndarray, server_round: int) -> FitRes:
        noise = np.random.default_rng((number, server_round)).normal(0, 0.05, MANY)
        return reply((1.5 * start + np.eye(MANY)[0] + noise).astype(np.float32))

    strategy = _built(name, fallback=False)
    _own_finds(monkeypatch, strategy, ACROSS)
    play(strategy, roster(CLIENTS), range(1, 14), client=client)
    assert len(strategy.state.communities.models) == 2
    assert _by_own(strategy)


@pytest.mark.parametrize("name", ONCE_METHODS)
def test_own_communities_stay_until_contrast_does_more_than_join_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = _built(name, fallback=False)
    state: Any = strategy.state
    _own_finds(monkeypatch, strategy, np.arange(CLIENTS) % 6)
    found = {"sums": np.arange(CLIENTS) % 2}
    monkeypatch.setattr(state.sums, "labels", lambda among=None: found["sums"])
    play(strategy, roster(CLIENTS), range(1, 4), client=_steps(GROUPS))
    assert len(parts(strategy)) == 6
    state.evaluated = {CLIENTS: 5}
    found["sums"] = np.arange(CLIENTS) % 3
    play(strategy, roster(CLIENTS), range(4, 8), client=_steps(GROUPS))
    assert len(parts(strategy)) == 6
    assert state.by_own
    found["sums"] = np.arange(CLIENTS) % 4
    play(strategy, roster(CLIENTS), range(8, 12), client=_steps(GROUPS))
    assert len(parts(strategy)) == 4
    assert not state.by_own
    assert not state.evaluated  # there is no row 5 any more


@pytest.mark.parametrize("name", ONCE_METHODS)
def test_contrast_looks_at_each_community_of_the_own_graph_by_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the groups of six clients, but among the noise of all twelve no more."""
    strategy = _built(name, fallback=False)
    state: Any = strategy.state
    _own_finds(monkeypatch, strategy, ACROSS)
    six = np.arange(6) % 3

    def labels(among: np.ndarray | None = None) -> np.ndarray:
        return six if among is not None and len(among) == 6 else np.zeros(CLIENTS, int)

    monkeypatch.setattr(state.sums, "labels", labels)
    play(strategy, roster(CLIENTS), range(1, 8), client=_steps(GROUPS))
    assert len(parts(strategy)) == 2
    play(strategy, roster(CLIENTS), range(8, 9), client=_steps(GROUPS))
    assert parts(strategy) == {frozenset(range(k, k + 6, 3)) for k in (0, 1, 2, 6, 7, 8)}
    assert not state.by_own


@pytest.mark.parametrize(("words", "own"), [([], True), (["privacy=sample_dp"], False)])
def test_with_a_privacy_the_own_graph_is_not_asked(words: list[str], own: bool) -> None:
    given = config.load(["data=digits", "strategy=flic", "graph.contrast=both", *words])
    found = built_strategy(given).context
    assert (found.contrast, found.or_own) == (True, own)


@pytest.mark.parametrize(
    ("words", "both"),
    [
        ("strategy=flic", (True, True)),
        ("strategy=late", (True, True)),
        ("strategy=hierarchical", (True, True)),
        ("strategy=flic privacy=sample_dp", (True, False)),
        ("strategy=late privacy=sample_dp", (False, False)),
        ("strategy=hierarchical privacy=sample_dp", (False, False)),
        ("strategy=flic fallback=false", (False, False)),
        ("strategy=flic graph.sparse_above=5", (False, False)),
        ("strategy=communities", (False, False)),
        ("strategy=fedavg", (False, False)),
    ],
)
def test_by_default_only_methods_that_gain_have_both(words: str, both: tuple[bool, bool]) -> None:
    found = built_strategy(config.load(["data=digits", *words.split()])).context
    assert (found.contrast, found.or_own) == both


def test_every_method_can_be_told_to_have_no_contrast() -> None:
    config.load(["strategy=fedavg", "graph.contrast=false"])


def test_both_graphs_have_their_settings() -> None:
    config.load(["strategy=late", "graph.contrast=both", "graph.neighbours=9"])
    config.load(["strategy=cfl_clusters", "graph.contrast=both", "strategy.mean_below=0.5"])
    config.load(["strategy=hierarchical", "graph.contrast=both", "strategy.threshold=2"])
    with pytest.raises(config.ConfigError, match=r"graph.store must be auto, exact or disk"):
        config.load(["strategy=late", "graph.contrast=both", "graph.store=sketch"])
