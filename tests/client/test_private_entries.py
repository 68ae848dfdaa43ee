"""Which entries of a model privacy hides, and what becomes of the others."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import user_networks as user

from fl_app.client.networks import MeanEmbedding
from fl_app.client.private_entries import PrivateEntries, learnt_entries, trainable_entries
from fl_app.params import FlatModule
from fl_app.wiring import made

small_cnn = partial(made, "network=small_cnn")

SHAPE, CLASSES = (1, 8, 8), 4
ENTRIES = PrivateEntries((slice(0, 2), slice(3, 5)), (slice(4, 5),))


def _learnt(module: nn.Module) -> tuple[PrivateEntries, FlatModule]:
    flat = FlatModule(module)
    return learnt_entries(flat.module, flat.layout, SHAPE, tokens=False), flat


def test_entries_move_and_the_others_stay_by_hand() -> None:
    start = np.array([1, 2, 3, 4, 5, 6], np.float32)
    update = ENTRIES.update(start, start + 1)
    assert update.tolist() == [1, 1, 1, 1]
    moved = ENTRIES.moved(start, np.array([1, -1, 2, -90], np.float32))
    np.testing.assert_allclose(moved, [2, 1, 3, 6, 0.05, 6], rtol=1e-6)
    assert start.tolist() == [1, 2, 3, 4, 5, 6]


@given(st.data())
def test_no_other_entry_ever_differs_from_what_was_received(data: st.DataObject) -> None:
    numbers = st.floats(-1e6, 1e6, width=32)
    start = np.array(data.draw(st.lists(numbers, min_size=6, max_size=6)), np.float32)
    update = np.array(data.draw(st.lists(numbers, min_size=4, max_size=4)), np.float32)
    moved = ENTRIES.moved(start, update)
    for place in (2, 5):
        assert moved[place].tobytes() == start[place].tobytes()
    assert moved[4] >= 0
    assert start[4] < 1e-36 or moved[4] > 0  # a twentieth of a smaller variance may be zero


def test_without_buffers_all_is_hidden() -> None:
    entries, flat = _learnt(small_cnn(SHAPE, CLASSES))
    assert entries == trainable_entries(flat.layout)
    assert entries.slices == (slice(0, flat.layout.size),)


def test_statistics_of_a_network_of_tokens_are_hidden() -> None:
    flat = FlatModule(nn.Sequential(MeanEmbedding(40, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)))
    entries = learnt_entries(flat.module, flat.layout, (12,), tokens=True)
    assert entries.slices == (slice(0, flat.layout.size),)
    assert entries.variances == (slice(flat.layout.size - 8, flat.layout.size),)


def test_running_statistics_are_hidden_and_constants_beside_them_not() -> None:
    entries, flat = _learnt(user.batch_norm(SHAPE, CLASSES))
    weights = flat.layout.direction.stop
    assert flat.layout.names[-3:] == ("2.running_mean", "2.running_var", "3.offsets")
    assert entries.slices == (slice(0, weights + 2 * user.HIDDEN),)
    assert entries.variances == (slice(weights + user.HIDDEN, weights + 2 * user.HIDDEN),)


def test_statistics_that_the_network_holds_still_are_constants() -> None:
    class Still(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> "Still":
            return super().train(False)

    entries, flat = _learnt(nn.Sequential(nn.Flatten(), Still(64), nn.Linear(64, CLASSES)))
    assert entries == trainable_entries(flat.layout)


def test_a_buffer_of_unknown_meaning_that_changes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"got 2\.average, which changes"):
        _learnt(user.moving_average(SHAPE, CLASSES))
