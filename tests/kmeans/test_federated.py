"""Federated k-means as a run does it: against central k-means, early ends, resuming."""

import json
import types
from pathlib import Path

import numpy as np
import pytest
from flwr.common import Code, EvaluateRes, Status

from fl_app import client_wiring, server_wiring, wiring
from fl_app.client.clustering import as_points
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.ingress.rejection import RejectionError
from fl_app.kmeans.descent import Descent
from fl_app.kmeans.federated import DescentSettings, descend, start
from fl_app.kmeans.lloyd import assign, local_update
from fl_app.kmeans.weighting import dynamic
from fl_app.one_run import run
from fl_app.records.models import read_models
from fl_app.strategies.kmeans import KMeans
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.state import load as load_state
from fl_app.strategies.state import save

BASE = ["population=iid", "population.clients=6", "network=centroids", "records.figures=false"]
PLAIN = ["strategy.steps=1", "strategy.learning_rate=1.0", "strategy.momentum=0.0",
         "strategy.init=random"]  # fmt: skip
SHARED = ("participation", "steps", "learning_rate", "momentum", "tolerance", "patience")
"""Settings of the method that the algorithm on arrays has by the same name."""


def _run(folder: Path, *overrides: str, resume: bool = False) -> tuple[np.ndarray, list[dict]]:
    """Return the centroids (k, d) and the records of a run."""
    run([*BASE, *overrides], folder, resume=resume)
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return read_models(folder)[0]["centroids"], [json.loads(line) for line in lines]


def _points(*overrides: str) -> list[np.ndarray]:
    """Return the points of each client, as the product hands them to Lloyd's steps."""
    people = wiring.population(load([*BASE, *overrides]))
    return [as_points(people.client(c).train_images) for c in range(people.clients)]


def _against_central(folder: Path, *overrides: str) -> float:
    """Return the largest difference to central Lloyd's iterates after five rounds."""
    found, _ = _run(folder, "strategy=kmeans", *PLAIN, "rounds=5", *overrides)
    points = np.concatenate(_points(*overrides))
    _, start = wiring.initial_model(load([*BASE, "strategy=kmeans", *overrides]))
    central = start[: found.size].reshape(found.shape).astype(float)
    for _ in range(5):
        central, _ = local_update(points, central, steps=1, tolerance=0)
    return float(np.abs(found - central).max())


def test_one_step_of_all_clients_is_central_lloyd(tmp_path: Path) -> None:
    """Lloyd's steps and sums are in float64; centroids travel and are written as float32."""
    assert _against_central(tmp_path, "data.standardise=false") <= 1e-6


def test_one_step_of_all_clients_is_central_lloyd_on_real_mnist(
    tmp_path: Path, real_data: Path
) -> None:
    real = ["data=mnist", f"data.root={real_data}", "data.standardise=false", "network.k=20"]
    real += ["population.train_samples=2000"]
    assert _against_central(tmp_path, *real) <= 1e-6


def test_the_algorithm_on_arrays_gives_what_a_run_gives(tmp_path: Path) -> None:
    shared = ["population=non_iid", "data=blobs", "network.k=5", "data.samples=600", "seed=3"]
    given = [*shared, "strategy=kmeans", "strategy.participation=0.5", "rounds=25"]
    found, records = _run(tmp_path, *given)
    clients = _points(*shared)
    options = load([*BASE, *given]).strategy.options
    named = {name: options[name] for name in SHARED}
    settings = DescentSettings(k=5, seed=3, weigh=dynamic, rounds=25, **named)
    first = start(clients, k=5, seed=3, participation=1.0)
    states = [(state.current, state.moved) for state in descend(clients, first, settings)]
    assert len(states) == len(records) - 1
    np.testing.assert_allclose(found, states[-1][0], atol=1e-5)
    movement = [record["notes"]["movement"] for record in records[1:]]
    np.testing.assert_allclose(movement, [moved for _, moved in states], atol=1e-5)


