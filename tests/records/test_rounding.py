"""Numbers as text: none is shown as nothing or as all that is neither."""

import pytest

from fl_app.records.rounding import number, share, upwards


@pytest.mark.parametrize(("value", "decimals", "text"), [
    (0.75, 3, "0.750"), (1.0, 3, "1.000"), (0.0, 3, "0.000"), (12.3456, 3, "12.346"),
    (0.00016, 3, "0.00016"), (-0.00016, 3, "-0.00016"), (1.6e-9, 3, "1.6e-09"),
    (0.9996, 3, "0.9996"), (0.996, 2, "0.996"), (0.994, 2, "0.99"), (float("nan"), 3, "nan"),
])  # fmt: skip
def test_small_numbers_keep_two_digits_and_none_becomes_one(
    value: float, decimals: int, text: str
) -> None:
    assert number(value, decimals) == text


@pytest.mark.parametrize(("value", "decimals", "text"), [
    (1.0, 0, "100%"), (299 / 300, 0, "99.7%"), (0.0, 0, "0%"), (0.001, 0, "0.1%"),
    (0.5, 0, "50%"), (0.504, 0, "50.4%"), (0.496, 0, "49.6%"), (0.75, 0, "75%"),
    (0.9996, 1, "99.96%"), (0.683, 1, "68.3%"), (1 - 1e-12, 0, "100%"), (1 - 1e-8, 0, "100.0000%"),
])  # fmt: skip
def test_a_share_is_all_half_or_nothing_only_if_it_is(
    value: float, decimals: int, text: str
) -> None:
    assert share(value, decimals) == text


@pytest.mark.parametrize(("value", "text"), [
    (0.00375, "0.00375"), (0.003751, "0.00376"), (1.5, "1.50"), (1.501, "1.51"), (0.0, "0.00"),
    (12.3401, "12.35"), (0.1 + 0.2, "0.300"), (1e-7, "0.000000100"), (float("inf"), "inf"),
])  # fmt: skip
def test_a_budget_is_never_shown_as_less_than_was_spent(value: float, text: str) -> None:
    assert upwards(value) == text
