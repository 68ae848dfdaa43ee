"""A model as bytes: nothing but what NumPy writes for a finite vector of the right size."""

import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from flwr.common import Parameters
from hypothesis import example, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from mutations import MUTATIONS, SHAPES, TYPES, mutated
from rules import answered, is_model

from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.wire import LARGEST, SAFE, check_numbers, read_model
from fl_app.params import to_bytes

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
VECTORS = st.lists(FLOATS, min_size=1, max_size=9).map(lambda xs: np.array(xs, np.float32))


def _read(parameters: Parameters, size: int) -> np.ndarray:
    model = read_model(parameters, size)
    check_numbers(model)
    return model


def _accepts(tensors: object, size: int) -> bool:
    found, _ = answered(_read, Parameters(tensors, ""), size)
    if found is None:
        return False
    model = found
    assert model.shape == (size,)
    assert model.dtype == np.float32
    assert not model.flags.writeable
    assert np.isfinite(model).all()
    return True


@settings(max_examples=300, deadline=None)
@given(vector=VECTORS)
def test_a_vector_is_read_as_it_was_written_or_rejected_for_its_numbers(vector: np.ndarray) -> None:
    data = to_bytes(vector)
    valid = is_model(data, len(vector))
    assert _accepts([data], len(vector)) == valid
    if valid:
        np.testing.assert_array_equal(_read(Parameters([data], ""), len(vector)), vector)


@settings(max_examples=1500, deadline=None)
@given(draw=st.randoms(use_true_random=False), size=st.integers(1, 9))
def test_mutated_bytes_are_rejected_unless_they_are_another_valid_model(
    draw: Random, size: int
) -> None:
    _, data = mutated(draw, to_bytes(np.ones(size, np.float32)))
    assert _accepts([data], size) == is_model(data, size)


@settings(max_examples=300, deadline=None)
@example(text="{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", version=2)
@given(text=st.text(st.characters(codec="latin1"), max_size=110), version=st.integers(0, 255))
def test_no_header_of_another_text_is_read(text: str, version: int) -> None:
    data = bytearray(to_bytes(np.ones(6, np.float32)))
    data[6] = version
    data[10:128] = text.encode("latin1").ljust(117) + b"\n"
    assert _accepts([bytes(data)], 6) == is_model(bytes(data), 6)


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_every_kind_of_mutation_is_told_and_rejected(name: str) -> None:
    data = to_bytes(np.ones(6, np.float32))
    draw = Random(0)
    told = [MUTATIONS[name](draw, data) for _ in range(50)]
    assert not all(is_model(each, 6) for each in told)
    assert [_accepts([each], 6) for each in told] == [is_model(each, 6) for each in told]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["'<f4'", *TYPES])
def test_an_announced_shape_or_type_is_compared_and_not_read(shape: str, kind: str) -> None:
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"
    data = to_bytes(np.ones(6, np.float32))
    forged = data[:10] + text.encode("latin1").ljust(117)[:117] + b"\n" + data[128:]
    assert not _accepts([forged], 6)


@pytest.mark.parametrize("known", [SAFE, LARGEST, np.inf, np.nan])
def test_numbers_are_read_unless_their_norm_is_known_to_be_small(known: float) -> None:
    check_numbers(np.ones(3, np.float32), known)
    for wrong in (np.nan, np.inf, 2e18):
        with pytest.raises(RejectionError, match="finite, its norm below 1e"):
            check_numbers(np.array([1, wrong], np.float32), known)
