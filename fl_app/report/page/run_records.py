"""The records of a run for the page: what happened to every client, from the run's folder."""

import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fl_app.command_words import flwr_command
from fl_app.own import OPTIONS, PROJECT
from fl_app.records.history import first_split
from fl_app.records.reading import read_names, read_overrides
from fl_app.records.serving import no_better_than_chance
from fl_app.records.summary import read_summary
from fl_app.report.page.look import REMOVED
from fl_app.report.run import Run, assigned, memberships, numbers, planted_count, read_run

FULL_SCALE = 200
"""Up to this number, each client is drawn alone; above, several are drawn as one."""

Scores = dict[int, float]


@dataclass(frozen=True)
class RunRecords:
    """The records of a run, its summary (None before its end), and its overrides if known."""

    folder: str
    run: Run
    summary: Mapping[str, Any] | None
    overrides: list[str] | None
    project: Path | None = None
    """The copy of the user's modules or options, if the folder has one: seen from the folder in
    which the page is written, if it is inside of it."""
    warning: str | None = None
    """A sentence on models that have not learnt."""
    named: tuple[str, ...] = ()
    """The clients' own names in the order of their ids, if the data have some."""

    @property
    def status(self) -> str:
        """The status of the summary, or `unfinished`: still running, or killed."""
        return str(self.summary["status"]) if self.summary else "unfinished"

    @property
    def names(self) -> Mapping[int, str]:
        """The clients' own names, if the data have some."""
        known = ((self.summary or {}).get("clients") or {}).get("names") or {}
        return {int(c): name for c, name in known.items()} or dict(enumerate(self.named))

    @property
    def command(self) -> str | None:
        """The command line that repeats the run, None if its overrides are unknown.

        It is for the folder in which the run was started, to which relative paths of data refer.
        """
        if self.overrides is None:
            return None
        if self._by_flower:
            return flwr_command(self.overrides)
        if self.project is None:
            return shlex.join(["fl-app", *self.overrides])
        options = str(self.project / OPTIONS)
        words = shlex.join(["fl-app", "--config-dir", options, *self.overrides])
        return f"PYTHONPATH={shlex.quote(str(self.project))} {words}"

    @property
    def _by_flower(self) -> bool:
        """Whether Flower's own command started the run; runs of early versions do not say."""
        told: Mapping[str, Any] = self.run.config.get("records") or {}
        return "started_by" in told and told["started_by"] is None

    @cached_property
    def scores(self) -> dict[int, Scores]:
        """Accuracy of each measured client, by round; empty under secure aggregation."""
        found = {}
        for record in self.run.rounds:
            if record["accuracy"] and record["accuracy"]["clients"]:
                clients = record["accuracy"]["clients"]
                found[int(record["round"])] = {int(c): float(v) for c, v in clients.items()}
        return found

    @cached_property
    def metrics(self) -> dict[str, dict[int, Scores]]:
        """The value of each metric of the task on each measured client, by name and round."""
        found: dict[str, dict[int, Scores]] = {}
        for record in self.run.rounds:
            for name, each in (record.get("metrics") or {}).items():
                clients = {int(client): float(value) for client, value in each["clients"].items()}
                found.setdefault(name, {})[int(record["round"])] = clients
        return found

    @cached_property
    def gone(self) -> dict[int, tuple[int, str]]:
        """The round and the reason of each client that was removed from training or left."""
        found: dict[int, tuple[int, str]] = {}
        for record in self.run.rounds:
            for event in record["events"]:
                if event["kind"] in ("removed", "left"):
                    why = event["detail"].split(":")[0] if event["kind"] == "removed" else "left"
                    for client in event.get("clients") or ():
                        found.setdefault(int(client), (int(record["round"]), why))
        return found

    @cached_property
    def removed(self) -> dict[int, int]:
        """The round in which the method removed each removed client."""
        return {client: when for client, (when, why) in self.gone.items() if why != "left"}

    @cached_property
    def members(self) -> dict[int, dict[int, int]]:
        """The community of every known client, by round, numbered by `numbers`."""
        named = memberships(self.run.rounds)
        rank = numbers(named, self.assignment)
        found: dict[int, dict[int, int]] = {}
        last, source = dict[int, int](), None
        for number, stage in named.items():
            out = {client for client, when in self.removed.items() if when <= number}
            if source != (id(stage), out):  # else the last mapping is still valid
                last = {c: REMOVED if c in out else rank[name] for c, name in stage.items()}
                source = id(stage), out
            found[number] = last
        return found

    @cached_property
    def assignment(self) -> dict[int, int]:
        """The community of each client in `summary.json`; empty before the run has ended."""
        return assigned(self.summary)

    def members_at(self, server_round: int) -> dict[int, int]:
        """The community of every known client after a round."""
        earlier = [number for number in self.members if number <= server_round]
        return self.members[earlier[-1]] if earlier else {}

    @cached_property
    def final(self) -> dict[int, int]:
        """The community of every client at the end, including clients that never trained."""
        last = self.members_at(len(self.run.rounds))
        votes: dict[int, Counter[int]] = {}
        for client, row in self.assignment.items():
            if client in last:
                votes.setdefault(row, Counter())[last[client]] += 1
        chosen = {
            client: votes[row].most_common(1)[0][0]
            for client, row in self.assignment.items()
            if row in votes
        }
        return chosen | last

    @cached_property
    def split_at(self) -> int | None:
        """The first round in which the method split the clients, or clustered them in vain."""
        found = first_split(self.run.rounds)
        return None if found is None else int(found["round"])

    @cached_property
    def divided(self) -> bool:
        """Whether the round of `split_at` left several communities, or removed clients."""
        found = first_split(self.run.rounds) or {}
        removed = any(event["kind"] == "removed" for event in found.get("events") or ())
        return removed or bool((found.get("communities") or {}).get("count", 2) > 1)

    @cached_property
    def compared(self) -> tuple[int, int] | None:
        """The rounds of the accuracy before and after; None with fewer than two measurements."""
        return self.before_and_after(self.scores)

    def before_and_after(self, rounds: Collection[int]) -> tuple[int, int] | None:
        """Return the two of the measured `rounds` that are compared; None with fewer.

        Before is the last measurement up to the first split, else the first measurement.
        """
        if len(rounds) < 2:
            return None
        measured = sorted(rounds)
        split = self.split_at or 0
        first = max((number for number in measured if number <= split), default=measured[0])
        return (first if first < measured[-1] else measured[0]), measured[-1]

    @cached_property
    def before(self) -> Scores:
        """Accuracy in the first round of `compared` of each client that was measured then."""
        return self.scores[self.compared[0]] if self.compared else {}

    @cached_property
    def after(self) -> Scores:
        """Accuracy in the last measured round of each client that was measured then."""
        return self.scores[max(self.scores)] if self.scores else {}

    @cached_property
    def both(self) -> list[int]:
        """The clients that were measured in both rounds of `compared`, sorted."""
        return sorted(self.before.keys() & self.after.keys())

    @cached_property
    def earlier(self) -> dict[int, tuple[float, int]]:
        """The last accuracy, and its round, of each client that `after` does not have."""
        last = {c: (v, number) for number, scores in self.scores.items() for c, v in scores.items()}
        return {client: found for client, found in last.items() if client not in self.after}

    def present(self, server_round: int) -> int:
        """Return how many clients were in the run: they had joined, and had not left."""
        known = len(self.clients)
        if self.summary is None:
            total = (self.run.config.get("population") or {}).get("clients") or 0
        else:
            total = self.summary["clients"]["total"] + len(self._left)
        joining = (when > server_round for when in self._joined.values())
        leaving = (when <= server_round for when in self._left.values())
        return max(known, total) - sum(joining) - sum(leaving)

    @cached_property
    def _joined(self) -> dict[int, int]:
        return self._changed("joined")

    @cached_property
    def _left(self) -> dict[int, int]:
        return self._changed("left")

    def _changed(self, kind: str) -> dict[int, int]:
        """Return the round in which each client joined or left."""
        return {
            int(client): int(record["round"])
            for record in self.run.rounds
            for event in record["events"]
            if event["kind"] == kind
            for client in event.get("clients") or ()
        }

    @property
    def partial(self) -> bool:
        """Whether some clients of the run were not measured in a round that measured others."""
        return any(len(scores) < self.present(number) for number, scores in self.scores.items())

    @cached_property
    def groups(self) -> dict[int, int]:
        """The planted group of each client at the end, before it as of its last snapshot.

        Empty for a single group.
        """
        if self.planted is None:
            return {}
        if told := ((self.summary or {}).get("clients") or {}).get("groups"):
            return {int(client): group for client, group in told.items()}
        pairs = ((s.ids.tolist(), s.groups.tolist()) for s in self.run.snapshots)
        found = {c: g for ids, groups in pairs for c, g in zip(ids, groups, strict=True)}
        return {client: group for client, group in found.items() if group >= 0}

    @cached_property
    def planted(self) -> int | None:
        """The number of planted groups; None if it is unknown or 1."""
        groups = planted_count(self.run) or (self.run.config.get("population") or {}).get("groups")
        return groups if groups is not None and groups > 1 else None

    @cached_property
    def clients(self) -> list[int]:
        """All clients that the records name, sorted."""
        sampled = {int(client) for record in self.run.rounds for client in record["sampled"]}
        measured = self.after.keys() | self.earlier.keys()
        return sorted(sampled | measured | self.final.keys() | self.gone.keys())

    @property
    def aggregated(self) -> bool:
        """Whether there are too many clients to draw each alone."""
        return len(self.clients) > FULL_SCALE


def read_records(folder: Path) -> RunRecords:
    """Return the records of the run in a folder, from the rounds that it has completed.

    Raises ValueError for a folder without a run, and for records that cannot be read.
    """
    run = read_run(folder)
    if not run.rounds and "_target_" not in (run.config.get("strategy") or {}):
        raise ValueError(f"{folder} contains no run: it has neither rounds.jsonl nor the "
                         "config.yaml of a run; give the output folder of a run")  # fmt: skip
    overrides = read_overrides(folder)
    copy, here = folder.resolve() / PROJECT, Path.cwd()
    project = copy.relative_to(here) if copy.is_relative_to(here) else copy
    means = [each["accuracy"]["mean"] for each in run.rounds if each["accuracy"]]
    warning = no_better_than_chance(folder, means[-1]) if means else None
    found = project if copy.is_dir() else None
    name, named = folder.resolve().name, tuple(read_names(folder))
    return RunRecords(name, run, read_summary(folder), overrides, found, warning, named)
