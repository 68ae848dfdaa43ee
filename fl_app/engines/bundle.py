"""The folder that Flower bundles and sends to the processes of a run."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fl_app.own import PROJECT

PACKAGE = Path(__file__).resolve().parent.parent
PYPROJECT = PACKAGE / "bundle.toml"
"""The pyproject.toml of the app; only an installed package contains this file."""


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
        shutil.copytree(conf, app / "conf")
        form = (PYPROJECT if PYPROJECT.exists() else conf.parent / "pyproject.toml").read_text(
            "utf-8"
        )
        if project.is_dir():
            shutil.copytree(project, app / PROJECT)
            form = _including(form, app)
        (app / "pyproject.toml").write_text(form, "utf-8")
        yield app


def _including(form: str, app: Path) -> str:
    """Return the pyproject.toml of an app that takes the files of the project along."""
    files = (file for file in (app / PROJECT).rglob("*") if file.is_file())
    named = sorted(json.dumps(file.relative_to(app).as_posix()) for file in files)
    return form.replace("fab-include = [", f"fab-include = [{', '.join(named)}, ", 1)
