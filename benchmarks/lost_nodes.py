"""Loses SuperNodes of a real federation in every phase; writes docs/results/lost_nodes.md.

    .venv/bin/python benchmarks/lost_nodes.py

Needs root on Linux: each node runs in its own network namespace, so that it can be disconnected.
All traffic is between addresses of this machine; no process remains at the end.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from table import REPO, arguments, header, machine, row
from wired import CUT, DEADLINE_S, KILLED, NETWORK, STOPPED, Run, Wired, cables, running

from fl_app.engines import credentials

TABLE = REPO / "docs" / "results" / "lost_nodes.md"
LOST = {"introduction": 4, "fit": 3, "evaluation": 2, "between rounds": 1}
"""Phase, and the client that is lost in it; client 0 stays."""


def named(run: Run, client: int) -> str:
    """Return how the records name a lost client."""
    failed = [r["round"] for r in run.rounds() if str(client) in r["failed"]]
    lost = [r["round"] for r in run.rounds() if client in r["lost"]]
    parts = [f"`failed` in round {', '.join(map(str, failed))}"] if failed else []
    parts += [f"`lost` in rounds {lost[0]} to {lost[-1]}"] if lost else []
    return "; ".join(parts) or "NOT NAMED"


def every_phase(run: Run, way: str) -> list[str]:
    """Lose a client in each phase, bring the first one back; return the rows of the table."""
    federation, took = run.federation, {}
    for phase, client in LOST.items():
        if phase == "between rounds":
            over = len(run.rounds())
            run.until("the end of a round", lambda over=over: len(run.rounds()) > over)
        else:
            kind = {"introduction": "get_properties", "fit": "train", "evaluation": "evaluate"}
            run.sees(client, kind[phase])
        federation.lose(client, way)
        took[phase] = run.goes_on(phase)
        print(f"{way}, {phase}: the run goes on after {took[phase]:.0f} s", flush=True)
    first = LOST["introduction"]
    federation.bring_back(first, way)
    back = run.until(f"client {first} to train", lambda: trained_last(run, first))
    print(f"{way}: client {first} trains again after {back:.0f} s", flush=True)
    run.process.wait(DEADLINE_S)
    ended = run.status()
    rows = [
        row(phase, way, ended, f"{took[phase]:.0f}", f"client {client}: {named(run, client)}")
        for phase, client in LOST.items()
    ]
    came = f"client {first} participates again after {back:.0f} s"
    return [*rows, row("restored", way, ended, "", came)]


def trained_last(run: Run, client: int) -> bool:
    """Return whether a client participated in the round that was recorded last."""
    record = run.rounds()[-1]
    return client in record["sampled"] and str(client) not in record["failed"]


def hung(run: Run) -> list[str]:
    """Stop the ClientApp of one client in its training, while its SuperNode goes on."""
    before = run.federation.received(1, "train")
    run.until("training at client 1", lambda: run.federation.received(1, "train") > before)
    pid = run.federation.node(1).process.popen.pid
    apps = []

    def started() -> bool:
        apps[:] = [p for p in _session(pid) if b"flwr-clientapp" in _words(p)]
        return bool(apps)

    run.until("the ClientApp of client 1", started)
    for app in apps:
        os.kill(app, signal.SIGSTOP)
    took = run.goes_on()
    for app in apps:
        os.kill(app, signal.SIGCONT)
    over = len(run.rounds())
    run.until(
        "client 1 to train again", lambda: len(run.rounds()) > over + 1 and trained_last(run, 1)
    )
    run.process.wait(DEADLINE_S)
    how = "ClientApp stopped, `engine.round_timeout_s=30`"
    what = f"client 1: {named(run, 1)}; participates again"
    return [row("fit", how, run.status(), f"{took:.0f}", what)]


def everyone(run: Run) -> list[str]:
    """Stop all nodes in a fit, and let them go on once they are given up."""
    federation, count = run.federation, run.federation.nodes
    run.sees(0, "train")
    for node in range(count):
        federation.lose(node, STOPPED)
    log = run.folder / "terminal.txt"
    again = run.until("the round to be given up", lambda: "is repeated" in log.read_text())
    for node in range(count):
        federation.bring_back(node, STOPPED)
    took = again + run.goes_on()
    run.process.wait(DEADLINE_S)
    what = "all clients: the round was repeated when they were back"
    return [row("fit", f"all nodes {STOPPED}", run.status(), f"{took:.0f}", what)]


def _session(leader: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "-g", str(leader)], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def demo(run: Run) -> list[str]:
    """Stop one of the three nodes of the demo for good, in the fit of round 2."""
    run.until("the end of round 1", lambda: len(run.rounds()) == 1)
    run.sees(1, "train")
    run.federation.lose(1, STOPPED)
    took = run.goes_on()
    run.process.wait(DEADLINE_S)
    how = f"{STOPPED}, the demo, round 2 of 4"
    return [row("fit", how, run.status(), f"{took:.0f}", f"client 1: {named(run, 1)}")]


SCENARIOS: dict[str, tuple[Callable[[Run], list[str]], int, Sequence[str] | dict[str, Any]]] = {
    "demo": (demo, 3, ["experiment=federation_demo"]),
    "stopped": (partial(every_phase, way=STOPPED), 5, {"rounds": 25}),
    "killed": (partial(every_phase, way=KILLED), 5, {"rounds": 25}),
    "cut": (partial(every_phase, way=CUT), 5, {"rounds": 25}),
    "hung": (hung, 3, {"rounds": 15, "round_timeout_s": 30.0}),
    "everyone": (everyone, 3, {"rounds": 3}),
}
"""By name: what is done, on how many nodes, with which settings (see `wired.running`)."""


def played(top: Path, name: str) -> list[str]:
    """Play one scenario on a federation of its own; return rows of the table."""
    play, nodes, given = SCENARIOS[name]
    folder = top / name
    keys = folder / "federation" / "keys"
    credentials.ensure(keys, nodes=nodes, addresses=("127.0.0.1", f"{NETWORK}.1"))
    with (
        cables(nodes),
        Wired(folder / "federation", nodes=nodes, warm=False) as federation,
        running(folder / "run", federation, given) as run,
    ):
        return play(run)


def main() -> None:
    """Play the scenarios one after another and write the table."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves every context
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=SCENARIOS, help="play this one, and write nothing")
    parser.add_argument("--out", type=Path, help="folder of rows; goes on where it was stopped")
    options = parser.parse_args()
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fl-lost-") as top:
        for name in SCENARIOS if options.only is None else [options.only]:
            found = None if options.out is None else options.out / f"{name}.md"
            if found is None or not found.exists():
                new = played(Path(top), name)
                print("\n".join(new), flush=True)
                if found is not None:
                    found.parent.mkdir(parents=True, exist_ok=True)
                    found.write_text("\n".join(new) + "\n")
            else:
                new = found.read_text().splitlines()
            rows += new
    if options.only is None:
        write(rows)


def write(rows: Sequence[str]) -> None:
    """Write the page."""
    lines = [
        "# Lost nodes", "",
        f"Written by `benchmarks/lost_nodes.py`, on {machine()}: SuperNodes with TLS and node",
        "authentication, each in its own network namespace. One run for each kind of loss: in each",
        "phase a node is lost with all processes that it started and does not return; then the",
        "first lost node is restored. Seconds are from the loss until client 0, which is never",
        "lost, gets the message of the next phase, including its own training. Recorded as: the",
        "fields of `rounds.jsonl`.", "",
        *header("phase", "kind of loss", "the run", "seconds until it continued", "recorded as"),
        *rows,
    ]  # fmt: skip
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
