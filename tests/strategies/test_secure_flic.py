"""FLIC from secure sums: who is asked for what, and what becomes of sketches and sums."""

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_app.client.accountant import Release
from fl_app.masking.slots import SlotSums
from fl_app.records.checkpoint import Checkpoint, read, write
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.roster import Roster
from fl_app.strategies.secure_flic import SecureFlic
from fl_app.strategies.state import load, save
from fl_app.testing.toy import SIZE, context, roster
from fl_app.types import Sketch
from fl_app.wiring import made

CLIENTS = 12
SMALL = {"participation": 1.0, "cluster_round": 3, "epsilon": inf, "dimension": 2, "smallest": 3}


def _method(**changes: Any) -> SecureFlic:
    built: SecureFlic = made("strategy=secure_flic", context(), **{**SMALL, **changes})
    return built


def _asked(method: SecureFlic, server_round: int, known: Roster) -> dict[int, int]:
    """Return how many models each asked client gets."""
    given = method.configure_fit(server_round, method.initialize_parameters(known), known)
    return {known.client_id(proxy): len(ins.parameters.tensors) for proxy, ins in given}


def _sums(*rows: tuple[int, float]) -> SlotSums:
    """Return the sums of communities with these counts, whose mean update is a constant."""
    counts = np.array([count for count, _ in rows])
    updates = np.array([[value] * SIZE for _, value in rows], np.float32)
    return SlotSums(counts, counts.astype(float), np.ones(len(rows)), updates)


def _sketches(*clients: int) -> dict[int, Sketch]:
    """Return sketches of two groups, even and odd clients, each a little different."""
    return {
        each: np.array([1 - 2 * (each % 2), each / 100], np.float32)
        for each in clients or range(12)
    }


def _clustered(known: Roster, **changes: Any) -> SecureFlic:
    method = _method(**changes)
    for server_round in (1, 2):
        _asked(method, server_round, known)
        method.aggregate_sums(server_round, _sums((CLIENTS, 0.5)))
    _asked(method, 3, known)
    method.aggregate_sketches(3, _sketches())
    return method


def test_clients_train_one_model_then_tell_a_sketch_and_then_train_their_community() -> None:
    known = roster(CLIENTS)
    method = _method()
    for server_round in (1, 2):
        assert _asked(method, server_round, known) == dict.fromkeys(range(CLIENTS), 1)
        assert not any(method.releases(each, server_round) for each in range(CLIENTS))
        method.aggregate_sums(server_round, _sums((CLIENTS, 0.5)))
    assert _asked(method, 3, known) == dict.fromkeys(range(CLIENTS), 1)
    assert all(method.releases(each, 3) for each in range(CLIENTS))
    method.aggregate_sketches(3, _sketches())
    assert method.state.communities.members == {each: each % 2 for each in range(CLIENTS)}
    assert method.state.communities.models.tolist() == [[1.0] * SIZE] * 2
    assert [each.kind for each in method.events] == ["clustered"]
    assert method.outcome(3).measures
    assert _asked(method, 4, known) == dict.fromkeys(range(CLIENTS), 1)
    assert not any(method.releases(each, 4) for each in range(CLIENTS))
    method.aggregate_sums(4, _sums((6, 1.0), (6, -2.0)))
    assert method.state.communities.models.tolist() == [[2.0] * SIZE, [-1.0] * SIZE]
    view = method.view(4)
    assert view is not None
    assert view.labels.tolist() == [0, 1] * 6


def test_the_participation_holds_in_each_community() -> None:
    method = _clustered(roster(CLIENTS))
    method.sampler.participation = 0.5
    cohort = _asked(method, 4, roster(CLIENTS))
    assert sorted(each % 2 for each in cohort) == [0] * 3 + [1] * 3


def test_a_late_client_is_asked_again_and_joins_the_nearest_community() -> None:
    known, method = roster(CLIENTS), _method()
    _asked(method, 1, known)
    _asked(method, 3, known)
    method.aggregate_sketches(3, _sketches(*range(10)))
    assert _asked(method, 4, known) == {**dict.fromkeys(range(10), 1), 10: 2, 11: 2}
    assert [each for each in range(CLIENTS) if method.releases(each, 4)] == [10, 11]
    method.aggregate_sketches(4, {11: np.array([-0.9, 0], np.float32)})
    assert method.state.communities.members[11] == 1
    assert [(each.kind, each.clients) for each in method.events] == [("joined a community", [11])]
    assert [each for each in range(CLIENTS) if method.releases(each, 5)] == [10]


