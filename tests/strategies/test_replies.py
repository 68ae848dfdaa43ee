"""What the replies of a round tell together."""

from dataclasses import replace

import numpy as np
import pytest

from fl_app.strategies.replies import FAR, Replies


def _told(*losses: float) -> Replies:
    count = len(losses)
    ones = np.ones(count)
    models = np.zeros((count, 2), np.float32)
    ids = np.arange(count)
    return Replies(ids, models, np.zeros(count, int), ones, np.array(losses), ones)


def test_a_wrong_loss_has_little_effect_in_either_direction() -> None:
    assert _told(1.0, 2.0, 3.0).loss == pytest.approx(2.0)
    assert _told(1.0, 2.0, 1e30).loss == pytest.approx((3.0 + 2 * FAR) / 3)
    assert _told(1.0, 2.0, -1e30).loss == pytest.approx((3.0 - 2 * FAR) / 3)


def test_losses_may_be_negative() -> None:
    assert _told(-1.0, -2.0, -3.0).loss == pytest.approx(-2.0)
    assert _told(-1.0, -2.0, -1e30).loss == pytest.approx((-3.0 - 2 * FAR) / 3)
    assert _told(0.0, 0.0, 5.0).loss == pytest.approx(5.0 / 3)


def test_without_losses_there_is_no_mean() -> None:
    assert np.isnan(replace(_told(1.0, 2.0), losses=np.array([1.0, np.nan])).loss)
