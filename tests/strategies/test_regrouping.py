"""Communities that take the place of others."""

import numpy as np
import pytest

from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.detection import ByCut
from fl_app.graph.measures import Cosine
from fl_app.strategies.regrouping import inside, regrouped, split_by, splits
from fl_app.strategies.state import Communities

MODELS = np.array([[0.0], [6.0]], np.float32)
NOW = Communities(MODELS, {0: 0, 1: 0, 2: 1, 3: 1})


@pytest.mark.parametrize(
    ("after", "does"),
    [
        ({0: 0, 1: 0, 2: 1, 3: 1}, False),
        ({0: 0, 1: 0, 2: 0, 3: 0}, False),
        ({0: 0, 1: 1, 2: 1, 3: 1}, True),
        ({0: 0, 2: 0, 9: 1}, False),
        ({0: 0, 1: 0, 2: 1, 3: 2}, True),
    ],
)
def test_communities_that_are_joined_are_not_split(after: dict[int, int], does: bool) -> None:
    assert splits(after, NOW.members) == does


@pytest.mark.parametrize(
    ("found", "members"),
    [
        ({0: 0, 1: 1, 2: 0, 3: 0}, {0: 0, 1: 1, 2: 2, 3: 2}),
        ({0: 0, 1: 1, 2: 0, 3: 1}, {0: 0, 1: 1, 2: 0, 3: 1}),
        ({0: 1, 1: 0, 3: 0, 9: 1}, {0: 0, 1: 1, 3: 2, 9: 0}),
        ({0: 0, 1: 0, 2: 0, 3: 0}, {0: 0, 1: 0, 2: 1, 3: 1}),
    ],
)
def test_only_communities_that_are_split_change(
    found: dict[int, int], members: dict[int, int]
) -> None:
    assert split_by(found, NOW.members) == members


def test_a_community_begins_at_the_mean_of_its_clients_models() -> None:
    found = regrouped(NOW, {0: 0, 2: 0, 3: 0, 1: 1})
    np.testing.assert_allclose(found.models, [[4.0], [0.0]])
    assert found.members == {0: 0, 1: 1, 2: 0, 3: 0}


def test_a_community_of_new_clients_begins_at_the_mean_over_all() -> None:
    found = regrouped(NOW, {0: 0, 1: 0, 2: 0, 3: 1, 9: 2})
    np.testing.assert_allclose(found.models, [[2.0], [6.0], [3.0]])


def test_one_model_is_repeated() -> None:
    one = Communities(MODELS[1:], {4: 0})
    found = regrouped(one, {0: 0, 1: 1})
    np.testing.assert_array_equal(found.models, [[6.0], [6.0]])
    assert regrouped(one, {0: 0}).models.tolist() == [[6.0]]


def test_a_client_that_is_not_known_follows_its_community_unless_it_was_split() -> None:
    now = Communities(MODELS, {0: 0, 1: 0, 2: 1, 3: 1, 4: 1})
    assert regrouped(now, {0: 0, 2: 1, 3: 2}).members == {1: 0, 0: 0, 2: 1, 3: 2}


def test_each_community_is_looked_at_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients are one community to this graph, and of two each is one."""
    graph = ClientGraph(Cosine(), ByCut())
    monkeypatch.setattr(graph, "labels", lambda among: np.arange(len(among)) * (len(among) == 2))
    for client in (1, 2, 4, 7, 8, 9):
        graph.put(client, np.ones(2, np.float32), 1)
    before = {1: 5, 2: 3, 4: 5, 7: 3, 9: 3, 6: 0}
    found = inside(graph, np.array([1, 2, 4, 7, 8, 9]), before)
    assert found == {2: 0, 7: 0, 9: 0, 1: 1, 4: 2}
