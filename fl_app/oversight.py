"""The commands `fl-app watch` and `fl-app audit`: what a run does, and what it has done."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fl_app.records import audit, run_state
from fl_app.records.history import means, read_rounds
from fl_app.records.metrics import outcomes
from fl_app.records.names import CONFIG, ROUNDS
from fl_app.records.rounding import counted, number
from fl_app.records.summary import read_summary

POLL_S = 1.0
SHOWN_ROUNDS, SHOWN_EVENTS = 8, 6
_BARS = "▁▂▃▄▅▆▇█"
_CURVE = 60
_ANSWERS = ("asked", "answered")
_OF_RUNS = (CONFIG, run_state.FILE, "run.log")
"""Files of which a run has one from its start; the first one is written by its server."""
_CHAIN = ("line", "time", "event", "before", "hash")


def watch(arguments: Sequence[str]) -> None:
    """Show the page of a run until the run ends; raises ValueError for another folder."""
    parser = argparse.ArgumentParser(prog="fl-app watch")
    told = "output folder of a run, or a connection of Flower's configuration with a run under way"
    parser.add_argument("run", help=told)
    parser.add_argument("--once", action="store_true", help="print the page once and end")
    options = parser.parse_args(arguments)
    folder = _run_folder(options.run)
    console = Console(markup=False)
    if options.once:
        console.print(page(folder))
        return
    with Live(page(folder), console=console, screen=console.is_terminal) as live:
        while read_summary(folder) is None:
            time.sleep(POLL_S)
            live.update(page(folder))
    console.print(page(folder))


def _run_folder(given: str) -> Path:
    """Return the folder of a run that is given as a folder or as a connection."""
    folder = Path(given)
    if any((folder / name).exists() for name in _OF_RUNS):
        return folder
    from fl_app.engines.flower_commands import FlowerError
    from fl_app.engines.under_way import configuration, connections, folder_of

    known = connections()
    if given not in known:
        raise ValueError(
            f"{given} must be the output folder of a run, with one of {', '.join(_OF_RUNS)}, or a "
            f"connection of {configuration()}, got neither; its connections: "
            f"{', '.join(known) or 'none'}"
        )
    try:
        return folder_of(given)
    except FlowerError as error:
        raise ValueError(f"the SuperLink of {given} must answer: {error}") from error


def check_audit(arguments: Sequence[str]) -> None:
    """Check the audit log of a folder; exits with 1 if its chain is broken."""
    parser = argparse.ArgumentParser(prog="fl-app audit")
    parser.add_argument("folder", type=Path, help="output folder of a run, or of scripts/deploy")
    parser.add_argument("--last", help="the hash of the last line, as noted before")
    parser.add_argument("--show", action="store_true", help="print the events")
    options = parser.parse_args(arguments)
    path = options.folder / audit.FILE
    if not path.exists():
        raise ValueError(f"{options.folder} must be a folder with {audit.FILE}, got none")
    if options.show:
        for line in path.read_bytes().splitlines():  # as text they have more ends
            told = _event(line.decode("utf-8", errors="replace"))
            print(told.encode(errors="backslashreplace").decode())
    found = audit.check(path, last=options.last)
    for problem in found.problems:
        print(problem)
    print(f"{'broken' if found.problems else 'whole'}: {found.lines} lines, last hash {found.last}")
    if found.problems:
        sys.exit(1)


COMMANDS = {"watch": watch, "audit": check_audit}


def page(folder: Path) -> RenderableType:
    """Return what there is to see of a run: state, scores, last rounds and events."""
    rounds = read_rounds(folder) if (folder / ROUNDS).exists() else []
    summary = read_summary(folder)
    begun = "under way" if (folder / CONFIG).exists() else "starts, its nodes connect"
    state = begun if summary is None else summary["status"]
    head = Text(f"{folder.resolve().name}: {state}, {counted(len(rounds), 'round', 'rounds')}")
    scores = _scores(rounds)
    for name, measured in scores.items():
        head.append(f"\n{name} {number(measured[-1])}  {curve(measured)}")
    if rounds:
        file = folder / ROUNDS
        head.append(f"\nlast round {_ago(time.time() - file.stat().st_mtime)} ago")
    table = _table(rounds, next(iter(scores), "accuracy"))
    return Panel(Group(head, table, Text("\n".join(_events(rounds)))), title="fl-app")


def _scores(rounds: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the means of each score over the rounds that have it, the accuracy first."""
    found: dict[str, list[float]] = {}
    for record in rounds:
        for name, mean in means(record).items():
            found.setdefault(name, []).append(mean)
    return found


def _ago(seconds: float) -> str:
    """Return a time span in the largest unit of which it has two: 119 s, 2 min, 3 h."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def curve(values: Sequence[float]) -> str:
    """Return the last values as a line of bars, from the least to the largest."""
    shown = values[-_CURVE:]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def _table(rounds: Sequence[Mapping[str, Any]], score: str) -> Table:
    table = Table("round", "phase", "loss", score, "communities", "answered", "seconds")
    for record in rounds[-SHOWN_ROUNDS:]:
        communities, took = record["communities"], record["time"]
        table.add_row(
            str(record["round"]),
            record["phase"],
            _number(record["train_loss"]),
            _number(means(record).get(score)),
            "-" if communities is None else str(communities["count"]),
            _answered(outcomes(record)),
            f"{took['total_s']:.1f}",
        )
    return table


def _answered(counts: Mapping[str, int]) -> str:
    """Return how many of the asked clients answered, and what became of the others."""
    others = [f"{n} {name}" for name, n in counts.items() if n and name not in _ANSWERS]
    return ", ".join([f"{counts['answered']} of {counts['asked']}", *others])


def _events(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the last events, rejections and failures, one per line."""
    found = []
    for record in rounds:
        head = f"round {record['round']}: "
        found += [f"{head}{each['kind']}, {each['detail']}" for each in record["events"]]
        for kind in ("rejected", "failed"):
            found += [f"{head}client {who} {kind}: {why}" for who, why in record[kind].items()]
    return found[-SHOWN_EVENTS:]


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _event(line: str) -> str:
    try:
        entry = json.loads(line)
        told = {k: v for k, v in entry.items() if k not in _CHAIN}
        return f"{entry['time']} {entry['event']} {json.dumps(told, ensure_ascii=False)}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"not an entry: {line}"
