"""All figures of a run, as PNG for screens and PDF for papers."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from fl_app.records.names import FIGURES as FOLDER
from fl_app.report.budget import privacy
from fl_app.report.clients import clients, validity
from fl_app.report.clusters import centroids, clustering, paths
from fl_app.report.curves import accuracy, communities, stabilisation
from fl_app.report.defence import defence, splits
from fl_app.report.histogram import similarities
from fl_app.report.matrix import similarity
from fl_app.report.migration import migration
from fl_app.report.network import graph
from fl_app.report.run import read_run
from fl_app.report.style import SETTINGS

FIGURES = (
    accuracy, clients, communities, validity, similarity, similarities, graph, migration,
    stabilisation, splits, defence, privacy, clustering, paths, centroids,
)  # fmt: skip
"""Each takes a run and returns its figure, or None if the run has no data for it."""


def write_figures(folder: Path) -> list[Path]:
    """Write the figures of the run in `folder` under figures/; return their paths.

    Figures without data are skipped. Raises ValueError for records that cannot be read. Raises
    an ExceptionGroup if figures failed, after all others were written.
    """
    run = read_run(folder)
    written: list[Path] = []
    failed: list[Exception] = []
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        for make in FIGURES:
            try:
                figure = make(run)
                written += _save(figure, folder / FOLDER, make.__name__) if figure else []
            except Exception as error:  # one failed figure must not prevent the others
                error.add_note(f"while drawing the figure {make.__name__}")
                failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(FIGURES)} figures failed", failed)
    return written


def names() -> list[str]:
    """Return the names of the files that `write_figures` can write."""
    return [f"{make.__name__}{ending}" for make in FIGURES for ending in (".png", ".pdf")]


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and PDF, without a date in the PDF so that equal records give equal bytes."""
    folder.mkdir(exist_ok=True)
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    figure.savefig(png)
    figure.savefig(pdf, metadata={"CreationDate": None})
    return [png, pdf]
