"""Splits the rows of a table into training and test, for each client that a column names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fl_app.rng import generator

TestShare = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True)
class Owners:
    """Which client has each row: `train` (N,) and `test` (M,) are places in `names`.

    `source` is the column or folder that says so, for messages.
    """

    names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray
    source: str

    @staticmethod
    def of(
        clients: Sequence[str] | None, train: np.ndarray, test: np.ndarray, source: str
    ) -> "Owners | None":
        """Return the clients of some training and test rows, None if they are not known."""
        if clients is None:
            return None
        names, member = np.unique(np.asarray(clients, str), return_inverse=True)
        return Owners(tuple(names.tolist()), member[train], member[test], source)


def split_rows(
    rows: int, share: float, *, seed: int, owners: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows, in order; `share` of them, drawn with the seed, are for test.

    With `owners` (N,) it is the share of each owner's rows, and each owner of at least two rows
    has both kinds.
    """
    draw = generator(seed, purpose="table split")
    if not share or not rows:
        return np.arange(rows), np.arange(0)
    groups = [np.arange(rows)]
    if owners is not None:
        _, member = np.unique(np.asarray(owners), return_inverse=True)
        order = np.argsort(member, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(member))[:-1])
    test = np.concatenate([_drawn(group, share, draw) for group in groups])
    return np.setdiff1d(np.arange(rows), test), np.sort(test)


def _drawn(rows: np.ndarray, share: float, draw: np.random.Generator) -> np.ndarray:
    count = min(max(round(len(rows) * share), 1), len(rows) - 1)
    return draw.permutation(rows)[:count]
