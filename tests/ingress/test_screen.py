"""Updates that are far longer than the cohort's, against a slow and plain form of the rule."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules

from fl_app.ingress.screen import too_long

LENGTHS = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.0, 1e3, 1e7, 1e15])


def _screened(lengths: list[float], received: list[float], multiple: float) -> list[int]:
    starts = [np.full(4, each / 2, np.float32) for each in received]
    models = np.stack([
        start + np.array([0, length, 0, 0], np.float32)
        for start, length in zip(starts, lengths, strict=True)
    ])  # fmt: skip
    squares = (models.astype(np.float64) ** 2).sum(axis=1)
    found = sorted(too_long(models, starts, squares, multiple=multiple))
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
