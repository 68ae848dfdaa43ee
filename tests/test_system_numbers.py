"""Random numbers from the operating system have the distributions that privacy counts on."""

import numpy as np
import pytest

from fl_app.system_numbers import PAIRS, SystemNumbers

COUNT = 100_001


def test_moments_and_tails_are_those_of_the_normal_distribution() -> None:
    found = SystemNumbers().standard_normal(COUNT, np.float32)
    assert found.dtype == np.float32
    # of each moment, 8 standard deviations of its estimate: 1, sqrt(2) and sqrt(96) / sqrt(n)
    assert found.mean() == pytest.approx(0, abs=0.026)
    assert found.var() == pytest.approx(1, abs=0.036)
    assert (found.astype(float) ** 4).mean() == pytest.approx(3, abs=0.25)
    assert (np.abs(found) > 2).mean() == pytest.approx(0.0455, abs=0.006)
    halves = found[: COUNT // 2], found[COUNT // 2 : -1]
    assert abs(np.corrcoef(*halves)[0, 1]) < 0.04


def test_shapes_are_those_that_are_asked_for_and_no_number_comes_twice() -> None:
    source = SystemNumbers()
    assert source.standard_normal((2, 3)).shape == (2, 3)
    assert source.standard_normal(0).shape == (0,)
    many = source.standard_normal(4 * PAIRS + 1)
    assert len({*many}) > 0.99 * len(many), "the numbers of one block are those of another"
    assert source.standard_normal().shape == ()
    assert not set(source.random(100)) & {*source.random(100), *SystemNumbers().random(100)}


def test_uniform_numbers_draw_each_sample_at_the_rate() -> None:
    found = SystemNumbers().random(COUNT)
    assert found.min() >= 0
    assert found.max() < 1
    assert (found < 0.1).mean() == pytest.approx(0.1, abs=0.008)
