"""Updates that are far longer than the cohort's, against a slow and plain form of the rule."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules

from fl_app.ingress.screen import (
    COLUMNS,
    FEWEST,
    compared,
    limits,
    odd,
    outside,
    shortened,
    too_long,
    update_norm,
    usual_norms,
)

LENGTHS = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.0, 1e3, 1e7, 1e15])


def _cohort(
    lengths: list[float], received: list[float]
) -> tuple[np.ndarray, list[np.ndarray], np.ndarray, np.ndarray]:
    """Return models, the models received, and the norms of the updates and of what was received."""
    starts = [np.full(4, each / 2, np.float32) for each in received]
    models = np.stack([
        start + np.array([0, length, 0, 0], np.float32)
        for start, length in zip(starts, lengths, strict=True)
    ])  # fmt: skip
    norms = np.array([update_norm(*pair) for pair in zip(models, starts, strict=True)])
    return models, starts, norms, np.array([np.linalg.norm(start) for start in starts])


def _screened(lengths: list[float], received: list[float], multiple: float) -> list[int]:
    models, starts, norms, lengths_received = _cohort(lengths, received)
    usual = usual_norms(norms, lengths_received)
    found = np.flatnonzero(too_long(norms, usual, multiple=multiple)).tolist()
    assert found == rules.too_long(list(models), starts, multiple=multiple)
    return found


@settings(max_examples=400, deadline=None)
@given(
    updates=st.lists(st.tuples(LENGTHS, st.sampled_from([0.0, 0.1, 1.0])), min_size=1, max_size=9),
    multiple=st.sampled_from([2.0, 10.0, 1000.0]),
)
def test_the_fast_form_is_the_plain_one(
    updates: list[tuple[float, float]], multiple: float
) -> None:
    lengths, received = map(list, zip(*updates, strict=True))
    _screened(lengths, received, multiple)


@settings(max_examples=200, deadline=None)
@given(honest=st.lists(st.floats(0.5, 5), min_size=3, max_size=9), far=st.floats(1e5, 1e15),
       liars=st.integers(1, 8))  # fmt: skip
def test_a_minority_is_screened_and_the_majority_never(
    honest: list[float], far: float, liars: int
) -> None:
    assume(liars < len(honest))
    lengths = [*honest, *[far] * liars]
    found = _screened(lengths, [1.0] * len(lengths), 1000.0)
    assert found == list(range(len(honest), len(lengths)))


@pytest.mark.parametrize(
    ("lengths", "received", "found"),
    [
        ([0.0, 0.0, 0.0, 1e9], 1.0, [3]),  # the others have come to their end
        ([0.0, 0.0, 0.0, 5.0], 1.0, []),  # one starts to learn again
        ([0.0, 0.0, 0.0, 1e9], 0.0, []),  # nothing to compare with
        ([1e9, 1e9, 1.0, 1.0], 1.0, [0, 1]),  # half of them
        ([1.0, 1e9], 1.0, [1]),  # no majority: against the received model
        ([1e9], 1.0, [0]),
        ([1e9], 0.0, []),
    ],
)
def test_what_is_usual(lengths: list[float], received: float, found: list[int]) -> None:
    assert _screened(lengths, [received] * len(lengths), 1000.0) == found


@settings(max_examples=200, deadline=None)
@given(
    share=st.sampled_from([0.0, 1e-6, 1e-3, 0.05, 0.1, 0.3, 1.0, 50.0]),
    size=st.sampled_from([1, 5, COLUMNS, COLUMNS + 8]),
    seed=st.integers(0, 999),
)
def test_the_norm_is_that_of_the_plain_difference(share: float, size: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    start = draw.normal(size=size).astype(np.float32)
    model = (start + share * draw.normal(size=size)).astype(np.float32)
    plain = np.linalg.norm(model.astype(np.float64) - start)
    assert update_norm(model, start) == pytest.approx(plain, rel=1e-5)


def test_an_update_at_right_angles_to_its_model_has_its_length() -> None:
    start = np.array([1.0, 0.1], np.float32)
    model = np.array([1.0, 0.0], np.float32)  # model . start is |model|^2
    assert update_norm(model, start) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize("size", [5e17, 5e-16])
def test_norms_neither_overflow_nor_vanish(size: float) -> None:
    model = np.array([0.6 * size, 0.8 * size], np.float32)
    assert update_norm(model, np.zeros(2, np.float32)) == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize(
    ("lengths", "received", "bounded"),
    [
        ([1.0, 1.0, 3.0, 8.0], 1.0, [1.0, 1.0, 2.0, 2.0]),  # twice the lower median
        ([0.1, 0.1, 0.2, 8.0], 1.0, [0.1, 0.1, 0.2, 0.25]),  # a quarter of the received model
        ([0.0, 0.0, 0.0, 8.0], 4.0, [0.0, 0.0, 0.0, 1.0]),
        ([0.0, 0.0, 0.0, 8.0], 0.0, [0.0, 0.0, 0.0, 8.0]),  # the first that moves is what is usual
        ([1.0, 8.0], 1.0, [1.0, 8.0]),  # no majority
    ],
)
def test_a_long_update_is_shortened(
    lengths: list[float], received: float, bounded: list[float]
) -> None:
    models, starts, norms, sizes = _cohort(lengths, [received] * len(lengths))
    most = limits(usual_norms(norms, sizes), sizes, multiple=2.0, of=len(norms))
    for model, start, norm, limit, wanted in zip(models, starts, norms, most, bounded, strict=True):
        found = shortened(model, start, norm=limit) if norm > limit else model
        assert np.linalg.norm(found - start) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("norms", "former", "usual"),
    [
        ([1.0, 900.0], [], 4.0),  # the norm of the received model
        ([1.0, 900.0], [2.0], 2.0),
        ([900.0], [1.0, 3.0], 3.0),
        ([900.0, 900.0], [1.0, 2.0, 3.0], 3.0),
        ([900.0, 900.0, 1.0], [1.0, 2.0, 3.0], 900.0),  # of three, two tell what is usual
    ],
)
def test_few_updates_are_compared_with_former_ones(
    norms: list[float], former: list[float], usual: float
) -> None:
    found = usual_norms(np.array(norms), np.full(len(norms), 4.0), np.array(former))
    np.testing.assert_array_equal(found, np.full(len(norms), usual))
    of = len(compared(np.array(norms), np.array(former)))
    most = limits(found, np.full(len(norms), 4.0), multiple=2.0, of=of)
    np.testing.assert_array_equal(most, 2 * found if of >= FEWEST else np.inf)


@pytest.mark.parametrize(
    ("norms", "received", "found"),
    [
        ([1.0, 1.0, 2.9, 3.1], 1.0, [3]),
        ([0.3, 1.0, 1.0, 1.0], 1.0, [0]),
        ([0.001, 0.001, 0.001, 0.02], 1.0, []),  # most have converged, nobody is short
        ([0.001, 0.005, 0.005, 0.04], 1.0, [0, 3]),
        ([0.0, 0.0, 0.0], 0.0, []),
        ([1.0, 9.0], 1.0, []),  # no majority
    ],
)
def test_what_is_odd(norms: list[float], received: float, found: list[int]) -> None:
    usual = usual_norms(np.array(norms), np.full(len(norms), received))
    assert np.flatnonzero(odd(np.array(norms), usual)).tolist() == found


def test_a_community_is_outside_if_it_is_far_from_the_mean_over_clients() -> None:
    far, near = np.array([0.0, 1000.0]), np.array([8.0, 6.0])
    models = np.array([[10.0, 0.0], near, far], np.float32)
    sizes = np.array([4, 4, 1])
    # norms 10, 10, 1000, the last counts as 20: the mean over clients is (8, 44 / 9)
    np.testing.assert_array_equal(outside(models, sizes, multiple=2.0), [False, False, True])
    # apart 5.3, 1.1 and 995, usual 5.3, so that an update may be 10.6 long
    models[2] = [8.0, 20.0]
    assert not outside(models, sizes, multiple=2.0).any()
    few = np.array([1, 1])
    assert not outside(models[1:] * 1e9, few, multiple=2.0).any()


@settings(max_examples=200, deadline=None)
@given(
    vectors=st.lists(st.lists(LENGTHS, min_size=3, max_size=3), min_size=1, max_size=6),
    data=st.data(),
)
def test_at_most_half_of_the_clients_are_outside(
    vectors: list[list[float]], data: st.DataObject
) -> None:
    models = np.array(vectors, np.float32)
    counts = st.lists(st.integers(1, 5), min_size=len(models), max_size=len(models))
    sizes = np.array(data.draw(counts))
    found = outside(models, sizes, multiple=2.0)
    assert 2 * sizes[found].sum() <= sizes.sum()
