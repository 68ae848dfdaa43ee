"""Models of communities from replies, by hand."""

import numpy as np
import pytest

from fl_app.aggregation import Rule, geometric_median, median, weighted_mean
from fl_app.masking.slots import SlotSums
from fl_app.params import Layout
from fl_app.strategies.community_aggregator import CommunityAggregator
from fl_app.strategies.replies import Replies


def _replies(models: list[list[float]], starts: list[int], weights: list[float]) -> Replies:
    ones = np.ones(len(starts))
    ids = 10 + np.arange(len(starts))
    received = np.array(models, np.float32)
    return Replies(ids, received, np.array(starts), ones, ones, np.array(weights))


def test_each_community_gets_the_rule_of_its_own_replies_and_the_others_stay() -> None:
    models = np.array([[0, 0], [3, 4], [9, 9]], np.float32)
    aggregator = CommunityAggregator(weighted_mean)
    aggregator.update(models, _replies([[4, 0], [8, 0], [3, 4]], [0, 0, 1], [1.0, 3.0, 1.0]))
    assert models.tolist() == [[7, 0], [3, 4], [9, 9]]
    # the first moved by 7, the second by nothing; their lengths are 7 and 5
    assert aggregator.step == pytest.approx(7 / 12)


def test_a_client_with_more_than_half_of_the_weight_is_noted_for_the_round() -> None:
    aggregator = CommunityAggregator(weighted_mean)
    models = np.zeros((1, 2), np.float32)
    aggregator.update(models, _replies([[1, 0], [0, 1]], [0, 0], [1.0, 3.0]))
    assert aggregator.dominance == {11: 0.75}
    aggregator.begin()
    assert (aggregator.dominance, aggregator.step) == ({}, None)
    aggregator.update(models, _replies([[1, 0], [0, 1]], [0, 0], [1.0, 1.0]))
    assert aggregator.dominance == {}


@pytest.mark.parametrize("rule", [median, geometric_median])
def test_of_a_rule_without_weights_no_client_is_noted(rule: Rule) -> None:
    aggregator = CommunityAggregator(rule)
    aggregator.update(np.zeros((1, 2), np.float32), _replies([[1, 0], [0, 1]], [0, 0], [1.0, 3.0]))
    assert aggregator.dominance == {}


def test_models_of_length_zero_have_no_step() -> None:
    aggregator = CommunityAggregator(weighted_mean)
    aggregator.update(np.zeros((1, 2), np.float32), _replies([[0, 0]], [0], [1.0]))
    assert aggregator.step is None


@pytest.mark.parametrize("wrong", [np.zeros(1, np.float32), np.array([1, np.nan]), None])
def test_a_rule_that_returns_no_model_is_an_error(wrong: object) -> None:
    aggregator = CommunityAggregator(lambda models, weights: wrong)
    models = np.zeros((1, 2), np.float32)
    with pytest.raises(ValueError, match="aggregation rule must return 2 finite numbers"):
        aggregator.update(models, _replies([[1, 0]], [0], [1.0]))
    assert not models.any()


NORM = Layout(("w", "norm.running_var"), ((1,), (1,)), 1, ("norm.running_var",))


def test_no_rule_makes_a_negative_variance() -> None:
    reversing = CommunityAggregator(lambda models, weights: -models.mean(axis=0), NORM)
    models = np.ones((1, 2), np.float32)
    reversing.update(models, _replies([[2, 3]], [0], [1.0]))
    assert models.tolist() == [[-2, 0]]


def test_a_sum_leaves_a_variance_a_share_of_its_value() -> None:
    models = np.array([[1, 2], [1, 2]], np.float32)
    counts, ones = np.array([3, 3]), np.ones(2)
    updates = np.array([[-8, -8], [1, -0.5]], np.float32)
    CommunityAggregator(weighted_mean, NORM).move(models, SlotSums(counts, ones, ones, updates))
    assert models.ravel().tolist() == pytest.approx([-7, 0.02, 2, 1.5])
