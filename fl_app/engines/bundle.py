"""The folder that Flower bundles and sends to the processes of a run."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

PACKAGE = Path(__file__).resolve().parent.parent
PROJECT = PACKAGE / "bundle.toml"
"""The pyproject.toml of the app; only an installed package contains this file."""


@contextmanager
def app_folder(conf: Path) -> Iterator[Path]:
    """Yield the folder of the Flower app: the checkout, or a copy of the installed package."""
    if not PROJECT.exists():
        yield conf.parent
        return
    with TemporaryDirectory(prefix="fl-app-bundle-") as top:
        app = Path(top)
        skipped = shutil.ignore_patterns("__pycache__", "conf", PROJECT.name)
        shutil.copytree(PACKAGE, app / PACKAGE.name, ignore=skipped)
        shutil.copytree(conf, app / "conf")
        shutil.copy(PROJECT, app / "pyproject.toml")
        yield app
