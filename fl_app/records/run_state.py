"""What the folder of a run over gRPC says, so that another process can continue the run."""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from logging import getLogger
from pathlib import Path

from fl_app.records.atomic import replacing

log = getLogger(__name__)
FILE, LOCK = "run.json", "run.lock"
_PLACES = (FILE, f"*/{FILE}", f"*/*/{FILE}")
"""Where the output folders of runs are below a folder of them."""


class SupersededError(RuntimeError):
    """A later submission of the run writes into its folder now."""


@dataclass(frozen=True)
class RunState:
    """The last submission of a run.

    `run_id` is Flower's, `overrides` are those of the run, and `limit` is `engine.restarts`.
    `restarts` counts the submissions after the first, `in_vain` the losses since the last one after
    which a further round was recorded, and `rounds` is the largest number of recorded rounds.
    A run is `unfinished` until it has ended by itself or was stopped on purpose.
    """

    run_id: int
    overrides: str
    limit: int
    unfinished: bool = True
    restarts: int = 0
    in_vain: int = 0
    rounds: int = 0

    def again(self, rounds: int) -> "RunState | None":
        """Return the state after a loss at `rounds` recorded rounds; None: too many in vain."""
        in_vain = 1 if rounds > self.rounds else self.in_vain + 1
        if in_vain > self.limit:
            return None
        return replace(self, in_vain=in_vain, rounds=max(rounds, self.rounds))


def read(folder: Path) -> RunState | None:
    """Return the state of the run in `folder`, or None if the folder does not tell it."""
    try:
        return RunState(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def write(folder: Path, state: RunState) -> None:
    """Replace the state of the run in `folder`; on a full disk, the log says that it stays."""
    try:
        with replacing(folder / FILE) as temporary:
            temporary.write_text(json.dumps(asdict(state)) + "\n", encoding="utf-8")
    except OSError as error:
        log.error("%s could not be written: %s", folder / FILE, error)


def finish(folder: Path, run_id: int | None = None) -> None:
    """Note that the run, or only its submission `run_id`, has ended and must not be continued."""
    state = read(folder)
    if state is not None and run_id in (None, state.run_id) and state.unfinished:
        write(folder, replace(state, unfinished=False))


def superseded(folder: Path, run_id: int) -> bool:
    """Whether a later submission of the run owns `folder`."""
    state = read(folder)
    return state is not None and state.run_id != run_id


def unfinished(roots: Iterable[Path]) -> list[Path]:
    """Return the folders of unfinished runs in `roots` and up to two levels below them."""
    found = {file.parent.resolve() for root in roots for at in _PLACES for file in root.glob(at)}
    return sorted(folder for folder in found if (state := read(folder)) and state.unfinished)


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """Claim the continuation of a run during the block; yield False if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock ends with this process
        except BlockingIOError:
            yield False
        else:
            yield True
