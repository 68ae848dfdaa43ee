"""Reads the completed runs under some folders, and their measures."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fl_app.records.history import read_rounds
from fl_app.records.names import ROUNDS
from fl_app.records.reading import read_config, read_overrides
from fl_app.records.summary import read_summary
from fl_app.report.compare.measures import METRIC, measured
from fl_app.report.run import series

UNVARIED = (
    "data.root", "engine.workers", "hydra.", "records.checkpoint_every", "records.figures",
    "records.folder", "records.report", "records.restarts", "records.resume", "records.snapshot",
    "records.started_by", "tracking",
)  # fmt: skip
"""Overrides that are ignored in the comparison, by their beginning: none changes a measure."""


COURSES = {
    "accuracy": ("accuracy", "mean"),
    "ari": ("communities", "ari"),
    "count": ("communities", "count"),
}
"""Measures over the rounds, with their path in a record."""


@dataclass(frozen=True)
class Job:
    """One completed run.

    overrides: the compared ones; they always contain the strategy.
    measured: one value for each of MEASURES, None if there is none, and the task's metrics.
    courses: for each of COURSES and of the task's metrics, the value of each round that has one.
    """

    folder: Path
    overrides: Mapping[str, str]
    seed: str
    measured: Mapping[str, float | None]
    courses: Mapping[str, Mapping[int, float]]
    commit: str


class FoundRuns(NamedTuple):
    """The completed runs in some folders, and the folders of runs that are excluded.

    unfinished: runs that did not complete; unknown: completed ones without a list of settings,
    which no other run can be compared with.
    """

    jobs: list[Job]
    unfinished: list[Path]
    unknown: list[Path]


def read_jobs(folders: Iterable[Path]) -> FoundRuns:
    """Return the runs in the folders and below.

    They are sorted by path, numbers by value. If several runs have the same settings and seed, in
    any order, the last one is used.
    """
    paths = {path.parent for folder in folders for path in folder.rglob(ROUNDS)}
    jobs: dict[tuple[tuple[tuple[str, str], ...], str], Job] = {}
    unfinished, unknown = [], []
    for folder in sorted(paths, key=_numbered):
        summary = read_summary(folder)
        if summary is None or summary.get("status") != "completed":
            unfinished.append(folder)
        elif (given := read_overrides(folder)) is None:
            unknown.append(folder)
        else:
            job = _job(folder, summary, given)
            jobs[tuple(sorted(job.overrides.items())), job.seed] = job
    return FoundRuns(list(jobs.values()), unfinished, unknown)


def compared_settings(overrides: Iterable[str]) -> dict[str, str]:
    """Return the values of the overrides that are compared, by key."""
    parts = [each.lstrip("+").partition("=") for each in overrides]
    return {key: value for key, _, value in parts if not key.startswith(UNVARIED)}


def lacking(folder: Path, keys: Iterable[str]) -> frozenset[str]:
    """Return the keys of settings that the configuration of a run does not have.

    Keys that choose an option of a group or remove a setting are none of these, and nothing is
    known of a run without its configuration.
    """
    config = read_config(folder)
    settings = [key for key in keys if "." in key and not set("~/@") & set(key)]
    return frozenset(key for key in settings if config and not _has(config, key.split(".")))


def _has(config: object, parts: Sequence[str]) -> bool:
    if not parts:
        return True
    return isinstance(config, dict) and parts[0] in config and _has(config[parts[0]], parts[1:])


def _numbered(path: Path) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (sys.maxsize, p) for p in path.parts]


def _job(folder: Path, summary: Mapping[str, Any], given: Iterable[str]) -> Job:
    rounds = read_rounds(folder)
    overrides = {key: value for key, value in compared_settings(given).items() if key != "seed"}
    found = measured(summary, rounds)
    own = [name.removeprefix(METRIC) for name in found if name.startswith(METRIC)]
    paths = COURSES | {f"{METRIC}{name}": ("metrics", name, "mean") for name in own}
    courses = {name: dict(zip(*series(rounds, *path), strict=True)) for name, path in paths.items()}
    return Job(
        folder=folder,
        overrides={"strategy": str(summary["strategy"])} | overrides,
        seed=str(summary["seed"]),
        measured=found,
        courses=courses,
        commit=str(summary.get("git") or ""),
    )
