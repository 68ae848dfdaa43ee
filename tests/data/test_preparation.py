"""Raw samples as inputs: what is told of samples that are not what a run was trained on."""

import numpy as np
import pytest

from fl_app.data.preparation import Numbers


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.full((2, 3), 200, np.uint8), True),
        (np.ones((2, 3), np.uint8), False),  # indicators
        (np.full((2, 3), 200.0), False),
    ],
)
def test_bytes_for_a_run_of_decimal_numbers_are_told(
    given: np.ndarray, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    found = Numbers([3], whole=False).arrays(given)
    np.testing.assert_array_equal(found, given)
    assert ("bytes 0..200, and the run was trained on decimal" in caplog.text) == told


def test_tokens_may_be_bytes(caplog: pytest.LogCaptureFixture) -> None:
    found = Numbers([3], whole=True).arrays(np.full((2, 3), 200, np.uint8))
    assert found.dtype == np.int64
    assert not caplog.text
