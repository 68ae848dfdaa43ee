"""Where vectors lie: every backend gives the same rows and products, within what it promises."""

import numpy as np
import pytest

from fl_app.graph.vector_backends import (
    InMemory,
    OnDisk,
    Sketched,
    VectorBackend,
    choose,
)

D = 20_000
BACKENDS = {
    "exact": (InMemory, 1e-6),
    "disk": (lambda: OnDisk(capacity=40), 1e-4),
    "sketch": (lambda: Sketched(dimension=4096, seed=0), 5 / np.sqrt(4096)),
}


def _updates(clients: int = 30) -> np.ndarray:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(3, D))
    noise = draw.normal(size=(clients, D))
    scale = 10.0 ** draw.uniform(-6, 2, (clients, 1))
    return ((centres[np.arange(clients) % 3] + noise) * scale).astype(np.float32)


def _cosine(updates: np.ndarray) -> np.ndarray:
    unit = updates.astype(float) / np.linalg.norm(updates.astype(float), axis=1, keepdims=True)
    return unit @ unit.T


@pytest.mark.parametrize("name", list(BACKENDS))
def test_cosines_are_right_within_what_is_promised(name: str) -> None:
    make, tolerance = BACKENDS[name]
    backend: VectorBackend = make()
    updates = _updates()
    for row, update in enumerate(updates):
        backend.put(row, update[::-1])
        backend.put(row, update)
    rows = np.array([4, 7, 29])
    products, lengths = backend.products(rows, 30)
    cosine = products / np.outer(lengths[rows], lengths)
    np.testing.assert_allclose(cosine, _cosine(updates)[rows], atol=tolerance)


@pytest.mark.parametrize(("name", "tolerance"), [("exact", 0.0), ("disk", 2.0**-11)])
def test_rows_come_back_as_long_as_they_were(name: str, tolerance: float) -> None:
    backend: VectorBackend = BACKENDS[name][0]()
    updates = _updates()
    for row, update in enumerate(updates):
        backend.put(row, update)
    largest = np.abs(updates).max(axis=1)[:, None]
    for rows in (slice(3, 9), np.array([29, 0])):
        found = backend.read(rows, slice(5, 900)).numpy()
        assert found.dtype == np.float32
        assert (np.abs(found - updates[rows, 5:900]) <= tolerance * largest[rows]).all()
    _, lengths = backend.products(np.array([0]), 30)
    np.testing.assert_allclose(lengths, np.linalg.norm(updates.astype(float), axis=1), rtol=1e-3)


