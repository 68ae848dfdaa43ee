"""The completed runs under some folders, and what was measured of each."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from fl_app.records.history import FILE, read_rounds
from fl_app.records.summary import read_summary
from fl_app.report.run import first_right_round, series

UNVARIED = ("data.root", "hydra.", "records.", "tracking")
"""Overrides that are no part of what is compared."""


@dataclass(frozen=True)
class Measure:
    """A number of a run: its name for readers, whether more or less is better, its decimals."""

    label: str
    better: Literal["more", "less"] | None = "more"
    digits: int = 3


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy"),
    "average": Measure("accuracy averaged over rounds"),
    "std": Measure("deviation over clients", "less"),
    "global": Measure("accuracy of the global model"),
    "central": Measure("global model, balanced test"),
    "distance": Measure("mean squared distance", "less"),
    "v_measure": Measure("v-measure"),
    "homogeneity": Measure("homogeneity"),
    "completeness": Measure("completeness"),
    "ari": Measure("ARI"),
    "silhouette": Measure("silhouette", None),  # of each method in its own similarity
    "count": Measure("communities", None, 1),
    "right": Measure("right from round", "less", 0),
    "sent": Measure("MB a client and round", "less", 2),
    "loyal_accuracy": Measure("accuracy of the loyal"),
    "recall": Measure("malicious told apart"),
    "loyal_lost": Measure("loyal lost", "less", 1),
    "pure_share": Measure("in pure communities"),
    "loyal_communities": Measure("loyal communities", None, 1),
    "backdoor": Measure("success of the backdoor", "less"),
    "cleared": Measure("all malicious out by round", "less", 0),
    "joined_rounds": Measure("rounds until a newcomer sits right", "less", 1),
    "joined_share": Measure("newcomers that do", "more", 2),
    "drifted_rounds": Measure("rounds until a drifted client does", "less", 1),
    "drifted_share": Measure("drifted clients that do", "more", 2),
    "epsilon": Measure("epsilon spent", None, 2),
    "noise": Measure("noise multiplier", None, 2),
}
COURSES = {
    "accuracy": ("accuracy", "mean"),
    "ari": ("communities", "ari"),
    "count": ("communities", "count"),
}
"""What is followed over the rounds, and where a record has it."""


@dataclass(frozen=True)
class Job:
    """One completed run.

    overrides: those that say what was run, the strategy always among them.
    measured: by the names of MEASURES, None where nothing.
    courses: by the names of COURSES, the value at each round that has one.
    """

    folder: Path
    overrides: Mapping[str, str]
    seed: str
    measured: Mapping[str, float | None]
    courses: Mapping[str, Mapping[int, float]]
    commit: str


def read_jobs(folders: Iterable[Path]) -> tuple[list[Job], list[Path]]:
    """Return the completed runs at or below the folders, and the folders of all other runs.

    Sorted by path, numbers as numbers. Of runs with the same settings and seed the last counts.
    """
    paths = {path.parent for folder in folders for path in folder.rglob(FILE)}
    jobs: dict[tuple[tuple[tuple[str, str], ...], str], Job] = {}
    others = []
    for folder in sorted(paths, key=_numbered):
        summary = read_summary(folder)
        if summary is None or summary["status"] != "completed":
            others.append(folder)
            continue
        job = _job(folder, summary)
        jobs[tuple(job.overrides.items()), job.seed] = job
    return list(jobs.values()), others


def _numbered(path: Path) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (sys.maxsize, p) for p in path.parts]


def _job(folder: Path, summary: Mapping[str, Any]) -> Job:
    rounds = read_rounds(folder)
    file = folder / "overrides.yaml"  # a run of Flower's own command leaves none
    given = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else []
    parts = [str(each).partition("=") for each in given]
    overrides = {k: v for k, _, v in parts if not k.startswith(UNVARIED) and k != "seed"}
    courses = {
        name: dict(zip(*series(rounds, *path), strict=True)) for name, path in COURSES.items()
    }
    return Job(
        folder=folder,
        overrides={"strategy": str(summary["strategy"])} | overrides,
        seed=str(summary["seed"]),
        measured=_measured(summary, rounds) | _further(rounds),
        courses=courses,
        commit=str(summary.get("git") or ""),
    )


def _measured(
    summary: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    found = summary["communities"]
    bytes_sent = [r["bytes"]["down"] + r["bytes"]["up"] for r in rounds]
    trained = sum(len(r["sampled"]) for r in rounds)
    return {
        "accuracy": summary["accuracy"]["mean"],
        "average": _average(rounds),
        "std": summary["accuracy"].get("std"),
        "global": next((r["global_accuracy"] for r in reversed(rounds) if r["accuracy"]), None),
        "central": next((r["central"]["global"] for r in reversed(rounds) if r["central"]), None),
        "ari": found["ari"],
        "silhouette": found["silhouette"],
        "count": found["count"],
        "right": first_right_round(rounds),
        "sent": sum(bytes_sent) / trained / 1e6 if trained else None,
    }


def _further(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return what only some runs have: points, attackers, changes, privacy."""
    return _points(rounds) | _under_attack(rounds) | _settled(rounds) | _privacy(rounds)


def _average(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the mean accuracy over the rounds in which it was measured."""
    found = [r["accuracy"]["mean"] for r in rounds if r["accuracy"]]
    return float(np.mean(found)) if found else None


def _settled(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return how soon newcomers and drifted clients sat right, and what share of them ever did."""
    found: dict[str, float | None] = {}
    for kind in ("joined", "drifted"):
        events = [event for r in rounds for event in r["events"] if event["kind"] == kind]
        changed = sum(len(event["clients"]) for event in events)
        sat = [
            each["rounds"]
            for r in rounds
            for each in ((r["communities"] or {}).get("settled") or {}).values()
            if each["kind"] == kind
        ]
        known = any(r["communities"] for r in rounds)
        found[f"{kind}_rounds"] = float(np.mean(sat)) if sat else None
        found[f"{kind}_share"] = len(sat) / changed if changed and known else None
    return found


def _privacy(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the epsilon that the client that spent most had spent in the end, and the noise."""
    last = next((r["privacy"] for r in reversed(rounds) if r.get("privacy")), None)
    if last is None:
        return {"epsilon": None, "noise": None}
    return {"epsilon": last["epsilon"]["max"], "noise": last["noise_multiplier"]}


def _points(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the last measurement of clusters of points."""
    last = (r["notes"] for r in reversed(rounds) if "distance" in (r["notes"] or {}))
    found: Mapping[str, float] = next(last, {})
    names = ("distance", "v_measure", "homogeneity", "completeness")
    return {name: found.get(name) for name in names}


def _under_attack(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return what the last measurement says of an attack, and when it had no attacker left."""
    found = [r["attack"] for r in rounds if r["attack"] and r["accuracy"]]
    names = ("loyal_accuracy", "recall", "loyal_lost", "pure_share", "backdoor")
    last = {name: found[-1].get(name) if found else None for name in names}
    sizes = found[-1].get("loyal_sizes") if found else None
    last["loyal_communities"] = len(sizes) if sizes is not None else None
    over = (r["round"] for r in rounds if r["attack"] and r["attack"]["recall"] == 1.0)
    return last | {"cleared": next(over, None)}
