"""Data sets, and how they are split among clients."""
