"""The update store: only changed rows are computed, and a checkpoint changes nothing."""

import numpy as np
import pytest

from fl_app.graph.similarity import flic_similarity
from fl_app.graph.store import UpdateStore


def _update(client: int, round: int) -> np.ndarray:
    return np.random.default_rng((client, round)).normal(size=40).astype(np.float32)


def test_incremental_rows_equal_the_whole_matrix() -> None:
    store, draw = UpdateStore(), np.random.default_rng(0)
    latest: dict[int, np.ndarray] = {}
    for round in range(1, 15):
        for client in draw.choice(30, 4, replace=False).tolist():
            latest[client] = _update(client, round)
            store.put(client, latest[client], round)
        ids, matrix = store.similarity()
        assert ids.tolist() == sorted(latest)
        whole = flic_similarity(np.stack([latest[client] for client in ids.tolist()]))
        np.testing.assert_allclose(matrix, whole, atol=1e-6)
    assert store.rows_computed == 14 * 4


def test_rows_are_computed_once_and_only_for_clients_that_reported() -> None:
    store = UpdateStore()
    for client in range(6):
        store.put(client, _update(client, 1), 1)
    store.similarity()
    store.similarity()
    assert store.rows_computed == 6
    store.put(3, _update(3, 2), 2)
    store.similarity()
    assert store.rows_computed == 7
    assert store.rounds().tolist() == [1, 1, 1, 2, 1, 1]


def test_the_store_keeps_copies() -> None:
    store, update = UpdateStore(), _update(0, 1)
    store.put(0, update, 1)
    update[:] = 0
    assert store.updates()[1].any()


@pytest.mark.parametrize("clients", [0, 1, 9])
def test_a_checkpoint_changes_nothing_bit_for_bit(clients: int) -> None:
    store = UpdateStore()
    for client in range(clients):
        store.put(client, _update(client, 1), 1)
    store.similarity()
    if clients:
        store.put(0, _update(0, 2), 2)
    again = UpdateStore.from_arrays({k: v.copy() for k, v in store.arrays().items()})
    assert len(again) == clients
    for ours, theirs in zip(store.similarity(), again.similarity(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    store.put(50, _update(50, 3), 3)
    again.put(50, _update(50, 3), 3)
    np.testing.assert_array_equal(store.similarity()[1], again.similarity()[1])


def test_updates_of_another_length_or_not_finite_are_refused() -> None:
    store = UpdateStore()
    store.put(0, np.ones(3, np.float32), 1)
    with pytest.raises(ValueError, match="client 1 must have length 3, got 4"):
        store.put(1, np.ones(4, np.float32), 1)
    with pytest.raises(ValueError, match="client 2 is not finite"):
        store.put(2, np.array([1, np.inf, 1], np.float32), 1)
    assert len(store) == 1
