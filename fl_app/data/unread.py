"""Files beside those of a data set that are not read, such as images of another format."""

from collections import Counter
from collections.abc import Iterable, Sequence
from logging import getLogger
from pathlib import Path

from fl_app.data.endings import ending

log = getLogger(__name__)


def tell_of_unread(folder: Path, files: Iterable[Path], endings: Sequence[str]) -> None:
    """Log how many of the files have an ending that is not read, for each ending."""
    found = Counter(ending(path) or "no ending" for path in files)
    others = {kind: count for kind, count in found.most_common() if kind not in endings}
    if others:
        log.warning(
            "%s has files that are not read: %s; convert those with samples to one of %s", folder,
            ", ".join(f"{count} {kind}" for kind, count in others.items()), ", ".join(endings),
        )  # fmt: skip
