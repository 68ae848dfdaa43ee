"""What stays with a client of a deployment, also when the output folder of its run has moved."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from logging import getLogger
from pathlib import Path
from typing import Any

from fl_app.client.local_state import FolderMemory

log = getLogger(__name__)
RUN = "run.txt"
"""Says of which run a folder is: its id and output folder, and Flower's ids of its submissions."""


@dataclass(frozen=True, kw_only=True)
class NodeMemory:
    """The place of a client in the folder `root` of its node, a `part` of it in its own folder.

    `folder` is the output folder of the run, as its settings name it, and `run` is the id that it
    keeps wherever that folder is; None: it was started without one.
    """

    root: Path
    client_id: int
    part: str
    folder: str
    run: str | None
    every: int

    def begin(self, submission: int, *, goes_on: bool) -> FolderMemory:
        """Return the memory for a submission of the run, which it `goes_on` with or starts.

        What an earlier run with this output folder left is removed at the start. A late message
        of an earlier submission of the same run removes nothing.
        """
        place, known = self._place(self.run), self._known(self._place(self.run))
        if str(submission) in known:
            return FolderMemory(place, self.every)
        if not goes_on:
            known = []
            for former in {*self._others(folder=self.folder), self._place(None), place}:
                shutil.rmtree(former, ignore_errors=True)
        elif not (place / RUN).exists():
            known = self._fetched(place)
        place.mkdir(parents=True, exist_ok=True)
        mark = {"run": self.run, "folder": self.folder, "submissions": [*known, str(submission)]}
        whole = place / f"{RUN}.tmp"
        whole.write_text(json.dumps(mark), encoding="utf-8")
        os.replace(whole, place / RUN)
        return FolderMemory(place, self.every)

    def _fetched(self, place: Path) -> list[str]:
        """Copy what the run left under another output folder; return its known submissions.

        It is copied, since the output folder can have been, and then both runs go on.
        """
        wanted = {"folder": self.folder} if self.run is None else {"run": self.run}
        found = list(self._others(**wanted))
        if not found:
            log.warning(
                "client %d has nothing of the run in %s, which goes on: if it has trained in it, "
                "what it had of its own is lost, and state-folder was another one than %s",
                self.client_id, self.folder, self.root,
            )  # fmt: skip
            return []
        latest = max(found, key=lambda each: (each / RUN).stat().st_mtime)
        # without marks, so that a copy that was cut short is made again
        shutil.copytree(latest, place, ignore=shutil.ignore_patterns(RUN), dirs_exist_ok=True)
        return self._known(latest)

    def _others(self, **wanted: str) -> Iterator[Path]:
        """Yield the places of this client whose mark says so."""
        for mark in self.root.glob(f"*/{Path(str(self.client_id)) / self.part / RUN}"):
            if wanted.items() <= _read(mark).items():
                yield mark.parent

    def _place(self, run: str | None) -> Path:
        text = self.folder if run is None else f"{run} {self.folder}"
        name = blake2b(text.encode(), digest_size=8).hexdigest()
        return self.root / name / str(self.client_id) / self.part

    def _known(self, place: Path) -> list[str]:
        return list(_read(place / RUN).get("submissions", ()))


def _read(mark: Path) -> Mapping[str, Any]:
    """Return what a mark says; one of an earlier version has only the id of a submission."""
    if not mark.exists():
        return {}
    text = mark.read_text(encoding="utf-8")
    found: Mapping[str, Any] = (
        json.loads(text) if text[:1] == "{" else {"submissions": text.split()}
    )
    return found
