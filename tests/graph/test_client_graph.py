"""The graph of clients: rows as they come equal the whole matrix, for every measure and backend."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fl_app.config import load
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import canonical
from fl_app.graph.dcfl_distance import dcfl_distance, dcfl_divergence
from fl_app.graph.detection import ByCut, ByExemplars, ByMerging, ByModularity
from fl_app.graph.measures import (
    CosineDistance,
    DcflDistance,
    EuclideanDistance,
    Measure,
    OwnDistance,
    ShiftedCosine,
    TrustedDistance,
)
from fl_app.graph.normalised import normalised_similarity
from fl_app.graph.similarity import (
    cosine_between,
    euclidean_between,
    flic_similarity,
    trusted_between,
)
from fl_app.graph.vector_backends import InMemory, OnDisk, Sketched, VectorBackend
from fl_app.graph.vectors import ClientVectors
from fl_app.params import Layout
from fl_app.server_wiring import detection

LAYOUT = Layout(("w", "b", "v", "mean"), ((6, 4), (5,), (3, 3), (4,)), 3)
ALL = Layout(("w", "v"), ((6, 4), (18,)), 2)
D, USED = LAYOUT.size, LAYOUT.direction


def _halves(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return vectors[:, USED], vectors[:, D : D + USED.stop]


def _steps(vectors: np.ndarray) -> np.ndarray:
    start, end = _halves(vectors)
    return 2.0 - flic_similarity(end - start)


def _ends(vectors: np.ndarray) -> np.ndarray:
    end = np.ascontiguousarray(_halves(vectors)[1])
    return euclidean_between(end, end, LAYOUT)


Whole = Callable[[np.ndarray], np.ndarray]
MEASURES: dict[str, tuple[Measure, Whole]] = {
    "shifted cosine": (ShiftedCosine(), flic_similarity),
    "trusted": (TrustedDistance(LAYOUT), lambda v: trusted_between(v, v, LAYOUT)),
    "euclidean": (EuclideanDistance(LAYOUT), lambda v: euclidean_between(v, v, LAYOUT)),
    "cosine": (CosineDistance(LAYOUT), lambda v: cosine_between(v, v, LAYOUT)),
    "cosine of all": (CosineDistance(ALL), lambda v: cosine_between(v, v, ALL)),
    "own": (OwnDistance(euclidean_between, LAYOUT), lambda v: euclidean_between(v, v, LAYOUT)),
    "dcfl": (DcflDistance("complete", LAYOUT), lambda v: dcfl_distance(*_halves(v))),
    "divergence": (DcflDistance("divergence", LAYOUT), lambda v: dcfl_divergence(*_halves(v))),
    "steps": (DcflDistance("cosine", LAYOUT), _steps),
    "ends": (DcflDistance("euclidean", LAYOUT), _ends),
}
BACKENDS: dict[str, Callable[[], VectorBackend]] = {
    "exact": InMemory,
    "disk": lambda: OnDisk(capacity=60),
}


def _vector(measure: Measure, client: int, round: int) -> np.ndarray:
    length = 2 * D if isinstance(measure, DcflDistance) else D
    draw = np.random.default_rng((client, round))
    centre = np.random.default_rng(client % 3).normal(size=length)
    return (centre + 0.3 * draw.normal(size=length)).astype(np.float32)


def _graph(measure: Measure, backend: VectorBackend | None = None) -> ClientGraph:
    return ClientGraph(measure, ByCut(), ClientVectors(backend))


@pytest.mark.parametrize("name", list(BACKENDS))
@pytest.mark.parametrize("kind", list(MEASURES))
def test_rows_as_they_come_equal_the_whole_matrix(kind: str, name: str) -> None:
    measure, whole = MEASURES[kind]
    graph, draw = _graph(measure, BACKENDS[name]()), np.random.default_rng(0)
    latest: dict[int, np.ndarray] = {}
    for round in range(1, 12):
        for client in draw.choice(20, 4, replace=False).tolist():
            latest[client] = _vector(measure, client, round)
            graph.put(client, latest[client], round)
        assert graph.vectors.client_ids.tolist() == sorted(latest)
        expected = whole(np.stack([latest[client] for client in sorted(latest)]))
        np.fill_diagonal(expected, 0.0)
        found = graph.values()
        np.testing.assert_array_equal(found, found.T)
        tolerance = 1e-5 if name == "exact" else 2e-3
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert graph.rows_computed == 11 * 4


@pytest.mark.parametrize("spread", [1e-2, 1e-3, 3e-4, 3e-5])
def test_cosine_distances_of_models_that_have_nearly_converged_are_exact(spread: float) -> None:
    draw, groups = np.random.default_rng(0), np.arange(8) % 2
    base, centres = draw.normal(size=6000), draw.normal(size=(2, 6000))
    models = base + spread * (centres[groups] + draw.normal(size=(8, 6000)))
    models = models.astype(np.float32)
    graph = _graph(CosineDistance(Layout(("w",), ((60, 100),), 1)), InMemory())
    for client, model in enumerate(models):
        graph.put(client, model, 1)
    units = models.astype(float) / np.linalg.norm(models.astype(float), axis=1)[:, None]
    expected = ((units[:, None] - units) ** 2).sum(axis=2) / 2
    np.testing.assert_allclose(graph.values(), expected, rtol=1e-3, atol=1e-15)


@pytest.mark.parametrize("kind", ["shifted cosine", "euclidean", "cosine"])
def test_sketches_give_nearly_the_same_values(kind: str) -> None:
    measure, _whole = MEASURES[kind]
    graph = _graph(measure, Sketched(dimension=512, seed=0))
    long = np.random.default_rng(0).normal(size=(9, 20_000)).astype(np.float32)
    layout = Layout(("w",), ((200, 100),), 1)
    vectors = long + 2 * long[[0, 0, 0, 1, 1, 1, 2, 2, 2]]
    exact: Whole = {
        "shifted cosine": flic_similarity,
        "euclidean": lambda v: euclidean_between(v, v, layout),
        "cosine": lambda v: cosine_between(v, v, layout),
    }[kind]
    for client, vector in enumerate(vectors):
        graph.put(client, vector, 1)
    expected = exact(vectors)
    np.fill_diagonal(expected, 0.0)
    np.testing.assert_allclose(graph.values(), expected, rtol=0.2, atol=0.2)


@pytest.mark.parametrize("far", [1e7, 1e15])
@pytest.mark.parametrize("name", list(BACKENDS))
@pytest.mark.parametrize("kind", ["trusted", "euclidean", "dcfl", "divergence"])
def test_honest_pairs_are_right_beside_a_far_vector(kind: str, name: str, far: float) -> None:
    measure, _whole = MEASURES[kind]
    vectors = np.stack([_vector(measure, client, 1) for client in range(8)])
    with_liar, honest = (_graph(measure, BACKENDS[name]()) for _ in range(2))
    for client, vector in enumerate(vectors):
        liar = client == 3
        with_liar.put(client, np.float32(far) * vector if liar else vector, 1)
        if not liar:
            honest.put(client, vector, 1)
    among = with_liar.vectors.rows_of([client for client in range(8) if client != 3])
    found = with_liar.values(among)
    assert np.isfinite(with_liar.values()).all()
    np.testing.assert_allclose(found, honest.values(), rtol=1e-5 if name == "exact" else 2e-3)


@pytest.mark.parametrize("name", list(BACKENDS))
@pytest.mark.parametrize("kind", list(MEASURES))
@pytest.mark.parametrize("clients", [0, 1, 9])
def test_a_checkpoint_changes_nothing_bit_for_bit(kind: str, name: str, clients: int) -> None:
    measure, _ = MEASURES[kind]
    graph = _graph(measure, BACKENDS[name]())
    for client in range(clients):
        graph.put(client, _vector(measure, client, 1), 1)
    graph.values()
    if clients:
        graph.put(0, _vector(measure, 0, 2), 2)
    again = _graph(measure, BACKENDS[name]())
    again.restore({key: np.array(value) for key, value in graph.arrays().items()})
    for each in (graph, again):
        each.put(50, _vector(measure, 50, 3), 3)
    np.testing.assert_array_equal(graph.values(), again.values())
    assert graph.rows_computed == again.rows_computed


def test_only_rows_of_clients_that_reported_are_computed() -> None:
    graph = _graph(ShiftedCosine())
    for client in range(6):
        graph.put(client, _vector(graph.measure, client, 1), 1)
    graph.values()
    graph.values()
    assert graph.rows_computed == 6
    graph.put(3, _vector(graph.measure, 3, 2), 2)
    graph.matrix()
    assert graph.rows_computed == 7


DETECTION = detection(load([]))
DETECTIONS = {
    "modularity": ByModularity(DETECTION, exponent=3.0),
    "sparse": ByModularity(replace(DETECTION, sparse_above=5, neighbours=3), exponent=3.0),
    "exemplars": ByExemplars(damping=0.5, preference=None, seed=0),
    "merging": ByMerging(threshold=4.0, linkage="average"),
}


@pytest.mark.parametrize("name", list(DETECTIONS))
def test_planted_groups_are_found_among_all_and_among_some(name: str) -> None:
    graph = ClientGraph(EuclideanDistance(LAYOUT), DETECTIONS[name])
    for client in range(17, -1, -1):
        graph.put(client, _vector(graph.measure, client, 1), 1)
    assert graph.labels().tolist() == [0, 1, 2] * 6
    some = graph.vectors.rows_of([0, 1, 3, 4, 6, 7, 9])
    assert graph.labels(some).tolist() == [0, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("copies", [1, 2, 5])
@pytest.mark.parametrize("name", ["modularity", "sparse"])
def test_far_copies_of_a_model_do_not_change_the_communities_of_others(
    name: str, copies: int
) -> None:
    for seed in range(8):
        draw = np.random.default_rng(seed)
        models = draw.normal(0, 1, (10, D)) + 0.4 * draw.normal(0, 1, (2, D)).repeat(5, axis=0)
        without = ClientGraph(EuclideanDistance(LAYOUT), DETECTIONS[name])
        graph = ClientGraph(EuclideanDistance(LAYOUT), DETECTIONS[name])
        for client, model in enumerate(models.astype(np.float32)):
            without.put(client, model, 1)
            graph.put(client, model, 1)
        for liar in range(10, 10 + copies):
            graph.put(liar, np.full(D, 1e3, np.float32), 1, odd=True)
        others, liars = np.split(graph.labels(), [10])
        np.testing.assert_array_equal(canonical(others), without.labels())
        assert len({*liars.tolist()}) == 1
        assert not {*liars.tolist()} & {*others.tolist()}


def test_a_cut_parts_two_groups() -> None:
    graph = _graph(ShiftedCosine())
    for client in (0, 1, 3, 4, 6):
        graph.put(client, _vector(graph.measure, client, 1), 1)
    assert graph.labels().tolist() == [0, 1, 0, 1, 0]


def test_what_is_shown_is_what_communities_are_found_in() -> None:
    graph = ClientGraph(EuclideanDistance(LAYOUT), DETECTIONS["modularity"])
    for client in range(8):
        graph.put(client, _vector(graph.measure, client, 1), 1, odd=client == 2)
    odd = np.arange(8) == 2
    distance = graph.distance()
    assert distance is not None
    expected = normalised_similarity(distance.astype(float), exponent=3.0, odd=odd)
    np.testing.assert_array_equal(graph.similarity(), expected)
    assert _graph(ShiftedCosine()).distance() is None


@pytest.mark.parametrize("rows", [2, 256])
def test_extremes_are_those_of_different_clients(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl_app.graph.client_graph.BLOCK_ROWS", rows)
    graph = _graph(EuclideanDistance(LAYOUT))
    for client in range(7):
        graph.put(client, _vector(graph.measure, client, 1), 1)
    for among in (graph.vectors.order, np.array([5, 1, 2])):
        for counted in (np.ones(len(among), bool), np.arange(len(among)) != 1):
            values = graph.values(among[counted])
            apart = values[~np.eye(len(values), dtype=bool)]
            found = graph.extremes(among, counted)
            assert found == (float(apart.min()), float(apart.max()))
    assert graph.extremes(np.array([0]), np.ones(1, bool)) == (0.0, 0.0)
