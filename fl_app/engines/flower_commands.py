"""Flower's commands, by a path that Flower and Ray can read.

A SuperLink makes the tables of its database with Alembic, which splits the path of Flower at spaces
and commas and then makes none. Ray splits the command of a worker at spaces, and waits for good.
Beside an environment with such a path there is therefore a link to it and a copy of Flower, whose
files follow no link, and commands that use both.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import distribution
from pathlib import Path

SPLIT = " ,"
"""Signs at which Flower and Ray split their own paths."""
_COMMAND = """#!{python}
import sys

sys.path.insert(0, {copy!r})
from {module} import {name}

sys.exit({name}())
"""


class FlowerError(RuntimeError):
    """A Flower command failed; the message is Flower's own."""


def executable(name: str) -> str:
    """Return the path of a Flower command, next to this Python or else on the PATH."""
    beside = commands() / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FlowerError(f"{name} must be installed next to {sys.executable}; run scripts/setup")
    return found


@cache
def commands() -> Path:
    """Return the folder of Flower's commands: that of this Python, or one that goes by a link.

    Raises FlowerError if no link helps, since Flower is not in the environment of this Python.
    """
    python, prefix = Path(sys.executable), Path(sys.prefix)
    flower = Path(str(distribution("flwr").locate_file("flwr")))
    if not any(_is_split(path) for path in (python, flower)):
        return python.parent
    if not (python.is_relative_to(prefix) and flower.is_relative_to(prefix)):
        raise FlowerError(
            f"Flower and Ray need a path without spaces and commas, got {flower}; install them "
            "in a virtual environment"
        )
    return _linked(prefix, python.relative_to(prefix), flower)


def _linked(prefix: Path, python: Path, flower: Path) -> Path:
    """Link to an environment, copy Flower, and write commands that use both; return theirs."""
    package = distribution("flwr")
    named = os.fsencode(prefix) + package.version.encode()
    folder = _own_folder(hashlib.sha256(named).hexdigest()[:16])
    link, copy, scripts = (folder / name for name in ("environment", "copy", "bin"))
    scripts.mkdir(exist_ok=True)
    _replace(link, lambda path: path.symlink_to(prefix))
    if not copy.exists():
        made = Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(flower, made / flower.name)
        with suppress(OSError):  # another process was faster
            made.rename(copy)
        shutil.rmtree(made, ignore_errors=True)
    for entry in package.entry_points.select(group="console_scripts"):
        words = {"python": link / python, "copy": str(copy)}
        text = _COMMAND.format(**words, module=entry.module, name=entry.attr)
        _replace(scripts / entry.name, partial(_write_command, text=text))
    return scripts


def _replace(path: Path, make: Callable[[Path], None]) -> None:
    """Make a file in one step, since other federations may use it now."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    make(temporary)
    temporary.replace(path)


def _write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o700)


def _own_folder(name: str) -> Path:
    """Return a folder that nobody else can write to, since commands are run from it."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = [Path(cache_home, "fl-app"), Path(tempfile.gettempdir(), f"fl-app-{os.getuid()}")]
    for place in places:
        if _is_split(place):
            continue
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = place.lstat()
        except OSError:
            continue
        if place.is_dir() and state.st_uid == os.getuid() and not state.st_mode & 0o022:
            (place / name).mkdir(mode=0o700, exist_ok=True)
            return place / name
    raise FlowerError(
        f"one of {' and '.join(map(str, places))} must be a folder of your own, with a path "
        f"without spaces and commas, for a link to {sys.prefix}; set XDG_CACHE_HOME to one"
    )


def _is_split(path: Path) -> bool:
    return any(sign in str(path) for sign in SPLIT)
