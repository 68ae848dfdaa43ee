"""Processor time of a federation that has nothing to do; writes its section of docs/benchmarks.md.

    .venv/bin/python benchmarks/idle.py

Needs Linux. It starts a SuperLink, a SuperExec and three nodes with the warm process.
"""

import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from table import arguments, header, row, write_section

from fl_app.engines import watchdog
from fl_app.engines.federation import Federation
from fl_app.engines.flower import POLL_OF_NODE, POLL_OF_SERVER

NODES, SETTLE_S, MEASURED_S = 3, 15.0, 60.0
PARTS = {
    "flower-superlink": "SuperLink",
    "flower-superexec": "SuperExecs (one of the server, one of each node)",
    "flower-supernode": "SuperNodes",
    "warm_process.py": "warm process",
    "watchdog.py": "watchdog",
}


def seconds(token: str) -> Counter[str]:
    """Return the processor seconds so far of the processes with a mark, by part."""
    found = Counter[str]()
    for pid in watchdog.marked(token):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        part = next((name for word, name in PARTS.items() if word in line), "others")
        found[part] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def main() -> None:
    """Measure, and write the section."""
    arguments(__doc__).parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fl-idle-") as folder,
        Federation(Path(folder), nodes=NODES, warm=True) as federation,
    ):
        token = federation.supervisor.token
        time.sleep(SETTLE_S)
        before, began = seconds(token), time.monotonic()
        time.sleep(MEASURED_S)
        after, took = seconds(token), time.monotonic() - began
    used = {part: (after[part] - before[part]) / took for part in after}
    lines = [
        f"A SuperLink and {NODES} nodes without a run, percent of a core over {MEASURED_S:g} s.",
        "What is left are the looks of idle SuperNodes for messages, every 3 s, their heartbeats,",
        f"and the looks of each SuperExec for work, every {POLL_OF_NODE} s at a node and",
        f"{POLL_OF_SERVER} s at the server.",
        "",
        *header("processes", "percent of a core"),
        *(row(part, f"{100 * share:.1f}") for part, share in used.items()),
        row("all", f"{100 * sum(used.values()):.1f}"),
    ]
    write_section("An idle federation", "benchmarks/idle.py", lines)


if __name__ == "__main__":
    main()
