"""Numbers that a client sent: plain integers and floats in their ranges, and nothing else."""

import re
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import rules
from hostile import VALUES, value

from fl_app.ingress.fields import integer, number, vector
from fl_app.ingress.rejection import LONGEST, RejectionError, shown, trusted

ANY = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(), st.binary(), st.none(),
    st.lists(st.integers(), max_size=2), st.randoms(use_true_random=False).map(value),
)  # fmt: skip


def _holds(read: object, *arguments: object) -> bool:
    found, _ = rules.answered(read, *arguments)
    assert type(found) in (int, float, type(None))
    return found is not None


@settings(max_examples=600, deadline=None)
@given(sent=ANY, low=st.integers(-10, 3), span=st.integers(0, 2**41))
def test_an_integer_is_plain_and_in_its_range(sent: object, low: int, span: int) -> None:
    assert _holds(integer, {"x": sent}, "x", low, low + span) == rules.whole(sent, low, low + span)
    assert not _holds(integer, {}, "x", low, low + span)


@settings(max_examples=600, deadline=None)
@given(sent=ANY, low=st.floats(-1e30, 0), high=st.floats(0, 1e30))
def test_a_number_is_plain_finite_and_in_its_range(sent: object, low: float, high: float) -> None:
    assert _holds(number, {"x": sent}, "x", low, high) == rules.real(sent, low, high)
    assert _holds(number, {"x": sent}, "x") == rules.real(sent)


def test_a_vector_has_the_exact_bytes_and_finite_numbers_in_its_range() -> None:
    outcomes = set()

    @settings(max_examples=600, deadline=None)
    @given(
        data=st.data(), length=st.integers(1, 4), low=st.floats(-1e30, 0), high=st.floats(0, 1e30)
    )
    def lie(data: st.DataObject, length: int, low: float, high: float) -> None:
        floats = st.lists(st.floats(width=32), min_size=length, max_size=length)
        near = st.lists(st.floats(low, high), min_size=length, max_size=length)
        packed = st.one_of(floats, near).map(lambda each: np.array(each, "<f4").tobytes())
        sent = data.draw(st.one_of(packed, st.binary(max_size=16), ANY))
        found, _ = rules.answered(vector, {"x": sent}, "x", length, low, high)
        assert (found is not None) == rules.is_vector(sent, length, low, high)
        outcomes.add(found is not None)
        if found is not None:
            assert found.shape == (length,)
            assert ((found >= low) & (found <= high)).all()
        assert rules.answered(vector, {}, "x", length, low, high)[0] is None

    lie()
    assert outcomes == {True, False}


@settings(max_examples=300, deadline=None)
@given(numbers=st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9))
def test_what_an_honest_client_sends_arrives(numbers: list[float]) -> None:
    low, high = min(numbers), max(numbers)
    sent = np.array(numbers, "<f4").tobytes()
    found = vector({"x": sent}, "x", len(numbers), low, high)
    np.testing.assert_allclose(found, numbers, rtol=1e-7, atol=1e-44)


@settings(max_examples=300, deadline=None)
@given(sent=ANY)
def test_what_was_sent_is_shown_in_short_and_on_one_line(sent: object) -> None:
    text = shown(sent)
    assert len(text) <= LONGEST + 3
    assert text.isprintable()


@pytest.mark.parametrize("name", list(VALUES))
def test_every_hostile_value_is_rejected_or_within_the_rule(name: str) -> None:
    sent = VALUES[name](Random(0))
    assert _holds(number, {"x": sent}, "x", 0, 1) == rules.real(sent, 0, 1)
    assert shown(sent).isprintable()


def test_whatever_is_raised_is_a_rejection_but_for_an_interrupt() -> None:
    def raises(error: BaseException) -> None:
        raise error

    for error in (SystemExit(1), GeneratorExit(), MemoryError(), RecursionError(), StopIteration()):
        with pytest.raises(RejectionError, match=f"must be readable, got {type(error).__name__}"):
            trusted(raises, error)
    with pytest.raises(KeyboardInterrupt):
        trusted(raises, KeyboardInterrupt())


@pytest.mark.parametrize(
    ("missing", "named"),
    [("fitres.num_examples", "fitres.num_examples"), ("a\nb", "a?b"), (3, "a field")],
)
def test_a_record_that_a_reply_does_not_have_is_named(missing: object, named: str) -> None:
    sent = dict[object, int]()
    with pytest.raises(RejectionError, match=rf"^{re.escape(named)} must be present, got nothing$"):
        trusted(sent.__getitem__, missing)
