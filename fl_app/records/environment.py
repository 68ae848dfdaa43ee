"""The environment of a run: versions of the libraries and the commit of the code."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import fl_app

PACKAGES = (
    "fl-app",
    "flwr",
    "torch",
    "torchvision",
    "numpy",
    "networkx",
    "python-louvain",
    "scikit-network",
    "scikit-learn",
    "safetensors",
    "dp-accounting",
    "opacus",
    "hydra-core",
)
GIT_TIMEOUT_S = 10
BUNDLED = "bundled_commit.py"
"""In a copy of the app for other machines: the commit of which it is; Flower sends only code."""


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the libraries that affect results; None: missing."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def git_commit(folder: Path = Path(fl_app.__file__).parent) -> str:
    """Return the commit of `folder`, with `-dirty` if tracked files differ from it.

    Empty outside a repository, before its first commit, without git, and in a repository that
    does not track `folder`, such as a virtual environment inside another project. A copy of the
    app that another process was sent knows its commit from `keep_commit`.
    """
    if (folder / BUNDLED).exists():
        return (folder / BUNDLED).read_text("utf-8").strip().removeprefix("# ")
    if not _git(folder, "ls-files", "--", "."):
        return ""
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def keep_commit(folder: Path) -> None:
    """Note the commit of this app in `folder`, a copy of the app."""
    if commit := git_commit():
        (folder / BUNDLED).write_text(f"# {commit}\n", "utf-8")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of git, empty if it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
