"""The command `fl-app new`: a project of the user's own that runs and passes its tests."""

import re
import shutil
import sys
import sysconfig
from importlib.machinery import PathFinder
from keyword import iskeyword
from pathlib import Path

from fl_app.command_words import as_value
from fl_app.composition import CONF
from fl_app.own import OPTIONS, PROJECT

TEMPLATE = Path(__file__).resolve().parent / "template"
NAME = "my_project"
"""The name of the template's package, wherever it stands."""
APP = NAME.replace("_", "-")
"""The name of the template's Flower app, which must have no `_`."""
FORM = re.compile("[a-z]([a-z0-9_]{0,30}[a-z0-9])?")
"""Of a Python package and, with hyphens, of a Flower app, whose name has at most 32 characters."""
HIDDEN = {"gitignore": ".gitignore"}
"""Files of the template that would act on this repository under their own names."""
RESERVED = {OPTIONS, PROJECT, "tests", "outputs", "multirun"}
"""Folders beside the package, of the template and of runs."""


def problem(folder: Path) -> str | None:
    """Return why no project can be written into `folder`, None if one can."""
    name = package_of(folder)
    if not FORM.fullmatch(name) or iskeyword(name) or as_value(name) != name:
        return (
            "the name of the folder must have at most 32 letters (A-Z, a-z), digits, - and _, "
            "begin with a letter and end with a letter or digit, and be no keyword of Python and "
            f"no value such as true, got {folder.name!r}; choose another, as my-data"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return f"the folder must not exist or be empty, got {folder}; choose another"
    if name in RESERVED:
        return f"the name must not be that of a folder of the project, got {name}; choose another"
    if any((CONF / option).exists() for option in _options(name)):
        return f"the name must not be that of an experiment of the app, got {name}; choose another"
    if name in sys.stdlib_module_names or _is_installed(name):
        return f"the name must not be that of an installed module, got {name}; choose another"
    return None


def _is_installed(name: str) -> bool:
    """Return whether there is such a module.

    A folder without `__init__.py`, such as a project in a checkout, is one only if it is installed,
    as that of Google's packages.
    """
    spec = PathFinder.find_spec(name)
    if spec is None or spec.origin is not None:
        return spec is not None
    installed = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    places = map(Path, spec.submodule_search_locations or ())
    return any(place.parent in installed for place in places)


def _options(name: str) -> list[Path]:
    """Return the files with options of a project, relative to their folder."""
    conf = TEMPLATE / OPTIONS
    files = (file.relative_to(conf).as_posix() for file in conf.rglob("*.yaml"))
    return [Path(file.replace(NAME, name)) for file in files]


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
        inside = inside.with_name(HIDDEN.get(inside.name, inside.name))
        target = folder / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text("utf-8").replace(NAME, name).replace(APP, name.replace("_", "-"))
        target.write_text(text, "utf-8")
        shutil.copymode(source, target)
        written.append(inside)
    return written
