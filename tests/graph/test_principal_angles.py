"""Principal angles by hand, and the measure against them."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fl_app.graph.principal_angles import NOTHING as SHORTEST
from fl_app.graph.principal_angles import (
    PrincipalAngles,
    orthonormal,
    principal_angles,
    singular_values,
)
from fl_app.graph.vectors import ClientVectors

FLAT = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], float)
# turned by 30 degrees towards the third axis, and by 60 towards the fourth
TURNED = np.array([[np.sqrt(3) / 2, 0, 0.5, 0], [0, 0.5, 0, np.sqrt(3) / 2]])
OTHER = np.array([[0, 0, 1, 0], [0, 0, 0, 1]], float)
NOTHING = np.zeros((2, 4))


def _rows(angle: str, *clients: np.ndarray, parts: int = 1) -> np.ndarray:
    measure, vectors = PrincipalAngles(parts, 2, angle), ClientVectors()
    for client, told in enumerate(clients):
        vectors.put(client, measure.flat(told.flatten()), 1)
    return measure.rows(vectors, np.arange(len(clients)))


def test_angles_by_hand() -> None:
    np.testing.assert_allclose(principal_angles(FLAT, TURNED), [30, 60])
    np.testing.assert_allclose(principal_angles(FLAT, OTHER), [90, 90])
    np.testing.assert_allclose(principal_angles(FLAT, FLAT[::-1] * -1), [0, 0], atol=1e-5)
    np.testing.assert_allclose(principal_angles(FLAT, NOTHING), [90, 90])


def test_the_measure_by_hand() -> None:
    clients = FLAT, TURNED, NOTHING
    close = {"atol": 0.05}  # float32 cosines near 1
    smallest = [[0, 30, 90], [30, 0, 90], [90, 90, 90]]
    np.testing.assert_allclose(_rows("smallest", *clients), smallest, **close)
    np.testing.assert_allclose(_rows("mean", *clients)[0], [0, 45, 90], **close)


def test_classes_that_neither_of_two_clients_has_do_not_count() -> None:
    one = np.concatenate([FLAT, FLAT, NOTHING])
    two = np.concatenate([TURNED, NOTHING, NOTHING])
    found = _rows("smallest", one, two, np.concatenate([NOTHING] * 3), parts=3)
    # 30 for the first class, 90 for the second, which the other lacks
    np.testing.assert_allclose(found[0], [0, 60, 90], atol=0.05)
    assert found[2, 2] == 90


@example(seed=67108863, clients=3, count=2, inputs=2)  # two samples of almost one direction
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 5), st.integers(2, 6))
def test_only_the_subspace_counts_and_not_how_it_is_told(
    seed: int, clients: int, count: int, inputs: int
) -> None:
    draw = np.random.default_rng(seed)
    told = draw.uniform(-1, 1, (clients, 1, count, inputs))
    lengths = np.linalg.svd(told[:, 0], compute_uv=False)
    assume((np.abs(np.log(lengths / lengths[:, :1] / SHORTEST)) > 0.1).all())  # no borderline
    bases = np.stack([orthonormal(each)[0] for each in told])
    for each, long in zip(bases, lengths > SHORTEST * lengths[:, :1], strict=True):
        size = min(count, inputs)
        np.testing.assert_allclose((each @ each.T)[:size, :size], np.diag(long), atol=1e-6)
    measure, vectors = PrincipalAngles(1, count, "mean"), ClientVectors()
    for client, each in enumerate(told):
        mixed = 7 * each[0][::-1]  # another length and order of the same directions
        vectors.put(client, measure.flat(mixed.flatten()), 1)
    found = measure.rows(vectors, np.arange(clients))
    direct = [[principal_angles(a, b).mean() for b in bases] for a in bases]
    np.testing.assert_allclose(found, direct, atol=0.1)


@pytest.mark.parametrize("value", [0.0, 1e-30, 1.0])
def test_equal_rows_are_one_direction(value: float) -> None:
    found = orthonormal(np.full((1, 3, 2), value))
    assert np.count_nonzero(found.any(axis=2)) == (value > 0)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_singular_values_are_those_of_each_matrix(rows: int) -> None:
    draw = np.random.default_rng(rows)
    matrices = draw.normal(size=(200, rows, rows))
    matrices[1], matrices[2], matrices[3, :, 0] = 0.0, np.eye(rows), 0.0
    matrices[4] = np.linalg.qr(matrices[4])[0]
    matrices[5:50] = np.sign(matrices[5:50])
    found = np.sort(singular_values(matrices.transpose(1, 2, 0)), axis=0)[::-1]
    plain = np.linalg.svd(matrices, compute_uv=False).T
    np.testing.assert_allclose(found, plain, atol=1e-7)
    np.testing.assert_allclose(found[:, 4], 1.0, rtol=1e-14)
