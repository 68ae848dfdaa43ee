"""Endings of files, in which a compressed text keeps its own: `rows.csv.gz` ends in `.csv.gz`."""

from pathlib import Path

COMPRESSED = ".gz"


def ending(path: Path) -> str:
    """Return the ending of a file in lower case, with that of the text in a compressed one."""
    last = path.suffix.lower()
    return Path(path.stem).suffix.lower() + last if last == COMPRESSED else last


def stem(path: Path) -> str:
    """Return the name of a file without its ending."""
    return path.name[: len(path.name) - len(ending(path))]
