"""A federation over bad links between network namespaces; writes docs/results/across_machines.md.

    .venv/bin/python benchmarks/across_machines.py --out <file.jsonl>

Needs root on Linux. It continues where it was stopped. All traffic is between addresses of this
machine; no process remains at the end.
"""

import json
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from slow_link import Quality, slow_link
from summaries import summary_of
from table import REPO, arguments, header, machine, row
from wired import BRIDGE, CUT, NETWORK, Run, Wired, cables, running

from fl_app.engines import credentials

TABLE = REPO / "docs" / "results" / "across_machines.md"
NODES, SLOW, ROUNDS = 3, 2, 5
CUT_S, LONGEST_S = 90.0, 1800.0
LINK = Quality(rate=1e6, delay_s=0.2, loss=0.02)
HERE, THERE = "10.231.78.1", "10.231.78.10"
TIMEOUT_S = 180
"""Enough for good links on busy cores."""
DEMO = [
    "experiment=federation_demo", f"rounds={ROUNDS}", "client.epochs=1", "records.report=false",
    "strategy.cluster_round=1", f"records.evaluate_every={ROUNDS}", "records.figures=false",
    "tracking=none", "records.checkpoint_every=1", "engine.connect_timeout_s=900",
]  # fmt: skip
LARGE = [
    "rounds=3",
    "records.evaluate_every=3",
    "strategy.cluster_round=2",
    "network.width=16",
    f"engine.round_timeout_s={TIMEOUT_S}",
]
"""A model of 13 MB, which takes at least 105 s in each direction at 1 Mbit/s."""
Row = dict[str, Any]


@contextmanager
def kept(federation: Wired) -> Iterator[None]:
    """Start ended members again in the block, as the keeper of `scripts/deploy up` does."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(1.0):
            federation.check()

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def nothing(run: Run) -> None:
    """Leave the run alone."""


def cut(run: Run, *, seconds: float) -> None:
    """Cut the link of node 1 for a while, after round 1."""
    run.until("round 1", lambda: len(run.rounds()) >= 1)
    run.federation.lose(1, CUT)
    time.sleep(seconds)
    run.federation.bring_back(1, CUT)


SCENES: dict[str, tuple[Callable[[Run], None], bool, Sequence[str]]] = {
    "all links good": (nothing, False, ()),
    f"link of node 1 cut for {CUT_S:g} s after round 1": (partial(cut, seconds=CUT_S), False, ()),
    "node 2 behind the slow link": (nothing, True, ()),
    "model of 13 MB, node 2 behind the slow link": (nothing, True, LARGE),
    "model of 13 MB, all links good": (nothing, False, LARGE),
}
"""By name: what is done to the run, whether node 2 is behind the slow link, and settings."""


def played(top: Path, name: str) -> Row:
    """Play one scene on a federation of its own; return its line."""
    act, slow, more = SCENES[name]
    keys = top / "federation" / "keys"
    credentials.ensure(keys, nodes=NODES, addresses=("127.0.0.1", f"{NETWORK}.1"))
    space = f"{BRIDGE}-{SLOW}"
    with (
        cables(NODES),
        slow_link(space, HERE, THERE, LINK) if slow else nullcontext(),
        # a warm process would fork clients in its own namespace
        Wired(top / "federation", nodes=NODES, warm=False) as federation,
        kept(federation),
        running(top / "run", federation, [*DEMO, *more]) as run,
    ):
        began = time.monotonic()
        act(run)
        run.process.wait(LONGEST_S)
        return told(run, time.monotonic() - began)


def told(run: Run, seconds: float) -> Row:
    """Return the line of a run that has ended."""
    rounds = run.rounds()
    summary = summary_of(run.folder)
    missing = {r["round"]: sorted({*r["failed"], *map(str, r["lost"])}) for r in rounds}
    return {
        "status": run.status(),
        "seconds": seconds,
        "rounds": [round(record["time"]["total_s"], 1) for record in rounds],
        "missing": {number: who for number, who in missing.items() if who},
        "accuracy": summary["accuracy"]["mean"],
    }


def main() -> None:
    """Play what the file has not, and write the table."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of rows, one JSON a line")
    options = parser.parse_args()
    path: Path = options.out
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for name in SCENES:
        if name in {each["scene"] for each in done}:
            continue
        with tempfile.TemporaryDirectory(prefix="fl-across-") as top:
            line = {"scene": name, **played(Path(top), name)}
        done.append(line)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    write(done)


def netem() -> str:
    """Return what the kernel answers when it is asked for netem."""
    words = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    asked = subprocess.run(words, capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
        return "It has netem, which was not needed."
    return f"This kernel has no netem (`{asked.stderr.strip()}`)."


def missing(rows: Sequence[Row]) -> list[str]:
    """Return a line that names the scenes without a row."""
    left = [name for name in SCENES if name not in {each["scene"] for each in rows}]
    return [f"Not recorded yet: {'; '.join(left)}."] if left else []


def write(rows: Sequence[Row]) -> None:
    """Write the page."""
    lines = [
        "# Across machines", "",
        f"Written by `benchmarks/across_machines.py`, on {machine()}: a SuperLink and",
        f"{NODES} SuperNodes with TLS and node authentication, each node in a network namespace",
        "with an address of its own; one run of the demo for each line. The",
        f"slow link has {LINK.rate / 1e6:g} Mbit/s, {LINK.delay_s * 1e3:g} ms of delay and "
        f"{LINK.loss:.0%} of lost packets in each",
        f"direction. It is a relay between two TUN devices. {netem()}",
        f"`engine.round_timeout_s` is {TIMEOUT_S} with the model of 13 MB, and else the 600 of",
        "a deployment. Missing: clients that failed in a round or were lost. The machine was busy",
        "with other work. An interrupted run was stopped by SIGTERM, since it took too long.",
        *missing(rows), "",
        *header("links", "the run", "seconds of each round", "missing, by round", "accuracy"),
    ]  # fmt: skip
    for each in rows:
        seconds = ", ".join(f"{second:.0f}" for second in each["rounds"])
        who = "; ".join(f"{n}: client {', '.join(names)}" for n, names in each["missing"].items())
        accuracy = "" if each["accuracy"] is None else f"{each['accuracy']:.3f}"
        lines.append(row(each["scene"], each["status"], seconds, who or "nobody", accuracy))
    TABLE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
