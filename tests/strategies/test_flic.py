"""FLIC: phases, the graph that fills, communities and their models."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from flwr.common import Code, EvaluateRes, FitRes, Status

from fl_app.params import Layout
from fl_app.strategies.flic import Flic
from fl_app.strategies.graph_use import add_updates, by_significance, graph_of_sums
from fl_app.strategies.replies import Replies
from fl_app.testing.toy import (
    DETECTION,
    LAYOUT,
    SIZE,
    TARGETS,
    context,
    honest,
    parts,
    play,
    roster,
)
from fl_app.wiring import made

flic = partial(made, "strategy=flic")


def _flic(**options: object) -> Flic:
    values: dict[str, object] = {"participation": 0.5, "cluster_round": 6}
    return flic(context(), **(values | options))


def test_planted_groups_are_found_and_each_gets_its_own_model() -> None:
    strategy = _flic(participation=1.0)
    play(strategy, roster(12), range(1, 11))
    members = strategy.state.communities.members
    assert strategy.state.clustered_at == 6
    assert parts(strategy) == {frozenset(range(group, 12, 3)) for group in range(3)}
    for client, row in members.items():
        np.testing.assert_allclose(
            strategy.state.communities.models[row], TARGETS[client % 3], atol=0.35
        )


def test_before_the_clustering_round_there_is_one_model_and_the_view_looks_ahead() -> None:
    strategy = _flic()
    play(strategy, roster(12), range(1, 5))
    view = strategy.view(4)
    assert strategy.outcome(4).phase == "federated"
    assert len(strategy.state.communities.models) == 1
    assert view is not None
    assert view.labels.shape == view.client_ids.shape


def test_the_whole_matrix_of_many_clients_is_shown_at_the_clustering_alone() -> None:
    many = replace(DETECTION, sparse_above=5, neighbours=4)
    strategy = flic(context(detection=many), participation=1.0, cluster_round=2)
    shown = []
    for number in (1, 2, 3):
        play(strategy, roster(12), range(number, number + 1))
        view = strategy.view(number)
        assert view is not None
        shown.append(view.similarity is not None)
    assert shown == [False, True, False]


def test_updates_are_the_received_model_minus_the_returned_one() -> None:
    strategy = _flic(participation=1.0)
    play(strategy, roster(3), range(1, 2))
    vectors = strategy.state.graph.vectors
    assert vectors.client_ids.tolist() == [0, 1, 2]
    np.testing.assert_allclose(vectors.read(vectors.order), -0.5 * TARGETS, atol=0.06)


def test_early_updates_are_left_out_of_the_graph() -> None:
    strategy = _flic(participation=1.0, ignore_before=4)
    play(strategy, roster(6), range(1, 4))
    assert len(strategy.state.graph) == 0
    play(strategy, roster(6), range(4, 5))
    assert strategy.state.graph.vectors.rounds().tolist() == [4] * 6


def test_statistics_of_normalisation_do_not_count_as_direction() -> None:
    layout = Layout(("w", "running_mean"), ((4,), (2,)), 1)
    strategy = flic(context(layout=layout), participation=1.0, cluster_round=6)
    play(strategy, roster(3), range(1, 2))
    assert strategy.state.graph.vectors.table().shape == (3, 4)
    assert LAYOUT.direction == slice(0, 6)


def test_auto_clusters_once_the_loss_stands_still() -> None:
    strategy = _flic(cluster_round="auto", stability_window=2, stability_tolerance=0.05)
    play(strategy, roster(6), range(1, 4))
    assert strategy.outcome(3).stability is None
    play(strategy, roster(6), range(4, 5))
    assert strategy.outcome(4).stability == 0.0
    assert strategy.state.clustered_at == 4


def test_auto_waits_for_updates_that_are_not_ignored() -> None:
    strategy = _flic(
        cluster_round="auto", stability_window=2, stability_tolerance=0.05, ignore_before=6
    )
    play(strategy, roster(6), range(1, 6))
    assert strategy.outcome(5).stability == 0.0
    assert strategy.state.clustered_at is None
    play(strategy, roster(6), range(6, 7))
    assert strategy.state.clustered_at == 6


def test_clients_never_sampled_try_every_model_and_take_the_best() -> None:
    known = roster(12)
    strategy = _flic(participation=0.2, cluster_round=3, fallback=False)
    play(strategy, known, range(1, 11))
    strangers = set(range(12)) - set(strategy.state.communities.members)
    assert strangers
    instructions = strategy.configure_evaluate(10, strategy.initialize_parameters(known), known)
    results = []
    for proxy, ins in instructions:
        client, row = known.client_id(proxy), int(ins.config["community"])
        assert ins.config["choose"] == (client in strangers)
        loss = 0.1 if row == 1 else 0.7
        metrics = {"client_id": client, "community": row, "accuracy": 1 - loss, "choice_loss": loss}
        results.append((proxy, EvaluateRes(Status(Code.OK, ""), loss, 5, metrics)))
    strategy.aggregate_evaluate(10, results, [])
    assert strategy.evaluation.scores.assigned == dict.fromkeys(sorted(strangers), 1)
    assert all(strategy.evaluation.scores.accuracy[client] == 0.9 for client in strangers)


def test_with_contrast_groups_are_found_from_cumulated_updates() -> None:
    strategy = flic(context(contrast=True), participation=0.5, cluster_round=8)
    play(strategy, roster(12), range(1, 9))
    assert parts(strategy) == {frozenset(range(group, 12, 3)) for group in range(3)}


def test_with_contrast_clients_of_one_kind_stay_one_community() -> None:
    def alike(client: int, start: np.ndarray, server_round: int) -> FitRes:
        return honest(3 * client, start, server_round)

    strategy = flic(context(contrast=True), participation=1.0, cluster_round=8)
    play(strategy, roster(12), range(1, 9), client=alike)
    assert len(strategy.state.communities.models) == 1


def test_cumulated_updates_are_of_usual_length_without_their_mean() -> None:
    given = context(contrast=True)
    graph = graph_of_sums(given, by_significance(given))
    sent = np.zeros((1, SIZE), np.float32)
    models = -np.eye(SIZE, dtype=np.float32)[:3] * np.array([[1], [2], [8]], np.float32)
    ids, one = np.array([4, 1, 7]), np.zeros(3, int)
    replies = Replies(ids, models, one, *np.ones((3, 3)))
    for server_round in (1, 2):
        add_updates(graph, given, server_round, replies, sent, one)
    add_updates(graph, given, 3, replies, sent, np.array([0, 0, 1]))  # too few for a common drift
    expected = 2 * (2 * np.eye(SIZE)[:3] - 2 / 3 * np.eye(SIZE)[:3].sum(axis=0))
    vectors = graph.vectors
    np.testing.assert_allclose(vectors.read(vectors.rows_of(ids.tolist())), expected, atol=1e-6)
    assert vectors.rounds().tolist() == [2, 2, 2]
    assert vectors.norms(vectors.rows_of([4]))[0] == pytest.approx(np.linalg.norm(expected[0]))
