"""The tables of the page: communities and clients."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from fl_app.records.history import untrained, was_skipped
from fl_app.records.plain import spent_epsilon
from fl_app.report.page.look import REMOVED, colour
from fl_app.report.page.run_records import RunRecords, Scores

MOST_RANGES = 12


def name_of(rank: int | None) -> str:
    """Return the name of a community on the page."""
    if rank is None:
        return "none"
    return "removed" if rank == REMOVED else str(rank)


def community_rows(records: RunRecords) -> list[dict[str, Any]]:
    """Return a row per final community, the largest first, the removed clients last."""
    inside: dict[int, list[int]] = {}
    for client, rank in sorted(records.final.items()):
        inside.setdefault(rank, []).append(client)
    order = sorted(inside, key=lambda rank: (rank == REMOVED, -len(inside[rank]), rank))
    return [_community(records, rank, inside[rank]) for rank in order]


def _community(records: RunRecords, rank: int, clients: Sequence[int]) -> dict[str, Any]:
    """Return a row; its accuracies are over the same members, if any were measured twice."""
    after = [records.after[c] for c in clients if c in records.after]
    both = [c for c in clients if c in records.before and c in records.after]
    before = [records.before[c] for c in both]
    left = sum(c in records.gone and records.gone[c][1] == "left" for c in clients)
    groups = Counter(records.groups[c] for c in clients if c in records.groups)
    return {
        "name": name_of(rank),
        "colour": colour(rank),
        "clients": len(clients),
        "groups": ", ".join(f"{group}: {count}" for group, count in sorted(groups.items())),
        "left": left,
        "before": _mean(before),
        "after": _mean([records.after[c] for c in both] or after),
        "measured": len(both) or len(after),
        "worst": min(after, default=None),
        "members": named(clients, records.names) or ranges(clients),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def named(clients: Sequence[int], names: Mapping[int, str]) -> str:
    """Return ids with the clients' own names, cut off after MOST_RANGES; empty without names."""
    if not names:
        return ""
    parts = [
        f"{client} ({names[client]})" if client in names else str(client) for client in clients
    ]
    left = len(parts) - MOST_RANGES
    return ", ".join(parts[:MOST_RANGES]) + (f" and {left} more" if left > 0 else "")


def ranges(clients: Iterable[int]) -> str:
    """Return sorted ids as ranges, such as `0-3, 7`, cut off after MOST_RANGES parts."""
    runs: list[list[int]] = []
    for client in clients:
        if runs and client == runs[-1][1] + 1:
            runs[-1][1] = client
        else:
            runs.append([client, client])
    parts = [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in runs]
    left = sum(b - a + 1 for a, b in runs[MOST_RANGES:])
    return ", ".join(parts[:MOST_RANGES]) + (f" and {left} more" if left else "")


def client_table(records: RunRecords) -> dict[str, Any]:
    """Return columns and rows of the table of clients, without columns that have no value."""
    before, after = records.compared or (None, max(records.scores, default=None))
    columns = [
        ("client", "client", "number"),
        ("name", "name", "text"),
        ("community", "community", "text"),
        ("group", "planted group", "number"),
        ("before", f"accuracy before (round {before})", "share"),
        ("after", f"accuracy after (round {after})" if after else "accuracy", "share"),
        ("gain", "gain in percentage points", "points"),
        *((key, label, "value") for key, label, _ in _of_metrics(records)),
        ("earlier", "earlier accuracy", "share"),
        ("seen", "last measured in round", "number"),
        ("trained", "rounds trained", "number"),
        ("lost", "training replies lost", "number"),
        ("rejected", "last rejection", "text"),
        ("odd", "rounds with an odd update", "number"),
        ("out", "removed or left in round", "number"),
        ("why", "reason", "text"),
        ("epsilon", "epsilon spent", "epsilon"),
    ]
    rows = _client_rows(records)
    kept = [c for c in columns if c[0] == "epsilon" or any(row[c[0]] is not None for row in rows)]
    return {
        "columns": [dict(zip(("key", "label", "kind"), column, strict=True)) for column in kept],
        "rows": [[row[column[0]] for column in kept] for row in rows],
        "colours": {name_of(rank): colour(rank) for rank in {*records.final.values()}},
    }


