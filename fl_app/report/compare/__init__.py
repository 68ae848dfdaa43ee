"""Several runs side by side: read, aggregated over seeds, as tables and as one page."""
