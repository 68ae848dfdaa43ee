"""Data sets and networks as users write them, some with a mistake."""

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fl_app.data.datasets import Dataset
from fl_app.data.preparation import Preparation

ROWS = np.zeros((40, 3), np.float32)
HALVES = np.arange(40) % 2


def rows(*, seed: int) -> Dataset:
    """Return rows of a table."""
    return Dataset("rows", 2, ROWS, HALVES, ROWS, HALVES)


def signs(*, seed: int) -> Dataset:
    """Return labels -1 and 1."""
    return Dataset("signs", 2, ROWS, 2 * HALVES - 1, ROWS, 2 * HALVES - 1)


def numbers(*, seed: int) -> Dataset:
    """Return numbers to predict."""
    return Dataset("numbers", 1, ROWS, HALVES / 3, ROWS, HALVES / 3, target="regression")


def tokens(*, seed: int) -> Dataset:
    """Return tokens of which the largest is 99."""
    found = np.arange(120).reshape(40, 3) % 100
    return Dataset("tokens", 2, found, HALVES, found, HALVES)


def listed(*, values: list[float], seed: int) -> Dataset:
    """Return rows with an option that is a list."""
    assert values
    return rows(seed=seed)


def named(*, names: list[int | str], seed: int) -> Dataset:
    """Return rows of classes with names."""
    return replace(rows(seed=seed), class_names=tuple(names))


@dataclass(frozen=True)
class Silent(Preparation):
    """Does not say what it reads."""

    mean: Any

    def arrays(self, given: Any) -> np.ndarray:
        """Return samples without the mean."""
        found: np.ndarray = np.asarray(given, np.float32) - np.asarray(self.mean)
        return found


class Centred(Silent):
    """Says it."""

    reads = "arrays"


def centred(*, kind: str, seed: int) -> Dataset:
    """Return rows with a preparation."""
    mean = ROWS.mean(axis=0)
    made = {"array": Centred(mean), "list": Centred(mean.tolist()), "silent": Silent(0.0)}[kind]
    return replace(rows(seed=seed), preparation=made)


class Ward(Enum):
    """Which rows are read."""

    NORTH = "north"
    SOUTH = "south"


def of_folder(*, root: Path, ward: Ward, sides: tuple[int, int], seed: int) -> Dataset:
    """Return rows by settings that are no JSON values."""
    assert root.is_absolute()
    assert (ward, sides) == (Ward.SOUTH, (2, 3))
    return rows(seed=seed)


def nothing(*, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrays in place of a data set."""
    return ROWS, HALVES


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a linear classifier."""
    return nn.Linear(shape[0], classes)


def wide(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network for other data."""
    return nn.Linear(100, classes)


def broken(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Fail."""
    raise KeyError("width")


def embedding(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return an embedding of 50 tokens."""
    return nn.EmbeddingBag(50, classes)