def test_kfed_is_one_round_measured_on_everyone(tmp_path: Path) -> None:
    found, records = _run(tmp_path, "strategy=kfed")
    assert len(records) == 1
    assert records[0]["notes"]["accuracy"] > 0.5
    assert 0 < records[0]["notes"]["v_measure"] < 1
    assert np.isfinite(found).all()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["ended"] == "strategy.only_start=true ends a run after the first round"


def test_kfed_alone_asks_as_many_as_participate_and_arrays_the_same(tmp_path: Path) -> None:
    shared = ["population=non_iid", "data=blobs", "network.k=5", "data.samples=600"]
    found, records = _run(tmp_path, *shared, "strategy=kfed", "strategy.participation=0.5")
    assert len(records[0]["sampled"]) == 3
    same = start(_points(*shared), k=5, seed=0, participation=0.5)
    np.testing.assert_allclose(found, same, atol=1e-5)


def test_it_ends_when_the_centroids_stand_still(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, records = _run(tmp_path, "strategy=kmeans", *PLAIN, "rounds=400")
    assert len(records) < 400
    assert records[-1]["notes"]["movement"] <= 1e-8 < records[-2]["notes"]["movement"]
    shown = capsys.readouterr().out
    assert f"it ended after round {len(records)}: the centroids converged" in shown
    assert records[-1]["accuracy"] is not None


def test_it_ends_when_patience_is_out() -> None:
    state = Descent(np.zeros((1, 1)), np.zeros((1, 1)))
    plain = {"learning_rate": 1.0, "momentum": 0.0}
    ends = []
    for position in (5.0, 6.0, 8.0, 10.0, 11.0):
        state.follow(np.full((1, 1, 1), position), np.ones((1, 1)), **plain)
        ends.append(state.still(tolerance=0.0, patience=2))
    assert ends == [False, False, False, True, True]


def test_the_best_of_several_starts_is_kept_by_all_clients_scores(tmp_path: Path) -> None:
    found, records = _run(
        tmp_path, "strategy=kmeans", "strategy.init=kmeans++", "strategy.n_init=3", "rounds=30",
        "strategy.participation=0.5", "records.evaluate_every=100",
    )  # fmt: skip
    assert [r["notes"]["start"] for r in records] == [1] * 10 + [2] * 10 + [3] * 10
    scored = [r for r in records if "distance" in r["notes"]]
    assert [r["round"] for r in scored] == [10, 20, 30]
    distance = assign(np.concatenate(_points()), found.astype(float))[1].mean()
    assert distance == pytest.approx(scored[-1]["notes"]["distance"], rel=1e-4)
    assert distance <= min(r["notes"]["distance"] for r in scored) * 1.0001


def test_central_kmeans_clusters_the_union_and_asks_no_client_to_train(tmp_path: Path) -> None:
    found, records = _run(tmp_path, "strategy=central_kmeans", "strategy.n_init=3")
    assert (len(records), records[0]["sampled"]) == (1, [])
    distance = assign(np.concatenate(_points()), found.astype(float))[1].mean()
    assert records[0]["train_loss"] == pytest.approx(distance, rel=1e-4)
    assert records[0]["notes"]["distance"] == pytest.approx(distance, rel=1e-4)


def test_a_clients_accuracy_is_under_the_majority_of_all(tmp_path: Path) -> None:
    _, records = _run(tmp_path, "strategy=kfed", "population=non_iid")
    accuracy = records[0]["accuracy"]["clients"]
    sizes = [len(points) for points in _points("population=non_iid")]
    together = np.average([accuracy[str(c)] for c in range(6)], weights=sizes)
    assert together == pytest.approx(records[0]["notes"]["accuracy"])


def test_counts_that_cannot_weigh_are_refused() -> None:
    strategy = server_wiring.strategy(load([*BASE, "strategy=kmeans"]))
    model = np.zeros(strategy.k * strategy.length + strategy.k, np.float32)
    strategy.cohort.check(model, 100)
    model[-1] = -3
    with pytest.raises(RejectionError, match="counts of points must be at least 0, got -3"):
        strategy.cohort.check(model, 100)
    model[-1] = 101
    with pytest.raises(RejectionError, match="at most the 100 samples in sum, got 101"):
        strategy.cohort.check(model, 100)
    strategy.cohort.check(model, 101)


@pytest.mark.parametrize("init", ["kfed", "kmeans++"])
def test_clients_without_points_leave_the_centroids_where_they_are(init: str) -> None:
    strategy = server_wiring.strategy(load([*BASE, "strategy=kmeans", f"strategy.init={init}"]))
    assert isinstance(strategy, KMeans)
    before = strategy.state.descent.current.copy()
    models = np.ones((3, strategy.k * strategy.length + strategy.k), np.float32)
    models[:, -strategy.k :] = 0
    ones = np.ones(3)
    replies = Replies(np.arange(3), models, np.zeros(3, int), ones, ones, ones)
    strategy.receive = lambda *_: replies  # type: ignore[method-assign]
    strategy.aggregate_fit(1, [], [])
    np.testing.assert_array_equal(strategy.state.descent.current, before)
    strategy.aggregate_fit(2, [], [])
    assert np.isfinite(strategy.state.communities.models).all()


def test_two_blobs_far_from_the_origin_are_told_apart_in_a_run(tmp_path: Path) -> None:
    """Tables and centroids are float32 in a run: at 1e4 their numbers are 0.001 apart."""
    draw = np.random.default_rng(0)
    owner = np.arange(200) % 2
    table = 1e4 + owner[:, None] * [1.0, 0.0] + draw.normal(0, 0.05, (200, 2))
    np.savetxt(tmp_path / "points.csv", np.column_stack([table, owner]), delimiter=",",
               header="x,y,class", comments="")  # fmt: skip
    given = ["data=table", f"data.root={tmp_path}", "data.label=class", "data.classes=2",
             "network.k=2", "strategy=kmeans", "rounds=5",
             "strategy.learning_rate=1.0", "strategy.momentum=0.0"]  # fmt: skip
    for population in ("iid", "non_iid"):
        overrides = [f"population={population}", "population.clients=2"]
        found, records = _run(tmp_path / population, *given, *overrides)
        order = found[:, 0].argsort()
        np.testing.assert_allclose(found[order], [[1e4, 1e4], [1e4 + 1, 1e4]], atol=0.05)
        assert records[-1]["notes"]["accuracy"] == 1.0


def test_scores_that_do_not_fit_are_named_and_reach_no_sum() -> None:
    strategy = server_wiring.strategy(load([*BASE, "strategy=kmeans"]))
    good = np.ones((10, 10), np.int64)
    wraps = np.full((10, 10), 2**62, np.int64)

    def reply(table: object, loss: float = 1.0, samples: object = 100) -> EvaluateRes:
        packed = table.tobytes() if isinstance(table, np.ndarray) else table
        metrics = {"accuracy": 0.5, "choice_loss": 1.0, "community": 0, "table": packed}
        return EvaluateRes(Status(Code.OK, ""), loss, samples, metrics)

    replies = [
        reply(good), reply(good, 3.0), reply(b"", samples=0), reply(good, float("nan")),
        reply(b"abc"), reply(b""), reply(-good), reply(good * 2), reply(wraps), reply("table"),
        reply(np.full((10, 3), 10, np.int64), samples=300), reply(good * 10, samples=1000),
        reply(good, -1.0), reply(None),
    ]  # fmt: skip
    known = Roster()
    for client in range(len(replies)):
        proxy = types.SimpleNamespace(cid=str(client + 100))
        known.register(proxy)
        known.introduce(proxy, Identity(client, -1, 100 if client != 10 else 300))
    asked = strategy.configure_evaluate(40, strategy.initialize_parameters(known), known)
    proxies = [proxy for proxy, _ in asked]
    strategy.aggregate_evaluate(40, list(zip(proxies, replies, strict=True)), [])
    assert strategy.evaluation.scores.agreement["distance"] == 2.0
    assert sorted(strategy.evaluation.scores.accuracy) == [0, 1]
    assert sorted(strategy.rejections.by_client) == list(range(3, len(replies)))
    assert all(why.startswith("evaluation: ") for why in strategy.rejections.by_client.values())


def test_clients_with_tables_of_their_own_and_no_classes(tmp_path: Path) -> None:
    """As SuperNodes do, each with its data root; the server has the names of the columns."""
    draw = np.random.default_rng(0)
    for node in range(2):
        (tmp_path / str(node)).mkdir()
        np.savetxt(tmp_path / str(node) / "points.csv", draw.normal(node, 0.1, (8, 2)),
                   delimiter=",", header="x,y", comments="")  # fmt: skip
    (tmp_path / "points.csv").write_text("x,y\n")
    overrides = ["population=own", "population.clients=2", "network=centroids", "network.k=2"]
    overrides += ["data=table", f"data.root={tmp_path}", "data.test_share=0", "strategy=kmeans"]
    config = load(overrides)
    clients = [client_wiring.client(config, c, str(tmp_path / str(c))) for c in range(2)]
    assert server_wiring.strategy(config).length == 2
    assert [client.samples for client in clients] == [8, 8]
    task = {"steps": 1, "tolerance": 0.0, "own": False}
    start = np.array([0, 0, 1, 1, 0, 0], np.float32)
    counts = [client.fit(start, server_round=1, task=task).model[-2:] for client in clients]
    assert [each.tolist() for each in counts] == [[8, 0], [0, 8]]
    score = clients[1].score(start, train_data=False, server_round=1)
    assert score.table.tolist() == [[0], [8]]


def test_a_run_that_is_given_more_rounds_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, _ = _run(tmp_path / "whole", "strategy=kmeans", "rounds=8")
    _run(tmp_path / "cut", "strategy=kmeans", "rounds=5")
    longer, records = _run(tmp_path / "cut", "strategy=kmeans", "rounds=8", resume=True)
    assert [record["notes"]["start"] for record in records] == [1] * 8
    np.testing.assert_array_equal(longer, whole)


@pytest.mark.parametrize("method", ["kfed", "central_kmeans"])
def test_a_run_that_has_ended_is_not_changed_by_resuming_it(tmp_path: Path, method: str) -> None:
    whole, _ = _run(tmp_path, f"strategy={method}", "rounds=8")
    again, records = _run(tmp_path, f"strategy={method}", "rounds=8", resume=True)
    assert len(records) == 1
    np.testing.assert_array_equal(again, whole)


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
        (["strategy=kmeans", "network=small_cnn"], "one kind of model"),
        (["strategy=flic"], "one kind of model"),
        (["strategy=kfed", "records.central_test=true"], "answers with no classes"),
        (
            ["strategy=kmeans", "strategy.weighting=no.such"],
            r"one of capped, dynamic, equal, or the dotted name .*got 'no.such'",
        ),
        (["strategy=kmeans", "strategy.weighting=math.pi"], r"of the counts, got 'math.pi'"),
        (["strategy=central_kmeans", "engine=deployment"], "engine must be inprocess or simul"),
        (["data=table", "data.root=nowhere", "network.k=2"], "no table at .*nowhere"),
    ],
)
def test_centroids_go_with_kmeans_alone(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load([*BASE, *overrides], also=problems)


def test_a_strategy_taken_up_in_the_middle_goes_on_as_if_nothing_had_happened() -> None:
    config = load([*BASE, "strategy=kmeans", "strategy.n_init=2", "rounds=12"])
    draw = np.random.default_rng(0)

    def replies(strategy: KMeans, server_round: int) -> Replies:
        k, length = strategy.k, strategy.length
        models = draw.normal(size=(6, k * length + k)).astype(np.float32)
        models[:, -k:] = np.abs(models[:, -k:]).round()
        ones = np.ones(6)
        return Replies(np.arange(6), models, np.zeros(6, int), ones, ones, ones)

    first, second = server_wiring.strategy(config), server_wiring.strategy(config)
    assert isinstance(first, KMeans)
    assert isinstance(second, KMeans)
    for server_round in range(1, 13):
        given = replies(first, server_round)
        for strategy in (first, second):
            strategy.receive = lambda *_, given=given: given  # type: ignore[method-assign]
            strategy.aggregate_fit(server_round, [], [])
        again = server_wiring.strategy(config)
        load_state(again.state, *save(second.state))
        second = again
    np.testing.assert_array_equal(first.state.communities.models, second.state.communities.models)
