"""Flower as its tutorials use it, for comparison with our engines."""
