"""Figures and pages of runs, made only from the files in their output folders."""
