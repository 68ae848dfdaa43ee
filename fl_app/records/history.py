"""The rounds of a run, one JSON object a line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fl_app.records.atomic import replacing
from fl_app.records.plain import dumps, plain

FILE = "rounds.jsonl"
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
"""Every record has all of these; what does not apply is null."""


class History:
    """The records of the rounds so far, in memory (`rounds`) and in `folder/rounds.jsonl`.

    `rounds` are those that a resumed run has behind it. The file is brought to exactly them
    first: rounds that the lost run wrote after its last checkpoint are about to be replayed.
    """

    def __init__(self, folder: Path, rounds: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.path = folder / FILE
        self.rounds: list[dict[str, Any]] = [plain(record) for record in rounds or ()]
        with replacing(self.path) as temporary:
            temporary.write_text("".join(map(_line, self.rounds)), encoding="utf-8")

    def append(self, record: Mapping[str, Any]) -> None:
        """Add the record of one round, in memory and on disk.

        Raises ValueError when a field is absent and TypeError for a value that is not JSON;
        neither changes the history.
        """
        absent = [name for name in FIELDS if name not in record]
        if absent:
            raise ValueError(
                f"the record of round {record.get('round')} lacks {', '.join(absent)}; "
                "give null for what does not apply"
            )
        kept = plain(record)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(kept))
        self.rounds.append(kept)


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """Return the records in `folder/rounds.jsonl`; a last line cut short by a kill is left out.

    Raises FileNotFoundError when there is no such file, and ValueError naming the line that
    is not a record.
    """
    text = (folder / FILE).read_text(encoding="utf-8")
    *lines, _cut = text.split("\n")
    return [_record(line, folder / FILE, number) for number, line in enumerate(lines, start=1)]


def _record(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {number} of {path} is not JSON ({error.msg}); remove it, or resume the run "
            "from its checkpoint, which writes the file anew"
        ) from error
    if not isinstance(record, dict):
        raise ValueError(
            f"line {number} of {path} is {line[:40]!r}, not the record of a round; remove it"
        )
    return record


def _line(record: Mapping[str, Any]) -> str:
    return dumps(record) + "\n"
