"""Figures of a run, made only from the files in its output folder."""

from fl_app.report.figures import write_figures
from fl_app.report.run import Run, first_right_round, read_run

__all__ = ["Run", "first_right_round", "read_run", "write_figures"]
