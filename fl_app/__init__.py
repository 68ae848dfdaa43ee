"""Clustered federated learning on Flower."""

from importlib import import_module
from typing import Any

LAZY = {"load_run": "fl_app.use.run"}
"""The names that this package has, and their modules, whose imports take seconds."""


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(import_module(LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
