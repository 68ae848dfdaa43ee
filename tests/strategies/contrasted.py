"""Toy federations with noise for methods with `graph.contrast`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.common import FitRes
from methods import builder

from fl_app.params import Layout
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.server_context import ServerContext
from fl_app.testing.toy import DETECTION, context, reply

MANY, CLIENTS, ROUNDS = 200, 12, 12
"""Parameters, clients and rounds; in few dimensions, noise alone can look like groups."""
ONCE: dict[str, Any] = {"cluster_round": 10}
METHODS: dict[str, dict[str, Any]] = {
    "flic": ONCE,
    "late": ONCE,
    "hierarchical": ONCE,
    "cfl": {"mode": "clusters", "alpha_threshold": 0.5},
    "communities": {},
    "communities_1nn": {"similarity": "euclidean"},
    "communities_wnn": {"similarity": "euclidean"},
    "dcfl": {},
}
Client = Callable[[int, np.ndarray, int], FitRes]


def widen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let toy clients compare models of MANY parameters."""
    targets = 4 * np.eye(3, MANY, dtype=np.float32)
    monkeypatch.setattr("fl_app.testing.toy.TARGETS", targets)


def grouped(groups: int, seed: int) -> Client:
    """Return clients that go a fifth of the way to their group's target, with much noise."""

    def answer(number: int, start: np.ndarray, server_round: int) -> FitRes:
        noise = np.random.default_rng((seed, number, server_round)).normal(0, 0.05, MANY)
        step = 0.2 * (4 * np.eye(3, MANY)[number % groups] - start)
        return reply((start + step + noise).astype(np.float32))

    return answer


def wide(**changes: Any) -> ServerContext:
    """Return a context with contrast, and models of MANY parameters."""
    return context(
        contrast=True, layout=Layout(("w",), ((2, MANY // 2),), 1),
        initial=np.zeros(MANY, np.float32), detection=replace(DETECTION, backend="fast"), **changes,
    )  # fmt: skip


def built(
    name: str, *, seed: int = 0, participation: float = 1.0, **options: object
) -> CommunityStrategy:
    """Return a method with contrast for models of MANY parameters."""
    given = wide(seed=seed, rounds=ROUNDS + 1)
    return builder(name, participation=participation, **(METHODS[name] | options))(given)
