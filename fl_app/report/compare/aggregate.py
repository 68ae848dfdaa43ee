"""Groups runs by the varied settings, with mean and deviation of each measure over the seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fl_app.report.compare.jobs import Job, lacking
from fl_app.report.compare.measures import MEASURES, known

METHOD = ("strategy", "graph")
"""Config groups whose keys define the method; all other keys define the setting."""
DEFAULT = "default"
"""The value of a setting that a run was not given."""
ABSENT = "-"
"""What a table shows for a setting that the options of a run do not have."""
SCALARS = ("experiment_name", "rounds", "fallback")
"""Settings at the top of `conf/config.yaml`, where all other keys are groups of options."""
MOST_KEYS = 6
"""Settings that have a column each and are in the labels of figures; more share one column."""


@dataclass(frozen=True)
class Spread:
    """Mean and population standard deviation over the `known` of `runs` runs with a value.

    If a value is infinite, the mean is too, and the deviation is NaN.
    """

    mean: float
    std: float
    known: int
    runs: int


@dataclass(frozen=True, eq=False)
class Row:
    """One combination: its value of every key, its runs, and the measures that it has.

    absent: the keys that its options do not have, such as a round of clustering in FedAvg.
    """

    values: tuple[str, ...]
    jobs: tuple[Job, ...]
    cells: Mapping[str, Spread]
    absent: frozenset[str] = frozenset()

    @property
    def seeds(self) -> tuple[str, ...]:
        """The seeds of the runs, sorted."""
        return _sorted_seeds(self.jobs)


@dataclass(frozen=True)
class Comparison:
    """All combinations; `keys` are the overrides that differ, `common` those that do not.

    `method` and `setting` partition the keys: methods are compared within each setting.
    """

    keys: tuple[str, ...]
    method: tuple[str, ...]
    setting: tuple[str, ...]
    common: Mapping[str, str]
    seeds: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[Row, ...]

    def part(self, row: Row, keys: Sequence[str]) -> tuple[str, ...]:
        """Return the values of a row for some of the keys."""
        return tuple(row.values[self.keys.index(key)] for key in keys)

    def name(self, row: Row, keys: Sequence[str]) -> str:
        """Return the name of a row by some of the keys."""
        return label_of(keys, self.part(row, keys))

    @property
    def many(self) -> bool:
        """Whether there are too many keys for a column each."""
        return len(self.keys) > MOST_KEYS

    @property
    def mixed(self) -> bool:
        """Whether the rows have runs of different seeds."""
        return len({row.seeds for row in self.rows}) > 1

    def settings(self) -> dict[tuple[str, ...], list[Row]]:
        """Return the rows of each setting, in order."""
        found: dict[tuple[str, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(self.part(row, self.setting), []).append(row)
        return found

    def best(self, measure: str) -> set[Row]:
        """Return the row of each setting that is better than all others by more than the spread.

        This means that its range mean ± deviation overlaps no other. A setting has no best row if
        a row has a single run, so that its spread is unknown, or has runs without a value, or if
        the rows have different seeds.
        """
        sign = {"more": 1.0, "less": -1.0, None: 0.0}[MEASURES[measure].better]
        found = set()
        for rows in self.settings().values():
            cells = [(row, row.cells[measure]) for row in rows if measure in row.cells]
            partial = any(cell.known < max(2, cell.runs) for _, cell in cells)
            mixed = len({row.seeds for row, _ in cells}) > 1
            if not sign or len(cells) < 2 or partial or mixed:
                continue
            first, *rest = sorted(cells, key=lambda each: -sign * each[1].mean)
            low = sign * first[1].mean - first[1].std
            if all(low > sign * cell.mean + cell.std for _, cell in rest):
                found.add(first[0])
        return found


def label_of(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return what names the values of some keys, without those that have their default.

    For groups, it has only the chosen option.
    """
    given = [(key, value) for key, value in zip(keys, values, strict=True) if value != DEFAULT]
    named = [
        f"{key.rpartition('.')[2]}={value}" if "." in key or key in SCALARS else value
        for key, value in given
    ]
    return " ".join(named) or (DEFAULT if keys else "all")


def varied(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Return the overrides that differ between runs, in the given order."""
    keys = dict.fromkeys(key for job in jobs for key in job.overrides)
    return tuple(key for key in keys if len({job.overrides.get(key) for job in jobs}) > 1)


def aggregate(jobs: Sequence[Job], *, measures: Sequence[str] | None = None) -> Comparison:
    """Group completed runs by the varied settings. Raises ValueError if there is no run.

    `measures` names the measures to show; None: the usual ones that have values.
    """
    if not jobs:
        raise ValueError("no completed run to compare; name folders of runs that have ended")
    names = known(name for job in jobs for name in job.measured)
    usual = [name for name in names if not MEASURES[name].asked]
    keys, asked = varied(jobs), usual if measures is None else measures
    method = tuple(key for key in keys if key.startswith(METHOD))
    groups: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(tuple(job.overrides.get(k, DEFAULT) for k in keys), []).append(job)
    return Comparison(
        keys=keys,
        method=method or keys,
        setting=tuple(key for key in keys if key not in method) if method else (),
        common={k: v for k, v in jobs[0].overrides.items() if k not in keys},
        seeds=_sorted_seeds(jobs),
        measures=tuple(m for m in asked if any(job.measured.get(m) is not None for job in jobs)),
        rows=tuple(
            Row(values, tuple(group), _cells(group), _absent(keys, values, group[0].folder))
            for values, group in groups.items()
        ),
    )


def _absent(keys: Sequence[str], values: Sequence[str], folder: Path) -> frozenset[str]:
    """Return the keys without a value that the configuration of a run does not have either."""
    asked = [key for key, value in zip(keys, values, strict=True) if value == DEFAULT]
    return lacking(folder, asked) if asked else frozenset()


def _sorted_seeds(jobs: Sequence[Job]) -> tuple[str, ...]:
    return tuple(sorted({job.seed for job in jobs}, key=int))


def _cells(jobs: Sequence[Job]) -> dict[str, Spread]:
    cells = {}
    for measure in known(name for job in jobs for name in job.measured):
        values = [value for job in jobs if (value := job.measured.get(measure)) is not None]
        if values:
            spread = float(np.std(values)) if np.isfinite(values).all() else math.nan
            cells[measure] = Spread(float(np.mean(values)), spread, len(values), len(jobs))
    return cells
