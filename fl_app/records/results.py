"""Writes summary.json from the records of the completed rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fl_app.records.history import FINISHED, SPENT, first_split, rejected
from fl_app.records.summary import build_summary, write_summary


def summarise(
    folder: Path,
    status: str,
    *,
    identity: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    clients: int,
    assignment: Mapping[int, int],
    agreement: Mapping[str, float] = MappingProxyType({}),
    groups: Mapping[int, int] = MappingProxyType({}),
    removed: Sequence[int] = (),
    names: Mapping[int, str] | None = None,
    restarts: int = 0,
    reason: str | None = None,
) -> dict[str, Any]:
    """Write summary.json from the records of the completed rounds, and return it.

    `reason` is why the run failed or ended early; without it, the last record may tell.
    """
    summary = build_summary(
        status=status,
        **identity,
        rounds=len(rounds),
        restarts=restarts,
        ended=reason or _ended(rounds),
        clients={
            "total": clients,
            "failed": sum(len(record["failed"]) for record in rounds),
            "rejected": sum(rejected(rounds)),
            "removed": list(removed),
            "names": dict(names) if names else None,
            "groups": dict(sorted(groups.items())) or None,
        },
        accuracy=_accuracy(rounds),
        metrics=last_metrics(rounds),
        communities=_communities(rounds, assignment, agreement),
        time=_time(rounds),
    )
    write_summary(folder, summary)
    return summary


def _ended(rounds: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the last round was not followed by another one, if it was not the last planned."""
    events = rounds[-1]["events"] or () if rounds else ()
    return next((each["detail"] for each in events if each["kind"] in (FINISHED, SPENT)), None)


def last_metrics(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean and deviation of the last measurement of each metric of the task."""
    measured = (r["metrics"] for r in reversed(rounds) if r.get("metrics"))
    last: Mapping[str, Any] = next(measured, {})
    return {name: {"mean": each["mean"], "std": each["std"]} for name, each in last.items()}


def _accuracy(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the last measured accuracy, and the one at the clustering round."""
    last = next((r["accuracy"] for r in reversed(rounds) if r["accuracy"]), None)
    clustered = first_split(rounds, ("clustered",))
    before = clustered["accuracy"] if clustered else None
    return {
        "mean": last["mean"] if last else None,
        "std": last["std"] if last else None,
        "before_clustering": before["mean"] if before else None,
    }


def _communities(
    rounds: Sequence[Mapping[str, Any]],
    assignment: Mapping[int, int],
    agreement: Mapping[str, float],
) -> dict[str, Any]:
    """Return the trained communities; all fields are null if there are none.

    The last record measures the clients that the method clustered, but others, such as newcomers,
    can use a community's model too: `agreement` has the measures of the whole assignment, as far
    as they are known.
    """
    found = next((r["communities"] for r in reversed(rounds) if r["communities"]), None)
    if not assignment or found is None:
        return dict.fromkeys(
            ("count", "sizes", "ari", "pure_share", "silhouette", "assignment"), None
        )
    sizes = np.bincount(list(assignment.values())).tolist()
    count = len({*assignment.values()})  # as in the records, removed clients are no community
    measures = {name: found[name] for name in ("ari", "pure_share", "silhouette")}
    named = {str(client): row for client, row in sorted(assignment.items())}
    return {"count": count, "sizes": sizes} | {**measures, **agreement, "assignment": named}


def _time(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: float(sum(record["time"][name] for record in rounds))
        for name in ("total_s", "training_s", "server_s")
    }
