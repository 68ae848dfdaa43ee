"""All figures of a run, as PNG for the screen and PDF for the paper."""

from pathlib import Path

import matplotlib as mpl

from fl_app.report.curves import accuracy, communities, stabilisation
from fl_app.report.matrix import similarity
from fl_app.report.network import graph
from fl_app.report.run import read_run
from fl_app.report.style import SETTINGS

FOLDER = "figures"
FIGURES = (accuracy, communities, similarity, graph, stabilisation)
"""Each takes a run and returns its figure, or None where the run has no data for it."""


def write_figures(folder: Path) -> list[Path]:
    """Write the figures of the run in `folder` under figures/; return their paths.

    A figure whose data the run has not written is not made.
    """
    run, written = read_run(folder), []
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        for make in FIGURES:
            figure = make(run)
            if figure is None:
                continue
            (folder / FOLDER).mkdir(exist_ok=True)
            for kind in ("png", "pdf"):
                path = folder / FOLDER / f"{make.__name__}.{kind}"
                figure.savefig(path)
                written.append(path)
    return written
