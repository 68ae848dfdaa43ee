"""The names of the models that clients use, from what a method sends them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.serving import served
from fl_app.types import Vectors

MODELS = np.array([[1, 2], [1, 2], [3, 4]], np.float32)


class _Method:
    """Sends community models, the global model and mixtures, as its `rows` say."""

    to_evaluate = CommunityStrategy.to_evaluate

    def __init__(self, rows: dict[int, tuple[int, ...]], most: int | None = None) -> None:
        self.rows = rows
        communities = SimpleNamespace(models=MODELS, members={})
        whole = np.array([5, 5], np.float32)
        self.state = SimpleNamespace(
            communities=communities, global_model=whole, evaluated={3: 2, 5: 9}
        )
        self.context = SimpleNamespace(evaluate_at_most=most, seed=0)
        mixtures = np.array([[5, 5], [2, 3], [2, 3], [np.nan, 0]], np.float32)
        self.stock = np.concatenate([MODELS, mixtures])

    def mixtures(self, client_ids: Sequence[int]) -> dict[int, Any]:
        return {client: np.array([0, 0.75, 0.25]) for client in client_ids if client >= 90}

    def descriptors(self) -> None:
        """Return nothing: other ways place clients without labels."""

    def attribute(self, client_ids: Sequence[int]) -> tuple[Vectors, list[tuple[int, ...]]]:
        return self.stock, [self.rows[client] for client in client_ids]


def _served(method: Any) -> Any:
    return served(method, sorted(method.rows), 1)


def test_equal_communities_keep_their_names_and_equal_mixtures_share_one() -> None:
    found = _served(_Method({0: (0,), 1: (1,), 2: (3,), 4: (4,), 5: (5,), 6: (6,)}))
    assert found.clients == {
        0: ("community_0",), 1: ("community_1",), 2: ("global",), 4: ("mixture_0",),
        5: ("mixture_0",), 6: ("mixture_1",),
    }  # fmt: skip
    assert list(found.models) == ["global", "mixture_0", "mixture_1"]


def test_a_client_with_a_choice_has_its_last_one_if_that_is_still_offered() -> None:
    found = _served(_Method({3: (0, 2), 5: (0, 2), 6: (0, 2)}))
    both = ("community_0", "community_2")
    assert found.clients == {3: ("community_2",), 5: both, 6: both}


def test_mixtures_are_stored_only_for_clients_that_evaluate() -> None:
    found = _served(_Method({client: (4 + client % 2,) for client in range(8)} | {8: (2,)}, most=0))
    assert found.clients == {8: ("community_2",)}


def test_means_of_communities_are_weights_for_clients_that_never_evaluate_too() -> None:
    found = _served(_Method({4: (4,), 90: (), 91: ()}, most=None))
    assert found.clients == {4: ("mixture_1",), 90: ("mixture_0",), 91: ("mixture_0",)}
    assert found.mixtures == {"mixture_0": {"community_1": 0.75, "community_2": 0.25}}
    assert list(found.models) == ["global", "mixture_1"]
    assert _served(_Method({90: (), 91: ()}, most=0)).clients.keys() == {90, 91}
