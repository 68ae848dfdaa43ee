"""Clients that fall back to the common model where communities are found anew in every round."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from flwr.common import FitRes
from told import told_losses

from fl_app.learner_reports import HELD_OUT, PREFIX, WRONG_ADDS
from fl_app.params import from_bytes
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.records.history import FELL_BACK, KEPT
from fl_app.records.serving import community_name
from fl_app.strategies.changing import ChangingCommunities
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import LOOKS
from fl_app.strategies.serving import served
from fl_app.strategies.state import load, save
from fl_app.testing.toy import TARGETS, builder, context, honest, play, roster

Client = Callable[[int, np.ndarray, int], FitRes]
METHODS = ["communities", "communities_1nn", "communities_wnn", "dcfl"]
FEW = ["communities_wnn", "dcfl"]
FALLS = 1 + LOOKS[0]
"""The round of the first look, since the first communities are found after round 1."""
HARMED = 4
WORSE, ALIKE = (2.0, 1.0), (1.0, 1.01)
"""Losses of a client on its community's model, and on the common one."""


def _telling(strategy: ChangingCommunities, losses: tuple[float, float] = WORSE) -> Client:
    """Return honest clients, of which one tells these losses of the two models."""

    def client(each: int, start: np.ndarray, server_round: int) -> FitRes:
        answer = honest(each, start, server_round)
        if each == HARMED and strategy.state.common is not None:
            told = told_losses(strategy.state, start, *losses)
            answer.metrics[f"{PREFIX}{HELD_OUT}"] = told.tobytes()
        return answer

    return client


def _built(name: str, rounds: int = 18, **changes: object) -> ChangingCommunities:
    settings = {"participation": 1.0, "fallback": "auto", **changes}
    made = builder(name, **settings)(context(rounds=rounds))
    assert isinstance(made, ChangingCommunities)
    return made


def _model(strategy: ChangingCommunities, client: int) -> np.ndarray:
    models, ((row,),) = strategy.attribute([client])
    return np.asarray(models[row])


@pytest.mark.parametrize("name", METHODS)
def test_a_client_that_its_community_harms_gets_the_common_model_and_the_others_keep_theirs(
    name: str,
) -> None:
    strategy, known = _built(name), roster(12)
    client = _telling(strategy)
    play(strategy, known, range(1, FALLS), client=client)
    state = strategy.state
    asked_now = strategy.configure_fit(FALLS, strategy.initialize_parameters(known), known)
    assert {len(ins.parameters.tensors) for _, ins in asked_now} == {2}
    play(strategy, known, range(FALLS, FALLS + 1), client=client)
    assert [(e.kind, e.clients) for e in strategy.events if e.kind == FELL_BACK] == [
        (FELL_BACK, [HARMED])
    ]
    row = state.communities.members[HARMED]
    assert [c for c, each in state.communities.members.items() if each == row] == [HARMED]
    common = state.communities.models[row].copy()
    np.testing.assert_array_equal(_model(strategy, HARMED), common)
    play(strategy, known, range(FALLS + 1, FALLS + 2), client=client)
    trained = from_bytes(honest(HARMED, common, FALLS + 1).parameters.tensors[0])
    np.testing.assert_allclose(_model(strategy, HARMED), trained, rtol=1e-6)
    play(strategy, known, range(FALLS + 2, FALLS + 5), client=client)
    assert state.common is None
    labels = dict(zip(*_view(strategy, FALLS + 4), strict=True))
    assert [c for c, each in labels.items() if each == labels[HARMED]] == [HARMED]
    for other in set(range(12)) - {HARMED}:
        same = {c for c, each in labels.items() if each == labels[other]}
        assert same == {c for c in range(other % 3, 12, 3) if c != HARMED}
        if name != "communities_wnn":
            np.testing.assert_allclose(_model(strategy, other), TARGETS[other % 3], atol=0.05)
    names = served(strategy, range(12), FALLS + 4).clients
    assert names[HARMED] == (community_name(len(state.communities.models) - 1),)


def _view(strategy: ChangingCommunities, server_round: int) -> tuple[list[int], list[int]]:
    view = strategy.view(server_round)
    assert view is not None
    return view.client_ids.tolist(), view.labels.tolist()