def _client_rows(records: RunRecords) -> list[dict[str, Any]]:
    trained, lost = replies(records)
    epsilon, reasons = spent(records.run.rounds), _reasons(records)
    odd, metrics = odd_updates(records.run.rounds), _of_metrics(records)
    rows = []
    for client in records.clients:
        before, after = records.before.get(client), records.after.get(client)
        earlier, seen = records.earlier.get(client, (None, None))
        when, why = records.gone.get(client, (None, None))
        rows.append({
            "client": client,
            "name": records.names.get(client),
            "community": name_of(records.final.get(client)) if records.final else None,
            "group": records.groups.get(client),
            "before": before,
            "after": after,
            "gain": None if before is None or after is None else 100 * (after - before),
            "earlier": earlier,
            "seen": seen,
            "trained": trained[client],
            "lost": lost[client] if lost else None,
            "rejected": reasons.get(client),
            "odd": len(odd.get(client, ())) if odd else None,
            "out": when,
            "why": why,
            # JSON has no number for it; the script of the table takes this word for one
            "epsilon": "Infinity" if epsilon.get(client) == inf else epsilon.get(client),
        } | {key: scores.get(client) for key, _, scores in metrics})  # fmt: skip
    return rows


def _of_metrics(records: RunRecords) -> list[tuple[str, str, Scores]]:
    """Return key, label and values of each column of a metric: before and after, or the last."""
    found = []
    for name, scores in records.metrics.items():
        both = records.before_and_after(scores)
        whens = dict(zip(("before", "after"), both, strict=True)) if both else {"": max(scores)}
        for when, number in whens.items():
            label = f"{name} {when} (round {number})" if when else name
            found.append((f"metric {name} {when}", label, scores[number]))
    return found


def replies(records: RunRecords) -> tuple[Counter[int], Counter[int]]:
    """Return in how many rounds each client trained, and in how many its training was lost.

    In a round that trained no model nobody did.
    """
    trained, lost = Counter[int](), Counter[int]()
    for record in records.run.rounds:
        without = {int(client) for client in untrained(record) if client.isdigit()}
        lost.update(without)
        without |= _released_sketch(record)
        if was_skipped(record):
            continue
        trained.update(c for c in map(int, record["sampled"]) if c not in without)
    return trained, lost


def _released_sketch(record: Mapping[str, Any]) -> set[int]:
    """Return the clients that released a sketch in place of training (`secure_flic`)."""
    privacy = record.get("privacy") or {}
    return {int(c) for c in privacy.get("released") or () if privacy.get("kind") == "sketch"}


def odd_updates(records: Sequence[Mapping[str, Any]]) -> dict[int, list[float]]:
    """Return the norms of each client's odd updates, as multiples of the usual norm.

    `ingress/screen.py` defines odd and usual.
    """
    found: dict[int, list[float]] = {}
    for record in records:
        for client, size in (record.get("odd_updates") or {}).items():
            found.setdefault(int(client), []).append(float(size))
    return found


def _reasons(records: RunRecords) -> dict[int, str]:
    """Return the reason of each client's last rejected reply."""
    found = [each for record in records.run.rounds for each in record["rejected"].items()]
    return {int(name): why for name, why in found if name.isdigit()}


def spent(records: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the epsilon that each client has spent, for clients whose records state it."""
    found: dict[int, float] = {}
    for record in records:
        epsilons = ((record.get("privacy") or {}).get("epsilon") or {}).get("clients") or {}
        found |= {int(client): spent_epsilon(value) for client, value in epsilons.items()}
    return found
