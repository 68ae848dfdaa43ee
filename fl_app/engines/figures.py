"""Draws the figures at the end of a run; a failure must not affect the results."""

from functools import partial
from logging import getLogger
from pathlib import Path

from fl_app.engines import signals, stop_request

log = getLogger(__name__)
LONGEST_S = 300.0
"""Time limit for the figures."""


def draw(folder: Path) -> None:
    """Draw the figures of a run; log if they fail or take too long."""
    try:
        from fl_app.report.figures import write_figures  # matplotlib: only if there are figures

        write = partial(write_figures, folder)
        if not signals.patiently(write, LONGEST_S, hurried=stop_request.asked):
            log.warning("the figures took too long and were not completed")
    except Exception:
        log.exception("the figures could not be drawn")
