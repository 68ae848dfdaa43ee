"""The trial of a split: what clients get and tell in it, and what becomes of the communities."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from collections.abc import Callable

from flwr.common import FitRes
from told import told_losses

from fl_app.evaluation.benefit import Verdict
from fl_app.learner_reports import HELD_OUT, HELD_OUT_PARTS, PREFIX, asked
from fl_app.params import from_bytes
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.records.history import FELL_BACK, KEPT, UNDONE
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.fallback import LOOKS, PROLONGED, decide, fallen_back
from fl_app.strategies.flic import Flic
from fl_app.strategies.state import Communities, load, save
from fl_app.strategies.trial import JudgedState, begin
from fl_app.testing.toy import SIZE, builder, context, honest, play, reply, roster

AT, END = 3, 3 + LOOKS[0]
CLEAR = AT + 2
"""The first round after the split in which the two models differ that clients compare."""
NOTHING: frozenset[int] = frozenset()


def _flic(rounds: int = 10) -> Flic:
    made = builder("flic", participation=1.0, cluster_round=AT, fallback="auto")(
        context(rounds=rounds)
    )
    assert isinstance(made, Flic)
    return made


def _alike(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """Train as if all clients were of one group, with noise that tells them apart."""
    noise = np.random.default_rng(client).normal(0, 1.0, SIZE)
    return reply((0.5 * start + noise).astype(np.float32))


def _kinds(strategy: Flic, rounds: range, client: object = honest) -> dict[int, list[str]]:
    found = {}
    for now in rounds:
        play(strategy, roster(12), range(now, now + 1), client=client)  # type: ignore[arg-type]
        if strategy.events:
            found[now] = [event.kind for event in strategy.events]
    return found


def test_groups_that_exist_are_kept_after_the_trial() -> None:
    assert _kinds(_flic(), range(1, 10)) == {AT: ["clustered"], CLEAR: ["kept"]}


def test_communities_of_noise_are_undone_and_everybody_trains_one_model() -> None:
    strategy, known = _flic(), roster(13)
    found = _kinds(strategy, range(1, END + 1), _alike)
    assert found == {AT: ["clustered"], END: ["undone"]}
    assert strategy.state.communities.models.shape == (1, SIZE)
    asked_now = strategy.configure_fit(END + 1, strategy.initialize_parameters(known), known)
    assert {known.client_id(proxy) for proxy, _ in asked_now} == set(range(13))
    view = strategy.view(END)
    assert view is not None
    assert not view.labels.any()


AGAIN = END + AT
"""The round of the second clustering, as long after the first was undone as that took to come."""


@pytest.mark.parametrize("late", [0, 1])
def test_after_an_undone_split_clients_are_clustered_again_if_it_can_be_judged(late: int) -> None:
    strategy = _flic(AGAIN + LOOKS[-1] - late)
    assert _kinds(strategy, range(1, END + 1), _alike) == {AT: ["clustered"], END: ["undone"]}
    found = _kinds(strategy, range(END + 1, AGAIN + LOOKS[0]))
    assert found == ({} if late else {AGAIN: ["clustered"], AGAIN + 2: ["kept"]})
    assert len(strategy.state.communities.models) == (1 if late else 3)


def test_a_third_clustering_waits_as_long_as_the_second_took_from_the_start() -> None:
    strategy = _flic(60)
    strategy.state.clustered_at, strategy.state.undone_at = 11, 16
    assert [now for now in range(17, 60) if strategy.clusters_after(now)] == list(range(27, 51))


def test_a_second_clustering_is_the_same_after_a_resume(tmp_path: Path) -> None:
    rounds = AGAIN + LOOKS[-1]
    straight, known = _flic(rounds), roster(12)
    play(straight, known, range(1, END + 2), client=_alike)
    write(tmp_path, Checkpoint(END + 1, *save(straight.state)))
    kept, after = read(tmp_path), _flic(rounds)
    load(after.state, kept.arrays, kept.state)
    for each in (straight, after):
        play(each, known, range(END + 2, AGAIN + 3))
    assert after.state.clustered_at == AGAIN
    np.testing.assert_array_equal(after.state.communities.models, straight.state.communities.models)


def test_who_has_no_community_trains_the_model_to_which_others_fell_back() -> None:
    strategy, known = _flic(100), roster(13)
    play(strategy, roster(12), range(1, AT + 1))
    strategy.state.communities.members = {client: client % 2 for client in range(12)}
    strategy.state.communities.models = strategy.state.communities.models[:2]
    before = strategy.state.communities
    _heard(strategy.state, [(0.9, 0.9, -0.1, 0.0)[client // 2 % 2 + 2 * (client % 2)]
                            for client in range(12)])  # fmt: skip
    strategy.state.split_at = AT + 1 - LOOKS[-1]
    strategy._judge(AT + 1)
    assert [event.kind for event in strategy.events] == ["clustered", FELL_BACK]
    assert strategy.state.communities is not before
    asked_now = strategy.configure_fit(AT + 2, strategy.initialize_parameters(known), known)
    sent = {known.client_id(p): from_bytes(ins.parameters.tensors[0]) for p, ins in asked_now}
    np.testing.assert_array_equal(sent[12], strategy.state.communities.models[-1])
    (rows,) = strategy.attribute([12])[1]
    assert list(rows) == [0, 1], "in evaluations it chooses"


def test_with_a_privacy_only_true_judges() -> None:
    strategy = builder("flic", participation=1.0, cluster_round=AT, fallback=True)(
        context(private=True)
    )
    play(strategy, roster(12), range(1, CLEAR + 1))
    assert [event.kind for event in strategy.events] == ["kept"]


@pytest.mark.parametrize(("fallback", "private"), [(False, False), ("auto", True)])
def test_without_it_nothing_is_asked(fallback: object, private: bool) -> None:
    strategy = builder("flic", participation=1.0, cluster_round=AT, fallback=fallback)(
        context(private=private)
    )
    known = roster(12)
    play(strategy, known, range(1, AT + 1))
    asks = strategy.configure_fit(AT + 1, strategy.initialize_parameters(known), known)
    assert len(asks) == 12
    for _, ins in asks:
        assert len(ins.parameters.tensors) == 1
        assert not asked(ins.config)


def test_members_compare_their_model_with_the_common_one_which_strangers_train() -> None:
    strategy, known = _flic(), roster(12)
    play(strategy, known, range(1, AT + 1))
    many = roster(13)
    play(strategy, many, range(AT + 1, AT + 2))
    state = strategy.state
    sent = {
        many.client_id(proxy): [from_bytes(tensor) for tensor in ins.parameters.tensors]
        for proxy, ins in strategy.configure_fit(AT + 2, strategy.initialize_parameters(many), many)
        if HELD_OUT in asked(ins.config)
    }
    assert len(sent) == 13
    for client in range(12):
        row = state.communities.members[client]
        np.testing.assert_array_equal(sent[client][0], state.communities.models[row])
        np.testing.assert_array_equal(sent[client][1], state.common)
    assert len(sent[12]) == 1
    np.testing.assert_array_equal(sent[12][0], state.common)


def test_the_common_model_is_the_mean_of_all_replies() -> None:
    strategy = _flic()
    play(strategy, roster(12), range(1, AT + 2))
    replies = [honest(client, strategy.context.initial, 1) for client in range(12)]
    weights = np.array([each.num_examples for each in replies], float)
    counts = [sum(weights[c] for c, r in strategy.state.communities.members.items() if r == row)
              for row in range(3)]  # fmt: skip
    expected = np.average(strategy.state.communities.models, axis=0, weights=counts)
    assert strategy.state.common is not None
    np.testing.assert_allclose(strategy.state.common, expected, atol=1e-5)


def test_a_run_that_ends_before_the_models_differ_keeps_its_communities() -> None:
    strategy = builder("flic", participation=1.0, cluster_round=AT, fallback="auto")(
        context(rounds=AT + 1)
    )
    play(strategy, roster(12), range(1, AT + 2))
    assert len(strategy.state.communities.models) == 3
    assert strategy.events == []


def _on_trial(gains: list[float]) -> JudgedState:
    """Return two communities on trial since round 0, with the mean gain of each client."""
    models = np.zeros((2, SIZE), np.float32)
    members = {client: client % 2 for client in range(len(gains))}
    state = JudgedState(communities=Communities(models, members))
    begin(state, 0)
    return _heard(state, gains)


def _heard(state: JudgedState, gains: list[float]) -> JudgedState:
    parts = HELD_OUT_PARTS // 2
    state.gains = {c: [each - 0.5, each + 0.5] * parts for c, each in enumerate(gains)}
    state.looks, state.latest = dict.fromkeys(state.gains, 1), dict(state.gains)
    return state


@pytest.mark.parametrize(
    ("gains", "kinds"),
    [
        ([0.5, 0.4, 0.6, 0.5], [KEPT]),
        ([0.5, 0.1, 0.9, 0.2], []),  # above 0.05 / 10
        ([0.9, -0.3, 0.8, -0.2, 0.9, -0.3, 0.8, -0.2], []),  # one community is harmed
        ([-0.5, -0.4, -0.6, -0.5], []),
        ([0.9, 0.9], []),  # two clients can agree on a lie
        ([0.9, 0.9, 0.1], []),
    ],
)
def test_between_the_looks_a_round_keeps_what_serves_all_and_undoes_nothing(
    gains: list[float], kinds: list[str]
) -> None:
    state = _on_trial(gains)
    assert [event.kind for event in decide(state, 2, 100)] == kinds
    assert (state.common is None) == bool(kinds)


@pytest.mark.parametrize("told", [-0.9, 0.0])
def test_with_each_client_in_view_a_round_without_a_client_keeps_only_what_it_gained_by(
    told: float,
) -> None:
    for apart, kinds in ((False, [KEPT]), (True, [])):
        state = _on_trial([0.5, 0.4, 0.6, 0.5, told])
        state.latest.pop(4)
        assert [event.kind for event in decide(state, 2, 6, apart=apart)] == kinds
    state = _on_trial([0.5, 0.4, 0.6, 0.5, 0.5])
    state.latest.pop(4)
    assert [event.kind for event in decide(state, 2, 6, apart=True)] == [KEPT]


def test_models_that_began_apart_are_kept_after_a_third_of_the_rounds_at_the_earliest() -> None:
    for rounds, kinds in ((7, []), (6, [KEPT])):
        state = _on_trial([0.5, 0.4, 0.6, 0.5])
        assert [event.kind for event in decide(state, 2, rounds, apart=True)] == kinds
        assert [event.kind for event in decide(_on_trial([0.5] * 4), 2, rounds)] == [KEPT]


@pytest.mark.parametrize(("latest", "kinds"), [(0.02, []), (0.005, [UNDONE]), (-0.1, [UNDONE])])
def test_models_that_began_apart_are_not_undone_while_their_gains_rise(
    latest: float, kinds: list[str]
) -> None:
    for at in LOOKS:
        state = _on_trial([0.01] * 8)
        state.looked = at == LOOKS[1]
        state.gains = {c: [0.01] * HELD_OUT_PARTS for c in range(8)}
        state.latest = {c: [latest] * HELD_OUT_PARTS for c in range(8)}
        assert [event.kind for event in decide(state, at, 15, apart=True)] == kinds
    if not kinds:  # then there is one more look, by what clients tell until then
        assert state.prolonged
        _heard(state, [0.0] * 8)
        assert decide(state, LOOKS[1] + 1, 100, apart=True) == []
        (event,) = decide(state, PROLONGED, 100, apart=True)
        assert event.kind == UNDONE


def test_the_gains_of_an_earlier_split_do_not_keep_the_next_one() -> None:
    state = _on_trial([0.5, 0.4, 0.6, 0.5])
    begin(state, 1)
    assert decide(state, 1, 100) == []


def test_the_first_look_undoes_nothing_before_a_third_of_the_rounds() -> None:
    harmed = [-0.5, -0.4, -0.6, -0.5]
    early, late = _on_trial(harmed), _on_trial(harmed)
    assert decide(early, LOOKS[0], 3 * LOOKS[0] + 1) == []
    assert early.gains == {}
    (event,) = decide(_heard(early, harmed), LOOKS[1], 100)
    assert event.kind == UNDONE
    (event,) = decide(late, LOOKS[0], 3 * LOOKS[0])
    assert event.kind == UNDONE


def test_a_trial_without_a_clear_result_goes_on_with_new_evidence() -> None:
    unclear, clear = [0.5, -0.4, 0.4, -0.5], [0.5, 0.4, 0.6, 0.5]
    state = _on_trial(unclear)
    assert decide(state, LOOKS[0], 100) == []
    assert state.common is not None
    assert state.gains == {}
    (event,) = decide(_heard(state, clear), LOOKS[1], 100)
    assert event.kind == KEPT
    assert state.common is None


def test_a_look_whose_round_is_skipped_is_made_in_the_next_one_and_no_other_is() -> None:
    harmed = [-0.5, -0.4, -0.6, -0.5]
    (event,) = decide(_on_trial(harmed), LOOKS[0] + 2, 20)
    assert event.kind == UNDONE
    state = _on_trial([0.5, -0.4, 0.4, -0.5])
    assert decide(state, LOOKS[0] + 1, 15) == []
    assert state.gains == {}
    assert decide(_heard(state, harmed), LOOKS[0] + 2, 15) == []
    assert len(state.gains) == len(harmed)


HOPEFUL = [0.5, 0.4, -0.1, -0.1, 0.6, 0.5, -0.2, -0.1]
"""Gains of two communities that seem to be served, but are not shown to be."""


def test_a_trial_in_which_each_community_seems_to_gain_goes_on_with_all_evidence() -> None:
    state = _on_trial(HOPEFUL)
    state.split_at = -1  # a round was lost, as one with too few replies is
    assert decide(state, LOOKS[-1], 100) == []
    assert state.prolonged
    assert len(state.gains) == len(HOPEFUL)
    clear = [0.5, 0.4, 0.6, 0.5]
    assert decide(_heard(state, clear), LOOKS[-1] + 1, 100) == [], "no look between these"
    (event,) = decide(state, PROLONGED - 1, 100)
    assert event.kind == KEPT


@pytest.mark.parametrize("at", [PROLONGED, LOOKS[-1] + 1])
def test_at_the_end_of_a_prolonged_trial_a_split_that_still_promises_is_kept(at: int) -> None:
    for gains, kind in ((HOPEFUL, KEPT), ([0.5, 0.4, -0.4, -0.5], UNDONE)):
        state = _on_trial(HOPEFUL)
        assert decide(state, LOOKS[-1], 100) == []
        (event,) = decide(_heard(state, gains), at, 100 if at == PROLONGED else at)
        assert event.kind == kind


@pytest.mark.parametrize(("server_round", "rounds"), [(LOOKS[-1], 100), (LOOKS[0], LOOKS[0])])
def test_at_its_end_a_split_that_does_not_promise_is_undone(server_round: int, rounds: int) -> None:
    state = _on_trial([0.5, 0.4, -0.4, -0.5])
    (event,) = decide(state, server_round, rounds)
    assert event.kind == UNDONE
    assert len(state.communities.models) == 1


@pytest.mark.parametrize(("rounds", "kind"), [(100, UNDONE), (LOOKS[1], KEPT)])
def test_in_the_last_round_what_is_better_by_little_is_kept(rounds: int, kind: str) -> None:
    """Its gains are less than WORTH, and one model has no round left to learn more in."""
    (event,) = decide(_on_trial([0.010, 0.011, 0.009, 0.010]), LOOKS[1], rounds)
    assert event.kind == kind


@pytest.mark.parametrize(
    ("gains", "kinds"),
    [
        ([0.5, 0.4, -0.4, -0.5], []),
        ([0.010, 0.011, 0.009, 0.010], [KEPT]),  # less than WORTH
        ([-0.010, -0.011, -0.009, -0.010], [UNDONE]),
    ],
)
def test_a_run_that_ends_before_the_first_look_undoes_only_what_is_worse(
    gains: list[float], kinds: list[str]
) -> None:
    state, now = _on_trial(gains), LOOKS[0] - 1
    assert [event.kind for event in decide(state, now, now)] == kinds
    assert state.common is None
    assert len(state.communities.models) == (1 if kinds == [UNDONE] else 2)


def test_only_a_community_that_gains_stays_and_earlier_choices_are_forgotten() -> None:
    state = _on_trial([0.9, -0.1, 0.8, -0.2, 0.9, 0.1, 0.8, 0.0])
    state.evaluated = {99: 1}
    (event,) = decide(state, LOOKS[1], 100)
    assert (event.kind, event.clients) == (FELL_BACK, [1, 3, 5, 7])
    assert state.communities.members == {client: client % 2 for client in range(8)}
    assert state.evaluated == {}


def test_who_falls_back_forms_a_community_of_the_common_model() -> None:
    models = np.arange(3, dtype=np.float32)[:, None] * np.ones(SIZE, np.float32)
    now, common = Communities(models, {0: 0, 1: 1, 2: 2, 3: 2}), np.full(SIZE, 9.0, np.float32)
    left = fallen_back(now, Verdict(True, frozenset({1}), frozenset({3})), common)
    np.testing.assert_array_equal(left.models[:, 0], [0.0, 2.0, 9.0])
    assert left.members == {0: 0, 1: 2, 2: 1, 3: 2}
    assert fallen_back(now, Verdict(True, NOTHING, NOTHING), common) is now
    one = fallen_back(now, Verdict(False, frozenset({1}), NOTHING), common)
    np.testing.assert_array_equal(one.models, common[None, :])
    assert one.members == dict.fromkeys(range(4), 0)


@pytest.mark.parametrize("name", ["communities", "communities_wnn", "dcfl"])
def test_communities_of_every_round_are_undone_as_a_whole(name: str, tmp_path: Path) -> None:
    strategy, known, kinds = (
        builder(name, participation=1.0, fallback="auto")(context()),
        roster(12),
        [],
    )
    for now in range(1, 9):
        play(strategy, known, range(now, now + 1), client=_harmed(strategy))
        kinds += [event.kind for event in strategy.events]
    assert kinds[-1] == UNDONE
    models, rows = strategy.attribute([0, 5, 77])
    assert len({models[row].tobytes() for (row,) in rows}) == 1
    write(tmp_path, Checkpoint(8, *save(strategy.state)))
    kept, after = read(tmp_path), builder(name, participation=1.0, fallback="auto")(context())
    load(after.state, kept.arrays, kept.state)
    for each in (strategy, after):
        play(each, known, range(9, 10), client=_harmed(each))
    np.testing.assert_array_equal(after.attribute([3])[0], strategy.attribute([3])[0])
    view = after.view(9)
    assert view is not None
    assert not view.labels.any()


def _harmed(strategy: CommunityStrategy) -> Callable[[int, np.ndarray, int], FitRes]:
    """Return honest clients, except that they say that their community's model is worse."""

    def client(each: int, start: np.ndarray, server_round: int) -> FitRes:
        answer = honest(each, start, server_round)
        if 1 < server_round <= 1 + LOOKS[0]:
            losses = told_losses(strategy.state, start, 2.0, 1.0)
            answer.metrics[f"{PREFIX}{HELD_OUT}"] = losses.tobytes()
        return answer

    return client
