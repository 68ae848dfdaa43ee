"""Federated k-means as a run does it: against central k-means, early ends, resuming."""

import json
from pathlib import Path

import numpy as np
import pytest

from fl_app import wiring
from fl_app.client.clustering import as_points
from fl_app.config import ConfigError, load
from fl_app.kmeans.lloyd import assign, local_update
from fl_app.main import run
from fl_app.records.models import read_models
from fl_app.strategies.kmeans import KMeans
from fl_app.strategies.replies import Replies

BASE = ["population=iid", "population.clients=6", "network=centroids", "records.figures=false"]
PLAIN = ["strategy.steps=1", "strategy.learning_rate=1.0", "strategy.momentum=0.0",
         "strategy.init=random"]  # fmt: skip


def _run(folder: Path, *overrides: str, resume: bool = False) -> tuple[np.ndarray, list[dict]]:
    """Return the centroids (k, d) and the records of a run."""
    run([*BASE, *overrides], folder, resume=resume)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return read_models(folder)[0]["centroids"], [json.loads(line) for line in lines]


def test_one_step_of_all_clients_is_central_lloyd(tmp_path: Path) -> None:
    found, _ = _run(tmp_path, "strategy=kmeans", *PLAIN, "rounds=5")
    config = load([*BASE, "strategy=kmeans"])
    people = wiring.population(config)
    points = np.concatenate([as_points(people.client(c).train_images) for c in range(6)])
    _, start = wiring.initial_model(config)
    central = start[: found.size].reshape(found.shape).astype(float)
    for _ in range(5):
        central, _ = local_update(points, central, steps=1, tolerance=0)
    np.testing.assert_allclose(found, central, atol=1e-5)


def test_kfed_is_one_round_measured_on_everyone(tmp_path: Path) -> None:
    found, records = _run(tmp_path, "strategy=kfed")
    assert len(records) == 1
    assert records[0]["notes"]["accuracy"] > 0.5
    assert 0 < records[0]["notes"]["v_measure"] < 1
    assert np.isfinite(found).all()
    assert json.loads((tmp_path / "summary.json").read_text())["status"] == "completed"


def test_it_ends_when_the_centroids_stand_still(tmp_path: Path) -> None:
    _, records = _run(tmp_path, "strategy=kmeans", *PLAIN, "strategy.patience=30", "rounds=400")
    assert len(records) < 400
    assert records[-1]["notes"]["movement"] == pytest.approx(0.0, abs=1e-9)
    assert records[-1]["accuracy"] is not None


def test_the_best_of_several_starts_is_kept(tmp_path: Path) -> None:
    found, records = _run(
        tmp_path, "strategy=kmeans", "strategy.init=kmeans++", "strategy.n_init=3", "rounds=30"
    )
    ends = [records[i]["train_loss"] for i in (9, 19, 29)]
    config = load([*BASE, "strategy=kmeans"])
    people = wiring.population(config)
    points = np.concatenate([as_points(people.client(c).train_images) for c in range(6)])
    distance = assign(points, found.astype(float))[1].mean()
    assert distance == pytest.approx(min(ends), rel=0.05)


def test_weighting_by_the_name_of_a_function(tmp_path: Path) -> None:
    named, _ = _run(
        tmp_path / "named", "strategy=kmeans", "rounds=3",
        "strategy.weighting=fl_app.kmeans.weighting.equal",
    )  # fmt: skip
    equal, _ = _run(tmp_path / "equal", "strategy=kmeans", "rounds=3", "strategy.weighting=equal")
    np.testing.assert_array_equal(named, equal)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["strategy=kmeans", "network=small_cnn"], "need each other"),
        (["strategy=flic"], "need each other"),
        (["strategy=kfed", "records.central_test=true"], "must be false with network=centroids"),
    ],
)
def test_centroids_go_with_kmeans_alone(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load([*BASE, *overrides], also=wiring.problems)


def test_a_strategy_taken_up_in_the_middle_goes_on_as_if_nothing_had_happened() -> None:
    config = load([*BASE, "strategy=kmeans", "strategy.n_init=2", "rounds=12"])
    draw = np.random.default_rng(0)

    def replies(strategy: KMeans, server_round: int) -> Replies:
        k, length = strategy.k, strategy.length
        models = draw.normal(size=(6, k * length + k)).astype(np.float32)
        models[:, -k:] = np.abs(models[:, -k:]).round()
        ones = np.ones(6)
        return Replies(np.arange(6), models, np.zeros(6, int), ones, ones)

    first, second = wiring.strategy(config), wiring.strategy(config)
    assert isinstance(first, KMeans)
    assert isinstance(second, KMeans)
    for server_round in range(1, 13):
        given = replies(first, server_round)
        for strategy in (first, second):
            strategy.receive = lambda *_, given=given: given  # type: ignore[method-assign]
            strategy.aggregate_fit(server_round, [], [])
        again = wiring.strategy(config)
        again.restore(*second.checkpoint())
        second = again
    np.testing.assert_array_equal(first.communities.models, second.communities.models)
