"""Robust rules on arrays: by hand, without samples, few replies, members that hold anything."""

from functools import partial

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.aggregation import Rule, geometric_median, median
from fl_app.strategies.robust import bulyan, krum, trimmed_mean
from fl_app.testing.toy import builder, context, honest, play, roster
from fl_app.types import Vector

RULES: dict[str, Rule] = {
    "median": median,
    "geometric_median": geometric_median,
    "trimmed_mean": partial(trimmed_mean, share=0.2),
    "krum": partial(krum, malicious=2, many=False),
    "multi_krum": partial(krum, malicious=2, many=True),
    "bulyan": partial(bulyan, malicious=2),
}


def _members(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(3, 0.01, (count, 20)).astype(np.float32)


def test_multi_krum_is_the_plain_mean_of_those_it_keeps() -> None:
    # one liar is borne of five: the mean of 1, 2, 3, 4
    models = np.array([[1.0], [2], [3], [4], [100]], np.float32)
    found = krum(models, np.array([1.0, 1e9, 1, 1, 1e9]), malicious=1, many=True)
    assert found.tolist() == [2.5]


def test_krum_and_trimmed_mean_by_hand() -> None:
    models = np.array([[1.0], [2], [2.5], [4], [100]], np.float32)
    # sums of the two nearest squared distances: 1 + 2.25, 0.25 + 1, 0.25 + 2.25, ...
    assert krum(models, np.ones(5), malicious=1, many=False).tolist() == [2.0]
    mean = (2 + 2.5 + 4) / 3
    np.testing.assert_allclose(trimmed_mean(models, np.ones(5), share=0.2), [mean], rtol=1e-6)


@pytest.mark.parametrize("name", list(RULES))
def test_no_rule_weighs_by_samples(name: str) -> None:
    members = _members(12)
    weights = np.array([2.0**53] + [1.0] * 10 + [0.0])
    found = RULES[name](members, weights)
    np.testing.assert_array_equal(found, RULES[name](members, np.ones(12)))


@pytest.mark.parametrize("name", [*RULES, "fedavg", "flic"])
def test_a_client_with_most_samples_is_noted_only_if_they_count(name: str) -> None:
    rule = {"fedavg": {}, "flic": {"rule": "median"}}.get(name, {"rule": name})
    build = builder("robust" if name in RULES else name, participation=1.0, **rule)
    strategy, known = build(context()), roster(3)

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        answer.num_examples = 12 if client_id == 2 else 1
        return answer

    play(strategy, known, range(1, 2), client=client)
    assert set(strategy.outcome(1).dominance) == ({2} if name == "fedavg" else set())


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("far", [1e6, 1e17])
def test_two_of_twelve_move_no_rule_farther_than_the_members_lie(name: str, far: float) -> None:
    members = _members(12)
    spread = np.linalg.norm(members - 3, axis=1).max()
    members[3], members[7] = far, -far
    with np.errstate(over="raise", invalid="raise"):
        found = RULES[name](members, np.ones(12))
    assert np.linalg.norm(found - 3) < 1.5 * spread


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_replies_are_aggregated_whatever_they_hold(name: str, count: int) -> None:
    members = _members(count)
    found = RULES[name](members, np.ones(count))
    assert (found >= members.min(axis=0) - 1e-6).all()
    assert (found <= members.max(axis=0) + 1e-6).all()
    members[0] = 1e17
    with np.errstate(over="raise", invalid="raise"):
        assert np.isfinite(RULES[name](members, np.ones(count))).all()
