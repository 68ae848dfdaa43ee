"""Who sits among its own, and how soon after it joined or drifted."""

import numpy as np

from fl_app.evaluation.settling import Settled, Settling, in_place


def _in_place(labels: list[int], groups: list[int]) -> list[bool]:
    return in_place(np.array(labels), np.array(groups)).tolist()


def test_most_of_the_others_must_be_of_the_same_group() -> None:
    assert _in_place([0, 0, 1, 1], [0, 0, 1, 1]) == [True] * 4
    assert _in_place([0, 0, 0, 1], [0, 0, 1, 1]) == [False, False, False, False]
    assert _in_place([0, 0, 0, 0, 1], [0, 0, 0, 1, 1]) == [True, True, True, False, False]


def test_half_of_the_others_is_not_most() -> None:
    assert _in_place([0, 0, 0], [0, 0, 1]) == [False, False, False]


def test_alone_is_right_only_without_others_of_the_group() -> None:
    assert _in_place([0, 1, 1], [2, 0, 0]) == [True, True, True]
    assert _in_place([0, 1, 2], [0, 0, 1]) == [False, False, True]
    assert _in_place([0], [5]) == [True]
    nobody = np.zeros(0, int)
    assert in_place(nobody, nobody).tolist() == []


def test_who_joins_or_drifts_is_waited_for_until_it_sits_right() -> None:
    settling = Settling()
    settling.changed([4], "joined", 11)
    settling.changed([0, 1], "drifted", 11)
    ids = np.array([0, 1, 2, 3])
    groups = np.array([1, 1, 0, 1])
    found = settling.settled(ids, np.array([1, 0, 0, 1]), groups, 11)
    assert found == [Settled(0, "drifted", 0)]
    assert settling.settled(ids, np.array([1, 0, 0, 1]), groups, 12) == []
    everyone, labels = np.arange(5), np.array([1, 1, 0, 1, 0])
    found = settling.settled(everyone, labels, np.array([1, 1, 0, 1, 0]), 14)
    assert found == [Settled(1, "drifted", 3), Settled(4, "joined", 3)]
    assert settling.waiting == {}


def test_a_client_that_drifts_again_is_timed_anew() -> None:
    settling = Settling()
    settling.changed([0], "drifted", 5)
    settling.changed([0], "drifted", 9)
    assert settling.settled(np.array([0]), np.array([0]), np.array([0]), 10) == [
        Settled(0, "drifted", 1)
    ]
