"""Measures of communities and models."""
