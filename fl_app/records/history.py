"""The records of the rounds, one JSON object per line."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fl_app.records.atomic import replacing
from fl_app.records.names import ROUNDS
from fl_app.records.plain import dumps, plain
from fl_app.records.rounding import counted

Name = TypeVar("Name", int | str, str)

FIELDS = (
    "round",
    "phase",
    "sampled",
    "failed",
    "rejected",
    "lost",
    "dominance",
    "odd_updates",
    "train_loss",
    "step",
    "accuracy",
    "metrics",
    "global_accuracy",
    "central",
    "communities",
    "attack",
    "privacy",
    "notes",
    "events",
    "stability",
    "bytes",
    "time",
)
"""Every record has all of these fields; a field that does not apply is null."""
SPLITS = ("clustered", "removed")
"""Kinds of events in which a method splits clients."""
UNDONE, FELL_BACK, KEPT = "undone", "fell back", "kept"
"""Kinds of events: by the fallback a split is undone, left by some clients, or kept."""
GIVEN_UP = (UNDONE, FELL_BACK)
VERDICTS = (*GIVEN_UP, KEPT)
SKIPPED = "skipped"
"""Kind of the event of a round in which no model was trained."""
FINISHED, SPENT = "finished", "budget spent"
"""Kinds of events with which a run ends before its last round."""
EVALUATION = "evaluation: "
"""Prefix of the reason why an evaluation failed or was rejected."""
ATTEMPT = "attempt "
"""Begins the reason of a reply that was lost in an attempt at a round which was repeated."""
_ASIDE = re.compile(rf"(?:{EVALUATION}|{ATTEMPT}\d+: )")
"""Begins the reason of a client that can have trained in the last attempt nevertheless."""


class History:
    """The records of the rounds so far, in memory (`rounds`) and in `folder/rounds.jsonl`.

    `rounds` are the completed rounds of a resumed run. The file is first rewritten with exactly
    these, because rounds after the last checkpoint are replayed.
    """

    def __init__(self, folder: Path, rounds: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.path = folder / ROUNDS
        self.rounds: list[dict[str, Any]] = [plain(record) for record in rounds or ()]
        with replacing(self.path) as temporary:
            temporary.write_text("".join(map(_line, self.rounds)), encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of one round, in memory and on disk.

        Raises ValueError for a missing field and TypeError for a value that is not JSON; then the
        history is unchanged.
        """
        absent = [name for name in FIELDS if name not in record]
        if absent:
            raise ValueError(
                f"the record of round {record.get('round')} must contain {', '.join(absent)}; "
                "give null for a field that does not apply"
            )
        converted = plain(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(converted))
        self.rounds.append(converted)


def was_skipped(record: Mapping[str, Any]) -> bool:
    """Return whether no model was trained in the round of a record."""
    return any(event["kind"] == SKIPPED for event in record["events"])


def skipped(rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return how many rounds trained no model, and why the last of them did not; empty for none."""
    found = [record for record in rounds if was_skipped(record)]
    if not found:
        return ""
    why = next(e["detail"] for e in found[-1]["events"] if e["kind"] == SKIPPED)
    total = counted(len(rounds), "round", "rounds")
    return f"{len(found)} of {total} trained no model, the last because: {why}"


def is_aside(reason: str) -> bool:
    """Return whether a reason is of an evaluation or of an earlier attempt, not of training."""
    return _ASIDE.match(reason) is not None


def chosen_reasons(reasons: Iterable[tuple[Name, str]]) -> dict[Name, str]:
    """Return one reason of each client: of several, the first of training, else the last."""
    found: dict[Name, str] = {}
    for name, why in reasons:
        if is_aside(found.get(name, EVALUATION)):
            found[name] = why
    return found


def untrained(record: Mapping[str, Any]) -> set[str]:
    """Return who failed in the training of a round or whose reply to it was rejected.

    These are clients and nodes by name. A failed or rejected evaluation is no failed training, nor
    is a reply that was lost in an attempt before the last one.
    """
    failed = {name for name, why in (record["failed"] or {}).items() if not is_aside(why)}
    refused = {name for name, why in (record["rejected"] or {}).items() if _refused(why)}
    return failed | refused


def rejected(rounds: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many rejections are of trainings and how many of evaluations.

    A client counts once for its trainings and once for its evaluations in a round.
    """
    reasons = [why for record in rounds for why in (record["rejected"] or {}).values()]
    scores = sum(f"; {EVALUATION}" in f"; {why}" for why in reasons)
    return sum(not why.startswith(EVALUATION) for why in reasons), scores


def trained(rounds: Iterable[Mapping[str, Any]]) -> set[int]:
    """Return the clients that trained in any of the rounds."""
    return {
        client
        for record in rounds
        if record["sampled"]
        for client in {*record["sampled"]} - {int(c) for c in untrained(record) if c.isdecimal()}
    }


def _refused(reasons: str) -> bool:
    """Return whether any of the joined reasons, those of evaluations last, is of training."""
    if reasons.startswith(EVALUATION):
        return False
    return not all(map(is_aside, reasons.split("; ")))


def means(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean over the clients of each score of a round by name, the accuracy first.

    These are the accuracy and the metrics of the task; empty: nothing was evaluated.
    """
    accuracy = {"accuracy": record["accuracy"]} if record["accuracy"] else {}
    spreads = accuracy | (record.get("metrics") or {}) | accuracy
    return {name: spread["mean"] for name, spread in spreads.items()}


def first_split(
    rounds: Sequence[Mapping[str, Any]], kinds: Sequence[str] = SPLITS
) -> Mapping[str, Any] | None:
    """Return the record of the first round with such an event and several communities.

    If there was always a single community, it is the first round with such an event; None: none.
    """
    found = [r for r in rounds if any(event["kind"] in kinds for event in r["events"])]
    several = (r for r in found if (r["communities"] or {}).get("count", 2) > 1)
    return next(several, found[0] if found else None)


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """Return the records in `folder/rounds.jsonl`, without an incomplete last line after a kill.

    Raises FileNotFoundError if there is no such file, and ValueError with the number of a line
    that is not a record.
    """
    # bytes: a kill can cut a character, and text has more ends of lines than JSON escapes
    *lines, _cut = (folder / ROUNDS).read_bytes().split(b"\n")
    return [_record(line, folder / ROUNDS, number) for number, line in enumerate(lines, start=1)]


def _record(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
        record = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        why = error.reason if isinstance(error, UnicodeDecodeError) else error.msg
        raise ValueError(
            f"line {number} of {path} must be JSON ({why}); remove it, or resume the run "
            "from its checkpoint, which rewrites the file"
        ) from error
    if not isinstance(record, dict):
        raise ValueError(
            f"line {number} of {path} must be the record of a round, got {text[:40]!r}; remove it"
        )
    return record


def _line(record: Mapping[str, Any]) -> str:
    return dumps(record) + "\n"
