"""Figures over the rounds: accuracy, quality of the clusters, notes of the method, attack."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from fl_app.evaluation.ranks import worst_decile
from fl_app.kmeans.scores import Agreement
from fl_app.report.page.clients import name_of
from fl_app.report.page.events import lines, strip
from fl_app.report.page.look import (
    COMMUNITIES,
    INK,
    MUTED,
    REMOVED,
    Figure,
    Trace,
    axis,
    colour,
    dash,
    figure,
    line,
    share,
)
from fl_app.report.page.run_records import RunRecords, Scores
from fl_app.report.run import Record, series

BLUE, ORANGE, GREEN, PINK, SKY, RED, *_ = COMMUNITIES
MOST_COMMUNITIES = 12
FEW_ROUNDS = 12
VALIDITY = (
    ("silhouette", "silhouette", PINK, "dot"),
    ("modularity", "modularity", SKY, "solid"),
)
MEASURES = (
    ("ari", "adjusted Rand index", GREEN, "dashdot"),
    ("pure_share", "pure share", BLUE, "solid"),
    ("majority_purity", "majority purity", ORANGE, "dash"),
    *VALIDITY,
)
SHARES = {each.name for each in fields(Agreement)}
"""Notes in [0, 1]."""
LENGTHS = {"movement", "distance", "dunn"}
"""Notes that are never negative."""
ATTACK = (
    ("loyal_accuracy", "accuracy of loyal clients", BLUE, "solid"),
    ("recall", "recall of malicious clients", GREEN, "dash"),
    ("precision", "precision", ORANGE, "dot"),
    ("success", "success of the attack", RED, "dashdot"),
)


def accuracy(records: RunRecords) -> Figure | None:
    """Draw every client in grey, the mean, the worst tenth, each community, and the events."""
    if not series(records.run.rounds, "accuracy", "mean")[0]:
        return None
    clients = over_clients(records, records.scores)
    marks, kinds = strip(records.run.rounds, axis="y2")
    foot = min(0.07 * len(kinds) + 0.05, 0.4) if kinds else 0.0
    whole = figure(
        [*clients, *_overall(records), *marks],
        height=440 + 20 * len(kinds),
        xaxis=rounds_axis(records, anchor="y2" if kinds else "y"),
        yaxis=share("accuracy", domain=[foot + 0.03 * bool(kinds), 1]),
        shapes=lines(records.run.rounds),
    )
    if kinds:
        whole["layout"]["yaxis2"] = axis(
            type="category", domain=[0, foot], categoryarray=kinds[::-1], fixedrange=True
        )
    return whole


def rounded(value: float) -> float:
    """Return a score with the digits that a figure can show; scores have no usual size."""
    return float(f"{value:.5g}")


def rounds_axis(records: RunRecords, **more: Any) -> dict[str, Any]:
    """Return the axis of rounds, the same in all figures."""
    last = len(records.run.rounds)
    few = {"dtick": 1} if last <= FEW_ROUNDS else {}
    return axis("round", range=[1 - 0.02 * last, 1.02 * last + 0.2]) | few | more


def over_clients(records: RunRecords, scores: dict[int, Scores], **more: Any) -> list[Trace]:
    """Return the lines of scores by round: of every client, or their spread, and of communities.

    `more` is a part of each trace.
    """
    if not scores:
        return []
    clients = _bands(scores) if records.aggregated else _clients(scores)
    return [trace | more for trace in (*clients, *_communities(records, scores))]


def _clients(scores: dict[int, Scores]) -> list[Trace]:
    """Return one line with gaps between clients, since one trace per client is slow to draw.

    A client with one measurement is a dot.
    """
    paths: list[list[tuple[int | None, float | None]]] = []
    for client in sorted({client for each in scores.values() for client in each}):
        paths.append([(r, rounded(s[client])) for r, s in scores.items() if client in s])
    joined = [point for path in paths if len(path) > 1 for point in (*path, (None, None))]
    alone = [path[0] for path in paths if len(path) == 1]
    traces: list[Trace] = []
    for points, mode in ((joined, "lines"), (alone, "markers")):
        if points:
            x, y = zip(*points, strict=True)
            more = {"mode": mode, "showlegend": not traces, "opacity": 0.5, "hoverinfo": "skip"}
            traces.append(line(x, y, "every client", MUTED, **more))
            traces[-1]["line"]["width"] = 1
            traces[-1]["marker"]["size"] = 4
    return traces


def _bands(scores: dict[int, Scores]) -> list[Trace]:
    """Return the spread over the clients as filled bands, for many clients."""
    rounds = list(scores)
    values = [np.percentile(list(s.values()), (0, 10, 90, 100)) for s in scores.values()]
    low, tenth, ninetieth, high = ([*map(rounded, each)] for each in zip(*values, strict=True))
    hidden = {"hoverinfo": "skip", "line": {"width": 0}}
    filled = hidden | {"fill": "tonexty", "fillcolor": f"{MUTED}33"}
    return [
        line(rounds, low, "lowest", MUTED, showlegend=False) | hidden,
        line(rounds, high, "all clients", MUTED) | filled,
        line(rounds, tenth, "lowest tenth", MUTED, showlegend=False) | hidden,
        line(rounds, ninetieth, "middle 80 % of the clients", MUTED) | filled,
    ]


def _communities(records: RunRecords, scores: dict[int, Scores]) -> list[Trace]:
    """Return the mean score over the rounds of the members of each final community."""
    sizes = Counter(records.final.values())
    if len(sizes) < 2:
        return []
    largest = sorted(sizes.keys() - {REMOVED}, key=lambda rank: (-sizes[rank], rank))
    traces = []
    for rank in [*sorted(largest[:MOST_COMMUNITIES]), *({REMOVED} & sizes.keys())]:
        inside = [client for client, found in records.final.items() if found == rank]
        x, y = _means(scores, inside)
        name = "removed" if rank == REMOVED else f"community {name_of(rank)}"
        traces.append(line(x, y, name, colour(rank), dash="dot" if rank == REMOVED else dash(rank)))
    return traces


def _means(scores: dict[int, Scores], clients: Iterable[int]) -> tuple[list[int], list[float]]:
    inside = set(clients)
    found = {number: [v for c, v in each.items() if c in inside] for number, each in scores.items()}
    known = {number: values for number, values in found.items() if values}
    return list(known), [rounded(float(np.mean(values))) for values in known.values()]


def _overall(records: RunRecords) -> list[Trace]:
    rounds, mean = series(records.run.rounds, "accuracy", "mean")
    traces = [
        line(rounds, np.round(mean, 4).tolist(), "mean over clients", INK, mode="lines+markers")
    ]
    traces[0]["line"]["width"] = 3
    if records.scores:
        found = {number: worst_decile([*each.values()]) for number, each in records.scores.items()}
        worst = {number: round(low, 4) for number, low in found.items() if low is not None}
        traces.append(line([*worst], [*worst.values()], "worst tenth", RED, dash="dash"))
    x, y = series(records.run.rounds, "global_accuracy")
    return [*traces, *([line(x, y, "the global model", INK, dash="dot")] if x else [])]


def quality(records: RunRecords) -> Figure | None:
    """Draw validity and number of the clusters, and their agreement with the planted groups."""
    played = records.run.rounds
    rounds, count = series(played, "communities", "count")
    if not rounds:
        return None
    measures = MEASURES if records.planted else VALIDITY
    found = [(*item[1:], series(played, "communities", item[0])) for item in measures]
    upper = [line(x, y, name, shade, dash=how) for name, shade, how, (x, y) in found if x]
    number = line(rounds, count, "communities", INK, yaxis="y2", showlegend=False)
    number["line"]["shape"] = "hv"
    planted, marks = records.planted, []
    if planted is not None:
        marks = [line([rounds[0], rounds[-1]], [planted] * 2, f"planted groups: {planted}", RED,
                      dash="dot", yaxis="y2")]  # fmt: skip
    least = min((y for trace in upper for y in trace["y"]), default=0.0)
    foot = 0.33 if upper else 1
    return figure(
        [*upper, number, *marks],
        height=430 if upper else 240,
        xaxis=rounds_axis(records, anchor="y2"),
        yaxis=axis(
            "score",
            domain=[min(foot + 0.07, 1), 1],
            visible=bool(upper),
            range=[min(-0.02, least - 0.02), 1.04],
        ),
        yaxis2=axis("communities", domain=[0, foot], rangemode="tozero", dtick=-(-max(count) // 4)),
        shapes=lines(played),
    )


def notes(records: RunRecords) -> Figure | None:
    """Draw the numbers that the method recorded itself, one panel for each."""
    found = _noted(records.run.rounds)
    if len({number for _, y in found.get("start", {}).values() for number in y}) == 1:
        del found["start"]  # the number of the start of k-means, if there was one
    if not found:
        return None
    panels = len(found)
    traces, layout = [], {}
    for place, (name, parts) in enumerate(found.items()):
        number = "" if place == 0 else str(place + 1)
        foot = 1 - (place + 1) / panels
        domain = [foot, foot + (0.88 if place else 1) / panels]
        layout[f"yaxis{number}"] = _upright(name, domain)
        traces += [
            line(x, y, f"{name} {part}".strip(), colour(i), dash=dash(i), yaxis=f"y{number}",
                 mode="lines+markers", showlegend=len(parts) > 1)
            for i, (part, (x, y)) in enumerate(parts.items())
        ]  # fmt: skip
    anchor = f"y{panels}" if panels > 1 else "y"
    across = rounds_axis(records, anchor=anchor)
    return figure(
        traces, height=90 + 150 * panels, xaxis=across, shapes=lines(records.run.rounds), **layout
    )


def _upright(name: str, domain: list[float]) -> dict[str, Any]:
    """Return the axis of a note's values; without a range, one round could go below what they are.

    Plotly shows a single value in the middle of a range of 2.
    """
    title = name.replace("_", " ")
    if name in SHARES:
        return share(title, domain=domain)
    return axis(title, domain=domain, **({"rangemode": "tozero"} if name in LENGTHS else {}))


def _noted(records: Sequence[Record]) -> dict[str, dict[str, tuple[list[int], list[float]]]]:
    """Return rounds and values of each number in the notes, by name and part."""
    found: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for record in records:
        for name, value in (record.get("notes") or {}).items():
            parts = value if isinstance(value, dict) else {"": value}
            for part, each in parts.items():
                if isinstance(each, int | float) and not isinstance(each, bool):
                    x, y = found.setdefault(name, {}).setdefault(part, ([], []))
                    x.append(int(record["round"]))
                    y.append(float(each))
    return found


def attack(records: RunRecords) -> Figure | None:
    """Draw the accuracy of the loyal clients and the detection of the malicious ones."""
    found = [(*item[1:], series(records.run.rounds, "attack", item[0])) for item in ATTACK]
    traces = [line(x, y, name, shade, dash=how) for name, shade, how, (x, y) in found if x]
    if not traces:
        return None
    across = rounds_axis(records)
    upright = share("share")
    return figure(traces, height=320, xaxis=across, yaxis=upright, shapes=lines(records.run.rounds))
