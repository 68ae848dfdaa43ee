"""Splits the rows of a table into training and test, for each client that a column names."""

from collections.abc import Iterator, Sequence
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
    has both kinds. The rows of an owner that are for test depend on its name and number of rows
    alone: a run that is resumed with a further owner does not test others on what they trained on.
    Of an owner that gets further rows, most keep their kind.
    """
    if not share or not rows:
        return np.arange(rows), np.arange(0)
    if owners is None:
        drawn = generator(seed, purpose="table split").permutation(rows)
        test = drawn[: _tested(rows, share)]
    else:
        test = np.concatenate([_of_owner(*of, share, seed) for of in _groups(owners)])
    return np.setdiff1d(np.arange(rows), test), np.sort(test)


def _groups(owners: Sequence[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each owner's name and its rows, in order."""
    names, member = np.unique(np.asarray(owners, str), return_inverse=True)
    order = np.argsort(member, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(member))[:-1])
    yield from zip(names.tolist(), groups, strict=True)


def _of_owner(name: str, rows: np.ndarray, share: float, seed: int) -> np.ndarray:
    # each row keeps its number when later ones are added
    numbers = generator(seed, purpose=f"table split of {name}").random(len(rows))
    return rows[np.argsort(numbers, kind="stable")[: _tested(len(rows), share)]]


def _tested(rows: int, share: float) -> int:
    return min(max(round(rows * share), 1), rows - 1)
