"""Events by round: a strip of markers under the curves, and a line at every split."""

from collections.abc import Sequence
from typing import Any

from fl_app.records.history import SPLITS
from fl_app.records.rounding import share
from fl_app.report.page.clients import ranges
from fl_app.report.page.look import INK, MUTED, Trace
from fl_app.report.run import Record

SIGNS = {
    "clustered": "diamond",
    "reclustered": "diamond-open",
    "removed": "x",
    "joined": "triangle-up",
    "left": "triangle-down",
    "drifted": "square",
    "rejected": "line-ns-open",
    "dominant": "star",
    "skipped": "circle-x-open",
}
MOST_LINES = 12
LONGEST = 160


def strip(records: Sequence[Record], *, axis: str) -> tuple[list[Trace], list[str]]:
    """Return a trace of markers per kind of event on a category axis, and these kinds."""
    found: dict[str, dict[int, list[str]]] = {}
    for record in records:
        for event in (*record["events"], *_of_replies(record)):
            text = found.setdefault(event["kind"], {}).setdefault(int(record["round"]), [])
            text.append(_text(event))
    kinds = sorted(found, key=lambda kind: list(SIGNS).index(kind) if kind in SIGNS else len(SIGNS))
    traces = [
        {
            "type": "scatter", "mode": "markers", "x": list(found[kind]),
            "y": [kind] * len(found[kind]), "yaxis": axis, "showlegend": False, "name": kind,
            "text": ["<br>".join(texts) for texts in found[kind].values()],
            "hovertemplate": "round %{x}: " + kind + "<br>%{text}<extra></extra>",
            "marker": {"symbol": SIGNS.get(kind, "circle"), "size": 9, "color": INK},
        }
        for kind in kinds
    ]  # fmt: skip
    return traces, kinds


def _of_replies(record: Record) -> list[Record]:
    """Return the events of replies: rejected ones, and clients with more than half the weight."""
    rejected = [f"{_who(name)}: {why}" for name, why in record["rejected"].items()]
    dominant = [
        f"client {client} has {share(part)} of the weight of its community"
        for client, part in (record.get("dominance") or {}).items()
    ]
    kinds = (("rejected", rejected), ("dominant", dominant))
    return [{"kind": kind, "detail": "; ".join(texts)} for kind, texts in kinds if texts]


def _who(name: str) -> str:
    return f"client {name}" if name.isdigit() else name


def _text(event: Record) -> str:
    clients, text = event.get("clients"), str(event["detail"])
    if clients:
        who = f"clients {ranges(sorted(clients))}"
        text = who if text == f"clients {clients}" else f"{who}: {text}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def lines(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a vertical line over the whole figure at each of the first MOST_LINES splits."""
    rounds = [
        int(r["round"]) for r in records if any(event["kind"] in SPLITS for event in r["events"])
    ]
    return [
        {
            "type": "line", "x0": number, "x1": number, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": MUTED, "width": 1, "dash": "dash"},
        }
        for number in rounds[:MOST_LINES]
    ]  # fmt: skip
