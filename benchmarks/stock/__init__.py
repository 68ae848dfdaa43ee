"""Flower as its tutorials use it: the side that our engines are measured against."""
