"""Data sets and their partition among clients."""
