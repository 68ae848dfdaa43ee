"""Agreement of communities with groups, worked by hand."""

import numpy as np
import pytest

from fl_app.evaluation.agreement import adjusted_rand, majority_purity, pure_share, v_measure
from fl_app.evaluation.communities import describe
from fl_app.evaluation.stability import loss_fall

LABELS = np.array([0, 0, 0, 1, 1, 2])
GROUPS = np.array([0, 0, 1, 1, 1, 0])


def test_one_stranger_makes_a_whole_community_impure() -> None:
    assert pure_share(LABELS, GROUPS) == pytest.approx(3 / 6)
    assert majority_purity(LABELS, GROUPS) == pytest.approx(5 / 6)


def test_equal_partitions_agree_whatever_their_names() -> None:
    renamed = np.array([2, 2, 0, 0, 0, 2])
    for measure in (pure_share, majority_purity, adjusted_rand, v_measure):
        assert measure(renamed, GROUPS) == pytest.approx(1.0)


def test_one_community_for_all_agrees_no_better_than_chance() -> None:
    assert adjusted_rand(np.zeros(6, int), GROUPS) == 0.0
    assert v_measure(np.zeros(6, int), GROUPS) == 0.0
    assert pure_share(np.zeros(6, int), GROUPS) == 0.0


def test_nobody_agrees_with_nothing() -> None:
    with pytest.raises(ValueError, match="the same length of at least 1, got 0 and 0"):
        pure_share(LABELS[:0], GROUPS[:0])


def test_right_means_the_planted_groups_and_all_of_them() -> None:
    labels = np.array([0, 0, 1, 1])
    seen = {"groups": np.array([1, 1, 0, 0]), "similarity": None}
    assert describe(labels, total_groups=2, **seen)["right"] is True
    assert describe(labels, total_groups=3, **seen)["right"] is False
    unknown = describe(labels, groups=None, total_groups=None, similarity=None)
    assert unknown["right"] is None
    assert unknown["sizes"] == [2, 2]


def test_loss_fall_of_the_windowed_loss() -> None:
    assert loss_fall([4.0, 4.0, 2.0], window=2) is None
    assert loss_fall([4.0, 4.0, 2.0, 2.0], window=2) == pytest.approx(0.5)
    assert loss_fall([10.0, 2.0, 2.0, 3.0, 3.0], window=2) == pytest.approx(-0.1)
    assert loss_fall([0.0, 0.0], window=1) == 0.0
    with pytest.raises(ValueError, match="window must be at least 1"):
        loss_fall([1.0], window=0)
