"""What the results of the benchmark say: means by cell, ranks, and which method for what."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from method_cells import (
    CHANGES,
    DATA,
    METHODS,
    PARTICIPATION,
    SHIFTS,
    Cell,
    Scale,
    cell_named,
    cells,
)
from method_runs import Found, final

from fl_app.evaluation.ranks import (
    Friedman,
    critical_difference,
    friedman,
    ranks,
    wilcoxon_holm,
)

ALPHA = 0.05
FEWEST = 5
"""Cells without which nothing is said about a situation."""
MEASURES = {
    "accuracy": ("accuracy", 3), "worst": ("worst tenth of the clients", 3), "ari": ("ARI", 2),
    "communities": ("communities", 1), "rounds": ("rounds to 95 % of the best", 1),
    "megabytes": ("MB", 1), "client_s": ("seconds on clients", 1),
    "server_s": ("seconds on the server", 2), "unseen": ("unseen clients, labels", 3),
    "unlabelled": ("unseen clients, no labels", 3),
}  # fmt: skip
"""Each measure by name: its label and its decimals."""


@dataclass
class Entry:
    """The results of one method in one cell, one value of each measure per seed."""

    values: dict[str, list[float]] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    tried: int | None = None
    error: str | None = None

    def mean(self, measure: str) -> float | None:
        """Return the mean over the seeds; None without a value."""
        found = self.values.get(measure)
        return float(np.mean(found)) if found else None

    def deviation(self, measure: str) -> float | None:
        """Return the standard deviation over the seeds; None for less than two."""
        found = self.values.get(measure, [])
        return float(np.std(found, ddof=1)) if len(found) > 1 else None


Entries = Mapping[tuple[Cell, str], Entry]


def entries(found: Sequence[Found], scale: Scale, budget: int) -> dict[tuple[Cell, str], Entry]:
    """Return the final results of a scale and a budget, by cell and method."""
    every: dict[tuple[Cell, str], Entry] = {}
    for each in found:
        where, cell, method, tried, seed, purpose = each["key"]
        if (where, purpose) != (scale.name, final(budget)):
            continue
        entry = every.setdefault((cell_named(cell), method), Entry())
        entry.tried = tried
        if "error" in each:
            entry.error = each["error"]
            continue
        entry.seeds.append(seed)
        for name in MEASURES:
            if each.get(name) is not None:
                entry.values.setdefault(name, []).append(float(each[name]))
    return every


def size(found: Sequence[Found], scale: Scale) -> str:
    """Return how many runs of a scale were measured, with the tuning, and what they took."""
    mine = [each for each in found if each["key"][0] == scale.name]
    measured = {each["key"][1] for each in mine}
    hours = sum(each.get("cpu_s", 0.0) for each in mine) / 3600
    return (
        f"{len(mine):,} runs in {len(measured)} of {len(cells())} cells, with the tuning, in "
        f"{hours:.1f} hours of processor time."
    )


@dataclass(frozen=True)
class Standing:
    """How the methods compare over some cells, those in which each has a value.

    `scores` (cells, methods) are means over the seeds, `mean_ranks` (methods,) those of their
    ranks, `p` (methods,) that of each method beside the best one (Wilcoxon, Holm), `critical` the
    difference of mean ranks from which on two methods differ (Nemenyi).
    """

    cells: list[Cell]
    methods: list[str]
    scores: np.ndarray
    mean_ranks: np.ndarray
    friedman: Friedman | None
    critical: float | None
    p: np.ndarray

    @property
    def best(self) -> int:
        """The column of the method with the best mean rank."""
        return int(self.mean_ranks.argmin())

    @property
    def differ(self) -> bool:
        """Whether the Friedman test finds any difference."""
        return self.friedman is not None and self.friedman.p < ALPHA

    def equals(self) -> list[int]:
        """Return the columns of the methods that do not differ from the best, by mean rank."""
        limit = np.inf if self.critical is None or not self.differ else self.critical
        near = np.flatnonzero(self.mean_ranks - self.mean_ranks[self.best] < limit)
        return sorted(near.tolist(), key=lambda column: (self.mean_ranks[column], column))


def standing(
    found: Entries, chosen: Callable[[Cell], bool], measure: str = "accuracy"
) -> Standing | None:
    """Return the standing of all methods with this measure over the chosen cells; None if empty.

    A cell counts if each of these methods has a value in it; more is better.
    """
    with_value = {name for (_, name), entry in found.items() if entry.mean(measure) is not None}
    methods = [name for name in METHODS if name in with_value]
    rows, complete = list[list[float]](), list[Cell]()
    for cell in sorted({cell for cell, _ in found if chosen(cell)}):
        mine = [found.get((cell, method), Entry()).mean(measure) for method in methods]
        values = [each for each in mine if each is not None]
        if methods and len(values) == len(methods):
            rows.append(values)
            complete.append(cell)
    if not complete:
        return None
    scores = np.array(rows)
    mean_ranks = ranks(scores).mean(axis=0)
    several = len(methods) > 1
    return Standing(
        complete, methods, scores, mean_ranks, friedman(scores),
        critical_difference(len(complete), len(methods), alpha=ALPHA) if several else None,
        wilcoxon_holm(scores, int(mean_ranks.argmin())),
    )  # fmt: skip


SITUATIONS: Mapping[str, Callable[[Cell], bool]] = {
    "all cells": lambda cell: True,
    **{f"shift: {each}": (lambda cell, e=each: cell.shift == e) for each in SHIFTS},
    **{f"participation: {each}": (lambda cell, e=each: cell.participation == e)
       for each in PARTICIPATION},
    **{f"clients: {each}": (lambda cell, e=each: cell.change == e) for each in CHANGES},
    **{f"data: {each}": (lambda cell, e=each: cell.data == e) for each in DATA},
}  # fmt: skip


UNSEEN = {"unseen clients, with labels": "unseen", "unseen clients, without": "unlabelled"}
"""Situations over all cells, by the measure that counts in them."""


@dataclass(frozen=True)
class Advice:
    """What the results say of a situation; `best` None: too few cells."""

    situation: str
    cells: int
    best: str | None = None
    equals: tuple[str, ...] = ()
    cheapest: str | None = None
    gain: float | None = None
    """The mean accuracy of the best method minus that of one model, FedAvg."""
    p: float | None = None
    """Of the Friedman test."""


def advice(found: Entries) -> list[Advice]:
    """Return what the results say of each situation."""
    every = [_advice(found, name, chosen) for name, chosen in SITUATIONS.items()]
    return every + [
        _advice(found, name, SITUATIONS["all cells"], measure) for name, measure in UNSEEN.items()
    ]


def _advice(
    found: Entries, situation: str, chosen: Callable[[Cell], bool], measure: str = "accuracy"
) -> Advice:
    now = standing(found, chosen, measure)
    if now is None or len(now.cells) < FEWEST or len(now.methods) < 2:
        return Advice(situation, 0 if now is None else len(now.cells))
    equals = now.equals()
    means = now.scores.mean(axis=0)
    gain = None
    if "fedavg" in now.methods:
        gain = float(means[now.best] - means[now.methods.index("fedavg")])

    def sent(column: int) -> float:
        name = now.methods[column]
        return float(np.mean([found[cell, name].mean("megabytes") or 0.0 for cell in now.cells]))

    return Advice(
        situation, len(now.cells), now.methods[now.best],
        tuple(now.methods[c] for c in equals if c != now.best),
        now.methods[min(equals, key=sent)], gain,
        None if now.friedman is None else now.friedman.p,
    )  # fmt: skip
