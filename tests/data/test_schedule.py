"""Who joins, leaves, drifts and is away, all known from the seed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fl_app.config import load
from fl_app.data.schedule import Change, Schedule
from fl_app.wiring import made

digits = partial(made, "data=digits")
label_swap = partial(made, "population=label_swap")


def _schedule(seed: int = 0, clients: int = 12, rounds: int = 30, **options: object) -> Schedule:
    return Schedule(replace(load([]).dynamics, **options), clients, rounds, seed)


def test_without_dynamics_nothing_ever_changes() -> None:
    schedule = _schedule()
    assert schedule.still
    assert schedule.first == 12
    assert schedule.absent(30) == set() == schedule.unavailable(30)


def test_newcomers_are_the_last_ids_and_absent_until_they_join() -> None:
    schedule = _schedule(newcomers=2, join_every=10)
    assert schedule.first == 8
    assert schedule.changes(11) == [Change("joined", (8, 9))]
    assert schedule.changes(21) == [Change("joined", (10, 11))]
    assert schedule.absent(10) == {8, 9, 10, 11}
    assert schedule.absent(11) == {10, 11}
    assert schedule.absent(21) == set()
    named = _schedule(newcomers=1, join_rounds=[3, 5])
    assert [named.absent(r) for r in (2, 3, 5)] == [{10, 11}, {11}, set()]


def test_leavers_are_drawn_by_the_seed_and_never_come_back() -> None:
    schedule = _schedule(leavers=3, leave_rounds=[4, 9])
    first, second = schedule.changes(4)[0].clients, schedule.changes(9)[0].clients
    assert len(first) == len(second) == 3
    assert not set(first) & set(second)
    assert schedule.absent(3) == set()
    assert schedule.absent(30) == set(first) | set(second)
    assert _schedule(leavers=3, leave_rounds=[4, 9]).changes(4) == schedule.changes(4)
    assert _schedule(1, leavers=3, leave_rounds=[4, 9]).changes(4) != schedule.changes(4)


def test_drift_moves_a_client_to_the_next_group() -> None:
    schedule = _schedule(drifters=2, drift_rounds=[5, 6])
    (change,) = schedule.changes(5)
    client = change.clients[0]
    assert schedule.stage(client, 4) == 0
    assert schedule.stage(client, 5) == 1
    planted = {c: c % 3 for c in range(12)}
    after = schedule.regrouped(planted, 5)
    assert after[client] == (planted[client] + 1) % 3
    assert {c for c in planted if after[c] != planted[c]} == set(change.clients)
    assert schedule.regrouped(dict.fromkeys(range(12), -1), 5) == dict.fromkeys(range(12), -1)
    assert schedule.regrouped({}, 5) == {}


@pytest.mark.parametrize(
    ("drift", "turned", "planted", "drifts", "after"),
    [
        ("group", False, 3, [0, 1, 3], [[0, 1, 2], [1, 2, 0], [0, 1, 2]]),
        ("labels", False, 1, [0, 1, 2], [[0], [1], [2]]),
        ("labels", True, 2, [0, 1, 2], [[0, 1], [2, 3], [4, 5]]),
        ("rotation", False, 2, [0, 1, 3, 4], [[0, 1], [2, 3], [6, 7], [0, 1]]),
        # rotated groups: 90 degrees are the step of four groups, and half of that of two
        ("rotation", True, 4, [0, 1, 5], [[0, 1, 2, 3], [1, 2, 3, 0], [1, 2, 3, 0]]),
        ("rotation", True, 2, [0, 1, 2, 3], [[0, 1], [3, 6], [1, 0], [6, 3]]),
        # 0, 120, 240 become 90, 210, 330 and then 180, 300, 60
        ("rotation", True, 3, [1, 2, 4], [[5, 8, 11], [7, 10, 4], [0, 1, 2]]),
    ],
)
def test_a_drift_leads_into_the_group_of_the_same_data(
    drift: str, turned: bool, planted: int, drifts: list[int], after: list[list[int]]
) -> None:
    schedule = replace(_schedule(drift=drift), turned=turned)
    assert [[schedule._after(g, planted, n) for g in range(planted)] for n in drifts] == after


def test_drifted_labels_are_groups_of_their_own() -> None:
    schedule = _schedule(drifters=2, drift_rounds=[5], drift="labels")
    (change,) = schedule.changes(5)
    after = schedule.regrouped(dict.fromkeys(range(12), 0) | {11: -1}, 5)
    assert {client for client, group in after.items() if group == 1} == {*change.clients} - {11}


def test_availability_is_the_share_of_rounds_that_a_client_is_there() -> None:
    schedule = _schedule(clients=50, availability=0.7)
    away = [schedule.unavailable(r) for r in range(1, 101)]
    assert np.mean([len(each) for each in away]) == pytest.approx(15, abs=1)
    assert away[0] != away[1]
    assert away[0] == _schedule(clients=50, availability=0.7).unavailable(1)
    regular = _schedule(clients=10, availability=0.5, pattern="periodic", period=4)
    counts = np.zeros(10)
    for r in range(1, 9):
        counts[list(regular.unavailable(r))] += 1
    assert counts.tolist() == [4] * 10
    assert regular.unavailable(1) == regular.unavailable(5)


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_share_of_a_period_is_a_number_of_rounds(percent: int) -> None:
    regular = _schedule(clients=100, availability=percent / 100, pattern="periodic", period=100)
    assert len(regular.unavailable(7)) == 100 - percent


def test_more_changes_than_clients_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lets 12 of .* join later and 0 leave"):
        _schedule(newcomers=6, join_rounds=[2, 3]).check()
    with pytest.raises(ValueError, match="drifters must be at most the 12"):
        _schedule(drifters=13, drift_rounds=[2]).check()


def test_changes_without_a_round_are_refused() -> None:
    for number, what in (("newcomers", "join"), ("leavers", "leave"), ("drifters", "drift")):
        with pytest.raises(ValueError, match=rf"{number}=2 needs .* give .*\.{what}_every or"):
            _schedule(**{number: 2}).check()
        _schedule(**{number: 2, f"{what}_rounds": [99]}).check()  # after the last round
        _schedule(**{number: 0, f"{what}_every": 5}).check()  # as in a sweep over the number


def test_data_drift_as_the_schedule_says() -> None:
    data = digits(seed=0)
    people = label_swap(data, seed=0, clients=6, groups=3)
    plain, moved = people.client(0), people.client(0, drifts=1)
    swapped = {0: 1, 1: 0, 2: 2}
    assert [swapped.get(int(y), int(y)) for y in data.train_labels[people.train[0]]] == (
        plain.train_labels.tolist()
    )
    assert set(np.flatnonzero(plain.train_labels != moved.train_labels)) == set(
        np.flatnonzero(np.isin(data.train_labels[people.train[0]], [0, 1, 2, 3]))
    )
    turned = people.client(0, drifts=1, drift="rotation")
    assert np.array_equal(turned.train_images, np.rot90(plain.train_images, 1, (2, 3)))
    shifted = people.client(0, drifts=2, drift="labels")
    assert np.array_equal(shifted.train_labels, (plain.train_labels + 2) % 10)