@pytest.mark.parametrize("name", list(BACKENDS))
def test_a_backend_is_restored_bit_for_bit_whatever_it_holds(name: str) -> None:
    first, second = BACKENDS[name][0](), BACKENDS[name][0]()
    for row, update in enumerate(_updates(12)):
        first.put(row, update)
    second.restore({key: np.array(value) for key, value in first.stored(12).items()})
    for one in (first, second):
        one.put(12, _updates(12)[4])
    every = np.arange(13)
    for ours, theirs in zip(first.products(every, 13), second.products(every, 13), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_pages_of_the_disk_are_given_back_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_app.graph.rows_on_disk.MAPPED_BYTES", D)
    test_rows_come_back_as_long_as_they_were("disk", 2.0**-11)


def test_beyond_its_memory_auto_keeps_whole_vectors_on_disk() -> None:
    options = {"memory_gb": 4.0, "dimension": 16384, "seed": 0, "whole": True}
    assert isinstance(choose("auto", clients=1000, length=1_663_370, **options), OnDisk)
    assert isinstance(choose("auto", clients=100, length=1_663_370, **options), InMemory)
    with pytest.raises(ValueError, match="store must keep whole vectors, got sketch"):
        choose("sketch", clients=100, length=1_663_370, **options)


def test_the_error_of_a_sketch_is_the_one_stated() -> None:
    draw, dimension = np.random.default_rng(1), 1024
    first, second = draw.normal(size=(2, D)).astype(np.float32)
    true = _cosine(np.stack([first, first + second]))[0, 1]
    found = []
    for seed in range(200):
        sketch = Sketched(dimension=dimension, seed=seed).sketch
        found.append(_cosine(np.stack([sketch(first), sketch(first + second)]))[0, 1])
    stated = (1 - true**2) / np.sqrt(dimension)
    assert np.mean(found) == pytest.approx(true, abs=4 * stated / np.sqrt(200))
    assert np.std(found) == pytest.approx(stated, rel=0.2)


def test_a_sketch_of_a_length_that_does_not_divide_keeps_every_entry() -> None:
    sketch = Sketched(dimension=4, seed=0).sketch
    for entry in range(10):
        one = np.zeros(10, np.float32)
        one[entry] = 3.0
        assert np.abs(sketch(one)).sum() == 3.0


def test_disk_reads_more_than_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl_app.graph.rows_in_memory.TILE_BYTES", 0)
    test_cosines_are_right_within_what_is_promised("disk")


def test_odd_entries_leave_the_others_of_a_vector_on_disk_their_digits() -> None:
    draw = np.random.default_rng(0)
    vector = draw.normal(0, 0.05, 1000).astype(np.float32)
    vector[200:300] = 0.0
    vector[[3, 130, 131, 400, 700]] = -1e9, 1e-30, 3.4e38, 1e12, 1e5
    backend = OnDisk(capacity=2)
    backend.put(0, vector)
    backend.put(1, vector * np.float32(1e-36))
    for row, given in enumerate((vector, vector * np.float32(1e-36))):
        found = backend.read(np.array([row]), slice(0, 1000))[0].numpy()
        error = np.abs(found - given) - np.finfo(np.float32).tiny / 2**6
        assert (error <= 2.0**-8 * np.abs(given)).all()
        assert (error[448:] <= 2.0**-11 * np.abs(given[448:])).all()


def test_rows_on_disk_of_the_version_before_are_restored() -> None:
    vector = np.array([[1.0, -0.5, 0.25], [0.5, 1.0, 0.0]], np.float16)
    backend = OnDisk(capacity=2)
    backend.restore({"vectors": vector, "scales": np.array([4.0, 0.1], np.float32)})
    found = backend.read(slice(0, 2), slice(0, 3)).numpy()
    np.testing.assert_allclose(found, [[4.0, -2.0, 1.0], [0.05, 0.1, 0.0]], rtol=2.0**-11)


def test_disk_is_full_at_its_capacity() -> None:
    backend = OnDisk(capacity=1)
    backend.put(0, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="must have at most 1 clients"):
        backend.put(1, np.ones(3, np.float32))


@pytest.mark.parametrize(
    ("clients", "length", "kind"),
    [
        (100, 1_663_370, InMemory),
        (1_000, 1_663_370, Sketched),
        (10_000, 1_663_370, Sketched),
        (100_000, 9_000, InMemory),
        (1_000_000, 9_000, InMemory),
    ],
)
def test_auto_is_exact_where_that_fits(clients: int, length: int, kind: type) -> None:
    options = {"memory_gb": 4.0, "dimension": 16384, "seed": 0}
    backend = choose("auto", clients=clients, length=length, **options)
    assert isinstance(backend, kind)
    assert isinstance(choose("sketch", clients=2, length=9, **options), Sketched)


def test_a_sketch_of_the_longest_update_has_a_finite_norm() -> None:
    update = np.full(4_000_000, 0.99e18 / 2000, np.float32)
    sketched = Sketched(dimension=4, seed=0)
    # signs that all agree, in each of four buckets
    assert (float(update.sum(dtype=float)) / 4) ** 2 > float(np.finfo(np.float32).max)
    sketched._plan = lambda length: None  # type: ignore[method-assign]
    sketched._order, sketched._signs = np.arange(len(update)), np.ones(len(update), np.float32)
    sketched.put(0, update)
    products, lengths = sketched.products(np.array([0]), 1)
    assert np.isfinite(products).all()
    np.testing.assert_allclose(lengths, 1e18, rtol=1e-6)
