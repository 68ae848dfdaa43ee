"""What each client is asked to release, on the disk before it is asked.

A killed process forgets the rounds after its last checkpoint, but what clients released in them
is spent.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = "releases.jsonl"


class ReleaseLog:
    """Appends the releases of each attempt at a round to those of the folder.

    A last line that was cut is removed: before its releases nobody was asked.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        if self.path.exists():
            whole = self.path.read_bytes().rpartition(b"\n")
            os.truncate(self.path, len(whole[0]) + len(whole[1]))

    def append(self, server_round: int, **kinds: Mapping[str, Any]) -> None:
        """Write the releases of clients that are about to be asked, by kind; raises OSError."""
        line = json.dumps({"round": server_round, **kinds}) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """Return all releases."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
