"""A folder in which each file, or each folder, has the samples of one client."""

from collections.abc import Callable, Iterator, Sequence, Sized
from logging import getLogger
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.endings import ending, stem
from fl_app.data.frame import folded, shortened
from fl_app.data.split import Owners, split_rows
from fl_app.data.unread import tell_of_unread

log = getLogger(__name__)
Part = TypeVar("Part", bound=Sized)


class ClientParts(Generic[Part]):
    """What a reader makes of each client's file; `len` of a part is its number of samples."""

    def __init__(self, folder: Path, parts: Sequence[tuple[Path, Part]]) -> None:
        self.source = f"the files of {folder}"
        self.parts = [part for _, part in parts]
        self.clients = [_name(path) for path, part in parts for _ in range(len(part))]
        """The name of the client of each sample (N,)."""
        if empty := [path.name for path, part in parts if not len(part)]:
            log.warning("%s: no rows, and so no client, in %s", folder, shortened(empty))

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def split(self, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, Owners]:
        """Return training and test samples, `share` of each client's, and the client of each."""
        train, test = split_rows(len(self.clients), share, seed=seed, owners=self.clients)
        owners = Owners.of(self.clients, train, test, self.source)
        assert owners is not None
        return train, test, owners


def read_clients(
    folder: Path, read: Callable[[Path], Part], endings: Sequence[str], *, skip: Path | None = None,
    folders: str = "",
) -> ClientParts[Part]:  # fmt: skip
    """Return what `read` makes of each file with one of the endings, and of each folder if asked.

    The name of a file or folder is that of its client. `folders` says what is in one, if they are
    clients too. Hidden files, such as those that systems and editors leave, and `skip` are none.
    Raises DataError for no client, and for two of one name.
    """
    shown = sorted(p for p in folder.glob("*") if not p.name.startswith(".") and p != skip)
    paths = [p for p in shown if ending(p) in endings or (folders and p.is_dir())]
    if endings:
        tell_of_unread(folder, [path for path in shown if path not in paths], endings)
    if not paths:
        forms = [f"a file ending in {', '.join(endings)}"] if endings else []
        forms += [f"a folder with {folders}"] if folders else []
        raise DataError(
            f"no clients at {folder}: expected {' or '.join(forms)} for each client; put them "
            "there or point data.root elsewhere"
        )
    _check_names(paths)
    return ClientParts(folder, [(path, read(path)) for path in paths])


def _name(path: Path) -> str:
    # a folder `ward.2` is no file with an ending, but one of Parquet parts is
    return path.name if path.is_dir() and ending(path) != ".parquet" else stem(path)


def _check_names(paths: Sequence[Path]) -> None:
    """Raise DataError for two files of one client, whose samples might be the same."""
    seen: dict[str, Path] = {}
    for path in paths:
        if (other := seen.setdefault(folded(_name(path)), path)) is not path:
            raise DataError(
                f"the files of clients must have different names, apart from ending, case and "
                f"white space, got {other.name} and {path.name} in {path.parent}; rename or "
                "remove one"
            )
