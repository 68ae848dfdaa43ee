"""Tests check shapes at run time: in a function's first calls, and in some of the later ones."""

import inspect

import jaxtyping
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Float, TypeCheckError

from fl_app import aggregation
from fl_app.graph import pairwise


def test_a_wrong_shape_is_found_at_once_and_later_in_one_of_fifty_calls() -> None:
    @jaxtyping.jaxtyped(typechecker=beartype)
    def trace(matrix: Float[np.ndarray, "n n"]) -> float:
        return float(np.trace(matrix))

    with pytest.raises(TypeCheckError, match="matrix"):
        trace(np.ones((2, 3)))
    assert [trace(np.eye(2)) for _ in range(100)] == [2.0] * 100
    found = 0
    for _ in range(100):
        try:
            trace(np.ones((2, 3)))
        except TypeCheckError:
            found += 1
    assert found == 2


@pytest.mark.parametrize("function", [aggregation.weighted_mean, pairwise.row_dots])
def test_functions_on_arrays_are_checked(function: object) -> None:
    assert inspect.unwrap(function) is not function
