"""The output in the terminal: the progress of the rounds, and a table at the end.

Everything is read from the run's folder, so that the view is the same for all engines.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fl_app.records.history import VERDICTS, means, read_rounds, skipped, was_skipped
from fl_app.records.names import REPORT, RESUMED, ROUNDS, SUMMARY
from fl_app.records.plain import spent_epsilon
from fl_app.records.rounding import counted, number, upwards
from fl_app.records.serving import no_better_than_chance

log = getLogger(__name__)
POLL_S = 0.5
MANY = 3
"""Of so many clients one was removed, or more: rather a group than attackers."""
EVERY = "the clients"
SPEED_OVER_S = 3600
"""Period for the estimate of the time left; long, since one round can take minutes."""


class Live:
    """A progress bar for rounds.jsonl, with the events above it.

    A resumed run first prints its checkpoint. If the output is not a terminal, each round is one
    line of `name=value`.
    """

    def __init__(self, folder: Path, *, rounds: int, console: Console) -> None:
        self.file = folder / ROUNDS
        self.resumed: Path | None = folder / RESUMED
        self.console = console
        self.total = rounds
        self.shown = 0
        self.scores: dict[str, float] = {}
        self._told = False
        done = self._lines()  # from before a resume; they do not count for the speed
        self.bar = Progress(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=SPEED_OVER_S,
        )
        self.task = self.bar.add_task("", total=rounds, completed=len(done), state="connecting")

    def tick(self) -> None:
        """Show the rounds written since the last call."""
        if self.resumed is not None and self.resumed.exists():
            text = self.resumed.read_text(encoding="utf-8").strip()
            self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
            log.info("%s", text)
            self.resumed = None
        for record in self._fresh():
            now = means(record)
            self.scores = now or self.scores
            state = _state(record, self.scores if self.console.is_terminal else now)
            if not self.console.is_terminal:
                head = {"round": record["round"], "rounds": self.total}
                words = [f"{name}={value}" for name, value in (head | state).items()]
                self.console.print(" ".join(words), highlight=False, soft_wrap=True)
                continue
            for event in record["events"]:
                text = f"round {record['round']}: {event['kind']}, {event['detail']}"
                self.bar.console.print(text, highlight=False, markup=False)
            words = [v if name == "phase" else f"{name} {v}" for name, v in state.items()]
            shown = "  ".join(words)
            self.bar.update(self.task, completed=record["round"], state=shown)

    def try_tick(self) -> None:
        """Call `tick`; its errors, which must neither end the view nor hide the run's, are logged.

        Only the first one, since the next calls often have the same.
        """
        try:
            self.tick()
        except Exception:
            if not self._told:
                log.warning("the progress of some rounds is not shown", exc_info=True)
            self._told = True

    def _fresh(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines()]

    def _lines(self) -> list[bytes]:
        if not self.file.exists():
            return []
        *whole, _cut = self.file.read_bytes().split(b"\n")
        # a resumed run removes the lines of rounds that it will replay
        fresh, self.shown = whole[self.shown :], len(whole)
        return fresh


@contextmanager
def live(folder: Path, *, rounds: int, console: Console) -> Iterator[Live]:
    """Show the rounds of a run in the background until the block ends."""
    view, stop = Live(folder, rounds=rounds, console=console), threading.Event()

    def watch() -> None:
        while not stop.wait(POLL_S):
            view.try_tick()

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    with view.bar:
        watcher.start()
        try:
            yield view
        finally:
            stop.set()
            watcher.join(POLL_S * 10)
            view.try_tick()


def _state(record: dict[str, Any], scores: Mapping[str, float]) -> dict[str, str]:
    """Return the values to show for a round by name, with these `scores`."""
    state = {"phase": record["phase"]}
    if record["train_loss"] is not None:
        state["loss"] = number(record["train_loss"])
    state |= {name: number(mean) for name, mean in scores.items() if name not in state}
    if record["communities"]:
        state["communities"] = str(record["communities"]["count"])
    spent = (record.get("privacy") or {}).get("epsilon") or {}
    if "max" in spent:
        state["epsilon"] = upwards(spent_epsilon(spent["max"]))
    missing = len(record["failed"]) + len(record["rejected"])
    if missing:
        state["missing"] = str(missing)
    if was_skipped(record):
        state["skipped"] = "yes"
    return state


def show_result(folder: Path, console: Console) -> None:
    """Print the communities with their accuracies, the overall result and the folder."""
    summary = json.loads((folder / SUMMARY).read_text())
    rounds = read_rounds(folder)
    last = next((r["accuracy"] for r in reversed(rounds) if r["accuracy"]), None)
    accuracy, found = summary["accuracy"], summary["communities"]
    if found["assignment"]:
        names = summary["clients"]["names"] or {}
        console.print(_communities(found, last["clients"] if last else {}, names))
    console.print(
        f"{summary['status']}: {summary['strategy']} on {summary['engine']}, "
        f"{counted(summary['rounds'], 'round', 'rounds')}, {summary['time']['total_s']:.1f} s"
    )
    if summary.get("ended"):
        console.print(f"it ended after round {summary['rounds']}: {summary['ended']}")
    if accuracy["mean"] is not None:
        before = accuracy["before_clustering"]
        gain = "" if before is None else f" (before clustering {number(before)})"
        told = f"accuracy {number(accuracy['mean'])} +- {number(accuracy['std'])}{gain}"
        over = _over(rounds, lambda record: record["accuracy"], summary["clients"]["total"])
        console.print(f"{told}, over {over}" if over != EVERY else told)
        if warning := no_better_than_chance(folder, accuracy["mean"]):
            console.print(warning, soft_wrap=True)
    for name, spread in summary["metrics"].items():
        told = f"{name} {number(spread['mean'])} +- {number(spread['std'])}"
        told += f", over {_over(rounds, _metric(name), summary['clients']['total'])}"
        console.print(told)
    if lost := rounds[-1]["lost"] if rounds else None:
        named = _shortened([str(client) for client in lost])
        clients = "client" if len(lost) == 1 else "clients"
        console.print(f"lost by the end: {clients} {named}")
    if told := skipped(rounds):
        console.print(told, soft_wrap=True)
    for record in rounds:
        for event in record["events"]:
            if event["kind"] in VERDICTS:
                told = f"by validation in round {record['round']}: {event['detail']}"
                console.print(told, soft_wrap=True)
    for line in _right_and_wrong(summary, rounds[-1]["attack"] if rounds else None):
        console.print(line)
    console.print(f"results in {folder}", soft_wrap=True)
    if (folder / REPORT).exists():
        console.print(f"report: {folder / REPORT}", soft_wrap=True)


def _metric(name: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any] | None]:
    """Return a function that finds a metric of the task in a record."""
    return lambda record: (record.get("metrics") or {}).get(name)


def _over(
    rounds: Sequence[Mapping[str, Any]],
    find: Callable[[Mapping[str, Any]], Mapping[str, Any] | None],
    total: int,
) -> str:
    """Return over which of `total` clients the last score is a mean, and the round if not the last.

    Under secure aggregation the clients of a score are not known.
    """
    scored = ((r["round"], found) for r in reversed(rounds) if (found := find(r)))
    measured, spread = next(scored, (None, {}))
    count = len(spread.get("clients") or ())
    over = f"{count} of {total} clients" if 0 < count < total else EVERY
    late = measured not in (None, rounds[-1]["round"] if rounds else None)
    return f"{over} in round {measured}" if late else over


def _right_and_wrong(summary: Mapping[str, Any], attack: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what is known of the truth, and who was removed."""
    found, clients = summary["communities"], summary["clients"]
    if found["ari"] is not None and not _one_group(found, removed=bool(clients["removed"])):
        yield f"agreement with the planted groups: ARI {number(found['ari'])}"
    if removed := clients["removed"]:
        named = _shortened([str(client) for client in removed])
        yield f"removed from training: {len(removed)} of {clients['total']} clients: {named}"
        if attack is None and MANY * len(removed) >= clients["total"]:
            yield "if these are no attackers, strategy=cfl_clusters trains them with one another"
    if attack and attack["recall"] is not None:
        caught = round(attack["recall"] * attack["malicious"])
        told = f"{caught} of {attack['malicious']} suspected"
        yield f"malicious clients: {told}, and {attack['loyal_lost']} of the others"
    if attack and attack["loyal_accuracy"] is not None:
        yield f"accuracy of the loyal clients: {number(attack['loyal_accuracy'])}"


