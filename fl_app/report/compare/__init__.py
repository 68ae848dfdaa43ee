"""Comparison of several runs: aggregated over seeds, written as tables and as one page."""
