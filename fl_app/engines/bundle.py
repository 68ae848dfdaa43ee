"""The folder that Flower bundles and sends to the processes of a run."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fl_app.engines import unpack
from fl_app.own import PROJECT, SUFFIXES
from fl_app.records.environment import keep_commit

PACKAGE = Path(__file__).resolve().parent.parent
PYPROJECT = PACKAGE / "bundle.toml"
"""The pyproject.toml of the app; only an installed package contains this file."""
_FORM = "pyproject.toml"
_START = """
use(Path(__file__).resolve().parent)

from fl_app.{module} import app

__all__ = ["app"]
"""
"""The end of a module that Flower starts; it takes `app` from there only if `__all__` names it."""


@contextmanager
def app_folder(conf: Path, project: Path) -> Iterator[Path]:
    """Yield a folder with a copy of the app and of the project, and nothing else.

    `project` is the folder with the user's modules and options; it may be missing. Flower sends
    all files of the folder that it is given, and refuses some: those beside a checkout stay out.
    """
    with TemporaryDirectory(prefix="fl-app-bundle-") as top:
        app = Path(top)
        skipped = shutil.ignore_patterns("__pycache__", "conf", PYPROJECT.name)
        shutil.copytree(PACKAGE, app / PACKAGE.name, ignore=skipped)
        keep_commit(app / PACKAGE.name)
        shutil.copytree(conf, app / "conf")
        form = (PYPROJECT if PYPROJECT.exists() else conf.parent / _FORM).read_text("utf-8")
        if project.is_dir():
            shutil.copytree(project, app / PROJECT)
            form = _including(form, _files(app / PROJECT, app))
        (app / _FORM).write_text(form, "utf-8")
        yield app


@contextmanager
def packed_folder(conf: Path, project: Path) -> Iterator[Path]:
    """Yield the folder of `app_folder` with the app in one file: see `fl_app.engines.unpack`.

    Only for processes that start by the entry points in pyproject.toml. Ray's workers import the
    app by its name before.
    """
    with app_folder(conf, project) as app:
        form = (app / _FORM).read_text("utf-8")
        (app / _FORM).unlink()
        names = _files(app, app)  # not the templates of the report
        texts = {name: (app / name).read_bytes().decode("utf-8") for name in names}
        for name in {name.partition("/")[0] for name in names}:
            shutil.rmtree(app / name)
        (app / unpack.PACKED).write_text(json.dumps(texts, indent=0), "utf-8")
        unpacks = Path(unpack.__file__).read_text("utf-8")
        for module in ("client_app", "server_app"):
            start = f"fl_app_start_{module}"  # no name that a module of the user has
            text = unpacks + _START.format(module=module)
            (app / f"{start}.py").write_text(text, "utf-8")
            form = _replaced(form, f'"fl_app.{module}:app"', f'"{start}:app"')
        included = ", ".join(json.dumps(name) for name in (unpack.PACKED, "*.py"))
        form = _replaced(form, r"fab-include = \[.*\]", f"fab-include = [{included}]")
        (app / _FORM).write_text(form, "utf-8")
        yield app


def _files(folder: Path, app: Path) -> list[str]:
    found = (file for file in folder.rglob("*") if file.suffix in SUFFIXES)
    return sorted(file.relative_to(app).as_posix() for file in found)


def _including(form: str, names: Sequence[str]) -> str:
    """Return the pyproject.toml of an app that takes more files along."""
    added = ", ".join(json.dumps(name) for name in names)
    return _replaced(form, r"fab-include = \[", f"fab-include = [{added}, ")


def _replaced(form: str, pattern: str, by: str) -> str:
    found, count = re.subn(pattern, lambda _: by, form, count=1)
    if not count:
        raise ValueError(f"pyproject.toml must have {pattern}, which Flower's bundle needs")
    return found