def _one_group(found: Mapping[str, Any], *, removed: bool = False) -> bool:
    """Return whether there is a single planted group, with which nothing is to agree.

    Then each community is pure, and the ARI is 0, or 1 for one community. With several groups, a
    pair of clients in a pure community makes it larger, and one community 0. Clients that were
    `removed` are one more cluster, so that a single community is not all.
    """
    if found["count"] == 1 and not removed:
        return bool(found["ari"] == 1)
    return bool(found["pure_share"] == 1 and found["ari"] == 0 and max(found["sizes"]) > 1)


def _communities(
    found: Mapping[str, Any], accuracies: Mapping[str, float], names: Mapping[str, str]
) -> Table:
    """Return a table of the communities with their mean accuracy, if known, and their clients."""
    scored = ["accuracy"] if accuracies else []
    table = Table("community", "clients", *scored, "members", title="Communities")
    for row in sorted({*found["assignment"].values()}):
        members = [c for c, r in found["assignment"].items() if r == row]
        scores = [accuracies[c] for c in members if c in accuracies]
        mean = number(sum(scores) / len(scores)) if scores else "-"
        shown = [c if names.get(c, c) == c else f"{c} ({names[c]})" for c in members]
        cells = [str(row), str(len(members)), *([mean] if scored else []), _shortened(shown)]
        table.add_row(*cells)
    return table


def _shortened(members: list[str], *, most: int = 12) -> str:
    more = f" and {len(members) - most} more" if len(members) > most else ""
    return " ".join(members[:most]) + more
