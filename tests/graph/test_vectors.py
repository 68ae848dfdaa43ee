"""The latest vectors of the clients: rows, ages, norms and means, whatever they lie in."""

from collections.abc import Callable

import numpy as np
import pytest

from fl_app.aggregation import median, weighted_mean
from fl_app.graph.vector_backends import InMemory, OnDisk, Sketched, VectorBackend
from fl_app.graph.vectors import ClientVectors

BACKENDS: dict[str, Callable[[], VectorBackend]] = {
    "exact": InMemory,
    "disk": lambda: OnDisk(capacity=60),
    "sketch": lambda: Sketched(dimension=16, seed=0),
}


def _vector(client: int, round: int) -> np.ndarray:
    return np.random.default_rng((client, round)).normal(size=40).astype(np.float32)


def _filled(backend: VectorBackend | None = None) -> ClientVectors:
    vectors = ClientVectors(backend)
    for place, client in enumerate((9, 4, 30, 1)):
        vectors.put(client, _vector(client, 1), place + 1, odd=client == 4)
    return vectors


def test_rows_stay_in_order_of_appearance_and_are_returned_by_id() -> None:
    vectors = _filled()
    assert vectors.client_ids.tolist() == [1, 4, 9, 30]
    assert vectors.order.tolist() == [3, 1, 0, 2]
    assert vectors.rounds().tolist() == [4, 2, 1, 3]
    assert vectors.rows_of([30, 9]).tolist() == [2, 0]
    np.testing.assert_array_equal(vectors.read(vectors.rows_of([30]))[0], _vector(30, 1))
    vectors.put(9, _vector(9, 2), 7)
    assert vectors.order.tolist() == [3, 1, 0, 2]
    np.testing.assert_array_equal(vectors.read(np.array([0]), slice(3, 5))[0], _vector(9, 2)[3:5])


def test_vectors_too_old_are_left_out() -> None:
    vectors = _filled()
    assert vectors.ids_of(vectors.fresh(4, 2)).tolist() == [1, 30]
    assert vectors.ids_of(vectors.fresh(4, None)).tolist() == [1, 4, 9, 30]
    assert vectors.odd(vectors.order).tolist() == [False, True, False, False]


@pytest.mark.parametrize("name", list(BACKENDS))
def test_norms_are_those_of_the_vectors_that_came(name: str) -> None:
    vectors = _filled(BACKENDS[name]())
    expected = [np.linalg.norm(_vector(client, 1)) for client in (1, 4, 9, 30)]
    np.testing.assert_allclose(vectors.norms(vectors.order), expected, rtol=1e-6)


@pytest.mark.parametrize("name", list(BACKENDS))
def test_added_vectors_are_stored_as_their_sum(name: str) -> None:
    vectors, summed = _filled(BACKENDS[name]()), ClientVectors(BACKENDS[name]())
    vectors.add(9, _vector(9, 2), 7)
    vectors.add(5, _vector(5, 1), 8)
    for client in (9, 4, 30, 1):
        summed.put(client, _vector(client, 1) + (client == 9) * _vector(9, 2), 1)
    rows = np.arange(4)
    np.testing.assert_allclose(vectors.read(rows), summed.read(rows), atol=5e-3)
    np.testing.assert_allclose(
        vectors.norms(rows),
        np.linalg.norm(vectors.read(rows), axis=1) if name == "sketch" else summed.norms(rows),
        rtol=0.5 if name == "sketch" else 1e-3,
    )
    assert vectors.rounds().tolist() == [4, 2, 8, 7, 3]
    counts = vectors.norms(vectors.order) / vectors.mean_norms(vectors.order)
    np.testing.assert_allclose(counts, [1, 1, 1, 2, 1])
    vectors.put(9, _vector(9, 1), 9)
    assert vectors.mean_norms(vectors.rows_of([9])) == vectors.norms(vectors.rows_of([9]))


def test_copies_are_kept() -> None:
    vectors, vector = ClientVectors(), _vector(0, 1)
    vectors.put(0, vector, 1)
    vector[:] = 0
    assert vectors.read(np.array([0])).any()


def test_vectors_of_another_length_or_not_finite_are_refused() -> None:
    vectors = ClientVectors()
    vectors.put(0, np.ones(3, np.float32), 1)
    with pytest.raises(ValueError, match="client 1 must have length 3, got 4"):
        vectors.put(1, np.ones(4, np.float32), 1)
    with pytest.raises(ValueError, match="client 2 must be finite"):
        vectors.put(2, np.array([1, np.inf, 1], np.float32), 1)
    assert len(vectors) == 1


def test_lengths_of_parts_are_those_of_the_latest_vectors() -> None:
    vectors, parts = _filled(), [slice(0, 10), slice(20, 25)]
    for _ in range(2):
        every = vectors.read(np.arange(4)).astype(float)
        expected = [np.linalg.norm(every[:, part], axis=1) for part in parts]
        np.testing.assert_allclose(vectors.lengths(parts), expected)
        vectors.put(4, 10 * _vector(4, 2), 9)


@pytest.mark.parametrize("rule", [weighted_mean, median])
@pytest.mark.parametrize("name", ["exact", "disk"])
def test_groups_are_combined_in_one_pass_as_one_by_one(
    name: str, rule: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl_app.graph.rows_in_memory.LEAST_COLUMNS", 7)
    monkeypatch.setattr("fl_app.graph.rows_in_memory.MOST_COLUMNS", 7)
    vectors = _filled(BACKENDS[name]())
    groups = [np.array([2, 0]), np.array([3]), np.arange(4)]
    weights = [np.array([1.0, 3.0]), np.ones(1), np.arange(1.0, 5.0)]
    for part in (slice(0, 40), slice(5, 31)):
        found = vectors.combine(rule, groups, weights, part)
        pairs = zip(groups, weights, strict=True)
        alone = [rule(vectors.read(rows, part), shares) for rows, shares in pairs]
        np.testing.assert_allclose(found, np.stack(alone), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", list(BACKENDS))
def test_a_checkpoint_changes_nothing(name: str) -> None:
    vectors = _filled(BACKENDS[name]())
    vectors.add(4, _vector(4, 2), 7)
    arrays = {key: np.array(value) for key, value in vectors.arrays().items()}
    again = ClientVectors(BACKENDS[name]())
    again.restore(arrays)
    for each in (vectors, again):
        each.put(9, _vector(9, 2), 8)
        each.put(2, _vector(2, 2), 8)
    assert again.client_ids.tolist() == vectors.client_ids.tolist()
    assert again.changed == vectors.changed
    rows = vectors.order
    np.testing.assert_array_equal(again.read(rows), vectors.read(rows))
    np.testing.assert_array_equal(again.norms(rows), vectors.norms(rows))
    np.testing.assert_array_equal(again.mean_norms(rows), vectors.mean_norms(rows))
    np.testing.assert_array_equal(again.odd(rows), vectors.odd(rows))
