"""The time of a run by activity."""

import numpy as np

from fl_app.report.page.look import COMMUNITIES, MUTED, Figure, axis, figure
from fl_app.report.page.run_records import RunRecords

MOST_BARS = 120
WAITING = "waiting for replies"
SHADES = {
    "training": COMMUNITIES[0], "measuring": COMMUNITIES[4], "server": COMMUNITIES[1],
    "engine": MUTED, WAITING: MUTED,
}  # fmt: skip


def time(records: RunRecords) -> Figure | None:
    """Draw the seconds of every round by activity."""
    parts = time_parts(records)
    rounds = [int(record["round"]) for record in records.run.rounds]
    if not rounds:
        return None
    width = -(-len(rounds) // MOST_BARS)
    traces = []
    for name, seconds in parts.items():
        means = [float(np.mean(seconds[i : i + width])) for i in range(0, len(seconds), width)]
        traces.append({
            "type": "bar", "x": rounds[::width], "y": np.round(means, 4).tolist(), "name": name,
            "marker": {"color": SHADES[name], "line": {"width": 0}},
            "hovertemplate": "round %{x}: %{y:.3f} s " + name + "<extra></extra>",
        })  # fmt: skip
    each = "seconds per round" if width == 1 else f"seconds per round (means of {width})"
    return figure(
        traces, height=320, barmode="stack", bargap=0.1,
        xaxis=axis("round"), yaxis=axis(each, rangemode="tozero"),
    )  # fmt: skip


def time_parts(records: RunRecords) -> dict[str, list[float]]:
    """Return the seconds of every round in training, measuring, server and engine.

    The server waits `wait` seconds for replies, and the clients train `own` seconds in total.
    At least p = ceil(own / wait) clients train in parallel. Training is own / p; engine is the
    rest of the wait: messages, encoding, idle time. If no client tells how long it trains, the wait
    is one part.
    """
    if not told(records):
        return {
            name: [float(record["time"][key]) for record in records.run.rounds]
            for name, key in (
                (WAITING, "training_s"), ("measuring", "evaluation_s"), ("server", "server_s")
            )
        }  # fmt: skip
    found: dict[str, list[float]] = {"training": [], "measuring": [], "server": [], "engine": []}
    for record in records.run.rounds:
        spent = record["time"]
        wait, own = float(spent["training_s"]), float(spent["clients_s"])
        at_a_time = max(1, int(np.ceil(own / wait))) if wait > 0 else 1
        training = own / at_a_time
        found["training"].append(training)
        found["engine"].append(max(0.0, wait - training))
        found["server"].append(float(spent["server_s"]))
        found["measuring"].append(float(spent["evaluation_s"]))
    return found


def told(records: RunRecords) -> bool:
    """Return whether clients tell how long they train, which secure aggregation hides."""
    return any(record["time"]["clients_s"] for record in records.run.rounds)


def how(records: RunRecords) -> str:
    """Return what the parts are."""
    if not told(records):
        return (
            "The server waits for the replies of a round. How much of this the clients train is "
            "not known, since none of them tells it."
        )
    return (
        "The server waits for the replies of a round. At least p clients train in parallel, where "
        "p is the sum of the clients' training times divided by this wait, rounded up. Training is "
        "that sum divided by p. Engine is the rest of the wait."
    )