def test_a_client_that_never_trained_is_asked_for_nothing() -> None:
    known = roster(CLIENTS)
    method = _clustered(known)
    other = roster(CLIENTS + 1)
    assert CLIENTS not in _asked(method, 4, other)
    _, (rows,) = method.attribute([CLIENTS])
    assert [*rows] == [0, 1]


def test_too_few_sketches_change_nothing_and_are_asked_for_again() -> None:
    known, method = roster(CLIENTS), _method(smallest=4)
    _asked(method, 1, known)
    _asked(method, 3, known)
    with pytest.raises(TooFewRepliesError, match="round 3 must have at least 4 sketches, got 3"):
        method.aggregate_sketches(3, _sketches(0, 1, 2))
    assert method.state.sketches == {}
    assert method.view(3) is None
    assert all(method.releases(each, 4) for each in range(CLIENTS))


def test_small_communities_are_closed() -> None:
    method = _clustered(roster(CLIENTS), smallest=7)
    assert set(method.state.communities.members.values()) == {0}
    assert len(method.state.communities.models) == 1


def test_each_sketch_is_booked_once() -> None:
    known, method = roster(CLIENTS), _method(epsilon=8.0)
    _asked(method, 1, known)
    before = method.outcome(1).privacy
    assert before is not None
    assert (before["epsilon"]["max"], before["released"]) == (0.0, {})
    _asked(method, 3, known)
    booked = method.outcome(3).privacy
    assert booked is not None
    assert booked["kind"] == "sketch"
    assert booked["epsilon"]["max"] == pytest.approx(8.0, rel=0.01)
    assert {*booked["epsilon"]["clients"].values()} == {booked["epsilon"]["max"]}
    assert booked["released"].keys() == {str(each) for each in range(CLIENTS)}
    release = Release(**booked["released"]["0"])
    assert release == method.release.booked
    assert release.noise_multiplier == booked["noise_multiplier"]
    method.aggregate_sketches(3, _sketches(*range(6)))
    _asked(method, 4, known)  # six of them are asked again, for the same sketch
    again = method.outcome(4).privacy
    assert again is not None
    assert again["released"] == {}
    assert again["epsilon"] == booked["epsilon"]


def test_a_round_that_is_repeated_books_who_was_asked_in_any_attempt() -> None:
    method = _method(epsilon=8.0)
    _asked(method, 1, roster(CLIENTS))
    _asked(method, 3, roster(CLIENTS - 2))
    with pytest.raises(TooFewRepliesError):
        method.aggregate_sketches(3, {})
    _asked(method, 3, roster(CLIENTS))
    booked = method.outcome(3).privacy
    assert booked is not None
    assert list(booked["released"]) == [str(each) for each in range(CLIENTS)]


@pytest.mark.parametrize("done", [2, 3, 4])
def test_a_restored_method_goes_on_as_if_nothing_had_happened(done: int, tmp_path: Path) -> None:
    known = roster(CLIENTS)

    def play(method: SecureFlic, rounds: range) -> None:
        for server_round in rounds:
            _asked(method, server_round, known)
            if server_round == 3:
                method.aggregate_sketches(3, _sketches(*range(11)))
            else:
                rows = [(6, server_round / 4)] * len(method.state.communities.models)
                method.aggregate_sums(server_round, _sums(*rows))

    whole, before, after = _method(), _method(), _method()
    play(whole, range(1, 7))
    play(before, range(1, done + 1))
    write(tmp_path, Checkpoint(done, *save(before.state)))
    kept = read(tmp_path)
    load(after.state, kept.arrays, kept.state)
    play(after, range(done + 1, 7))
    assert after.state.communities.members == whole.state.communities.members
    np.testing.assert_array_equal(after.state.communities.models, whole.state.communities.models)
    assert after.state.sketches == whole.state.sketches
    assert after.state.asked == whole.state.asked


def test_it_learns_from_no_reply() -> None:
    with pytest.raises(NotImplementedError, match="secure sums alone; give masking=secagg"):
        _method().aggregate_fit(1, [], [])
