"""What a run leaves in its output folder, and its removal for a new run there."""

import shutil
from pathlib import Path

from fl_app import own
from fl_app.client.local_state import CLIENTS
from fl_app.records import checkpoint, points, snapshot
from fl_app.records.models import FILE as MODELS
from fl_app.records.names import (
    CHECKPOINTS,
    CLIENT_NAMES,
    CONFIG,
    DATA_FORM,
    FIGURES,
    REPORT,
    RESUMED,
    ROUNDS,
    SUMMARY,
)
from fl_app.records.newcomers import FILE as NEWCOMERS
from fl_app.records.newcomers import FIRST as FIRST_CLIENTS
from fl_app.records.releases import FILE as RELEASES
from fl_app.records.serving import FILE as SERVING
from fl_app.records.tracking import TENSORBOARD

FOLDERS = (FIGURES, snapshot.FOLDER, TENSORBOARD)
"""Folders in which a user's own files stay."""
FILES = (
    ROUNDS, CONFIG, CLIENT_NAMES, DATA_FORM, MODELS, SERVING, points.FILE, NEWCOMERS, FIRST_CLIENTS,
    REPORT,
)  # fmt: skip
REPLACED = (CLIENTS, own.PROJECT, CHECKPOINTS, SUMMARY, RELEASES, *FILES, *FOLDERS)
"""What a new run removes or replaces in its folder."""


def remove_end(folder: Path) -> None:
    """Remove what says how a run ended, before it continues."""
    for name in (SUMMARY, RESUMED):
        (folder / name).unlink(missing_ok=True)


def remove(folder: Path, *, begun: bool = False) -> None:
    """Remove the results of an earlier run, which a new one would take for its own.

    Its last checkpoint stays under another name until there is a new one. `begun`: it is the same
    run from its beginning, and what its clients were asked to release stays.
    """
    remove_end(folder)
    if not begun:
        (folder / RELEASES).unlink(missing_ok=True)
    checkpoint.retire(folder / CHECKPOINTS)
    shutil.rmtree(folder / CLIENTS, ignore_errors=True)
    for path in [*(folder / name for name in FILES), *_in_folders(folder)]:
        path.unlink(missing_ok=True)


def _in_folders(folder: Path) -> list[Path]:
    """Return the files that runs write into folders which can have others too."""
    found = [*(folder / snapshot.FOLDER).glob(snapshot.FILES)]
    found += (folder / TENSORBOARD).glob("events.out.tfevents.*")
    if (folder / FIGURES).exists():
        from fl_app.report.figures import names  # matplotlib: only if there are figures

        found += (folder / FIGURES / name for name in names())
    return found
