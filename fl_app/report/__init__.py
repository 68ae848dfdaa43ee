"""Figures of a run, made from the folder it left behind and from nothing else."""

from fl_app.report.figures import write_figures
from fl_app.report.run import Run, first_right_round, read_run

__all__ = ["Run", "first_right_round", "read_run", "write_figures"]
