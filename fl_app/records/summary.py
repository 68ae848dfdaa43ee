"""summary.json: the results of a run in a stable format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from fl_app.records.atomic import replacing
from fl_app.records.environment import git_commit, versions
from fl_app.records.names import SUMMARY
from fl_app.records.plain import dumps, plain
from fl_app.records.reading import json_object

Status = Literal["completed", "interrupted", "failed"]
Section = Mapping[str, Any]

SECTIONS = {
    "clients": ("total", "failed", "rejected", "removed", "names", "groups"),
    "accuracy": ("mean", "std", "before_clustering"),
    "communities": ("count", "sizes", "ari", "pure_share", "silhouette", "assignment"),
    "time": ("total_s", "training_s", "server_s"),
}
"""The fields of each section, in the order of the file."""


def build_summary(
    *,
    status: str,
    strategy: str,
    engine: str,
    seed: int,
    rounds: int,
    restarts: int = 0,
    ended: str | None = None,
    clients: Section,
    accuracy: Section | None,
    metrics: Mapping[str, Section] | None = None,
    communities: Section | None,
    time: Section,
) -> dict[str, Any]:
    """Return the summary of a run, including the versions and the commit of the code.

    `restarts` is how often the run was lost and submitted again, `ended` why it has fewer
    rounds than `rounds` of the configuration. `metrics` has the mean and the deviation over the
    clients of each metric of the task, by name; empty if the task has none.
    If a section is None, all of its fields become None, so that `summary["communities"]["count"]`
    always exists. NaN becomes None too.

    Raises ValueError for an unknown status, and for a section with missing or unknown fields.
    """
    if status not in get_args(Status):
        raise ValueError(f"status must be one of {', '.join(get_args(Status))}, got {status!r}")
    given = {"clients": clients, "accuracy": accuracy, "communities": communities, "time": time}
    head = {
        "status": status,
        "strategy": strategy,
        "engine": engine,
        "seed": seed,
        "rounds": rounds,
        "restarts": restarts,
        "ended": ended,
    }
    sections: dict[str, Any] = {}
    for name, section in given.items():
        sections[name] = _section(name, section)
        if name == "accuracy":
            sections["metrics"] = dict(metrics or {})
    tail = {"versions": versions(), "git": git_commit()}
    summary: dict[str, Any] = plain(head | sections | tail)
    return summary


def write_summary(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `folder/summary.json` atomically."""
    path = folder / SUMMARY
    with replacing(path) as temporary:
        temporary.write_text(dumps(summary, indent=2) + "\n", encoding="utf-8")
    return path


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return the summary of a run, or None if the run has not written it yet.

    Raises ValueError with the name of a damaged file.
    """
    path = folder / SUMMARY
    return json_object(path) if path.exists() else None


def _section(name: str, section: Section | None) -> dict[str, Any]:
    fields = SECTIONS[name]
    if section is None:
        return dict.fromkeys(fields)
    absent = [field for field in fields if field not in section]
    unknown = [str(field) for field in section if field not in fields]
    if absent or unknown:
        raise ValueError(
            f"summary section {name!r} must have exactly {', '.join(fields)}; absent: "
            f"{', '.join(absent) or 'none'}, unknown: {', '.join(unknown) or 'none'}; "
            "give None for a field that does not apply"
        )
    return {field: section[field] for field in fields}
