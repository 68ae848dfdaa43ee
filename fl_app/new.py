"""The command `fl-app new`: a project of the user's own that runs and passes its tests."""

import shutil
import sys
from importlib.machinery import PathFinder
from keyword import iskeyword
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent / "template"
NAME = "my_project"
"""The name of the template's package, wherever it stands."""


def problem(folder: Path) -> str | None:
    """Return why no project can be written into `folder`, None if one can."""
    name = package_of(folder)
    if not name.isidentifier() or not name.isascii() or iskeyword(name):
        return (
            f"the name of the folder must be a Python name (letters, digits, _, not first a "
            f"digit, no keyword), got {folder.name}; choose another"
        )
    if name in sys.stdlib_module_names or PathFinder.find_spec(name) is not None:
        return f"the name must not be that of an installed module, got {name}; choose another"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return f"the folder must not exist or be empty, got {folder}; choose another"
    return None


def package_of(folder: Path) -> str:
    """Return the name of the package of a project in `folder`."""
    return folder.name.replace("-", "_").lower()


def write(folder: Path) -> list[Path]:
    """Write the project and return its files, relative to the folder."""
    name, written = package_of(folder), []
    for source in sorted(TEMPLATE.rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        inside = Path(source.relative_to(TEMPLATE).as_posix().replace(NAME, name))
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text("utf-8").replace(NAME, name), "utf-8")
        shutil.copymode(source, target)
        written.append(inside)
    return written