@pytest.mark.parametrize("name", FEW)
def test_who_fell_back_is_the_same_after_a_resume_and_for_replies_in_another_order(
    name: str, tmp_path: Path
) -> None:
    straight = _built(name, participation=0.9)
    play(straight, roster(12), range(1, 14), client=_telling(straight))
    assert HARMED in straight.state.fallen
    write(tmp_path, Checkpoint(13, *save(straight.state)))
    kept, after = read(tmp_path), _built(name, participation=0.9)
    load(after.state, kept.arrays, kept.state)
    reverse = _built(name, participation=0.9)
    play(reverse, roster(12), range(1, 14), client=_telling(reverse), reverse=True)
    for each, order in ((straight, False), (after, False), (reverse, True)):
        play(each, roster(12), range(14, 17), client=_telling(each), reverse=order)
    models, rows = straight.attribute(range(12))
    for each in (after, reverse):
        found, given = each.attribute(range(12))
        assert list(given) == list(rows)
        np.testing.assert_array_equal(found, models)


@pytest.mark.parametrize("name", FEW)
def test_a_newcomer_joins_no_community_of_who_fell_back(name: str) -> None:
    strategy = _built(name)
    client = _telling(strategy)
    play(strategy, roster(12), range(1, FALLS + 1), client=client)
    play(strategy, roster(14), range(FALLS + 1, FALLS + 3), client=client)
    members = strategy.state.communities.members
    assert members.keys() == set(range(14))
    assert members[12] != members[HARMED] != members[13]


@pytest.mark.parametrize("name", FEW)
def test_who_fell_back_goes_on_alone_while_all_others_are_away(name: str) -> None:
    strategy, known, alone = _built(name, max_age=2), roster(12), roster(12)
    client = _telling(strategy)
    play(strategy, known, range(1, FALLS + 1), client=client)
    alone.absent = frozenset(range(12)) - {HARMED}
    play(strategy, alone, range(FALLS + 1, FALLS + 5), client=client)
    assert strategy.state.communities.members == {HARMED: 0}
    assert len(_model(strategy, 0)) == len(_model(strategy, HARMED))
    play(strategy, known, range(FALLS + 5, FALLS + 8), client=client)
    assert strategy.state.fallen == {HARMED}
    assert len(set(strategy.state.communities.members.values())) == 4


@pytest.mark.parametrize("name", FEW)
def test_a_client_that_does_not_gain_yet_puts_off_that_the_communities_are_kept(name: str) -> None:
    strategy, kept = _built(name), []
    for now in range(1, 2 + LOOKS[-1]):
        play(strategy, roster(12), range(now, now + 1), client=_telling(strategy, ALIKE))
        kept += [now for event in strategy.events if event.kind == KEPT]
    assert kept == [1 + LOOKS[-1]]


@pytest.mark.parametrize("name", ["communities", "dcfl"])
@pytest.mark.parametrize("catch_up", [True, False])
def test_who_trained_the_common_model_does_not_hold_back_its_community(
    name: str, catch_up: bool
) -> None:
    strategy, known, size = _built(name, catch_up=catch_up), roster(12), len(TARGETS[0])
    play(strategy, known, range(1, 4))
    common = len(strategy.cohort.sent) - 1
    rows = {each.client_id: each.rows for each in strategy.cohort.asked.values()}
    joint = {client for client, each in rows.items() if tuple(each) == (common,)}
    state, vectors = strategy.state, strategy.state.graph.vectors
    assert len(joint) == 6
    for row, model in enumerate(state.communities.models):
        mates = [c for c, each in state.communities.members.items() if each == row]
        fresh = sorted({*mates} - joint)
        mean = vectors.read(vectors.rows_of(fresh))[:, -size:].mean(axis=0)
        np.testing.assert_allclose(model, mean, rtol=1e-5, atol=1e-6)
        for client in {*mates} & joint:
            (last,) = vectors.read(vectors.rows_of([client]))
            np.testing.assert_allclose(last[-size:], mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "adds"), [("dcfl", True), ("communities", False), ("pacfl", False), ("flic", False)]
)
def test_wrong_answers_add_in_the_trials_of_dcfl_alone(name: str, adds: bool) -> None:
    early = {"cluster_round": 1} if name == "flic" else {}
    strategy = builder(name, participation=1.0, fallback="auto", **early)(context(rounds=18))
    known, asked = roster(12), []
    for now in (1, 2):
        asked.append(
            [ins.config for _, ins in strategy.configure_fit(now, encode(TARGETS[0]), known)]
        )
        play(strategy, known, range(now, now + 1))
    first, trial = asked
    assert not any(WRONG_ADDS in each for each in first)
    assert all(f"{PREFIX}{HELD_OUT}" in each for each in trial)
    assert {each.get(WRONG_ADDS, False) for each in trial} == {adds}
