"""Every strategy as the tests build it, by a name: all of conf/strategy, and other settings."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fl_app.config import choices, option
from fl_app.params import Layout
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.server_context import ServerContext
from fl_app.wiring import made

Build = Callable[[ServerContext], CommunityStrategy]
USUAL = {"participation": 0.5, "cluster_round": 5, "threshold": 0.5, "malicious": 1}
"""For some rounds of the toy, where a method has such a setting."""
CENTROIDS = Layout(("centroids", "counts"), ((1, 5), (1,)), 1)
"""One centroid of five coordinates, and its count: as many numbers as the toy has."""


def builder(name: str, **changes: Any) -> Build:
    """Return what builds a method of conf/strategy for the toy."""
    target = option(f"strategy={name}")
    usual = {key: value for key, value in USUAL.items() if key in target.options}

    def build(given: ServerContext) -> CommunityStrategy:
        fitting = replace(given, layout=CENTROIDS) if target.resolve().clusters_points else given
        built: CommunityStrategy = made(f"strategy={name}", fitting, **(usual | changes))
        return built

    return build


def _by_messages(name: str) -> bool:
    return not option(f"strategy={name}").resolve().simulation_only


STRATEGIES = {name: builder(name) for name in choices("strategy") if _by_messages(name)} | {
    "flic median": builder("flic", rule="median"),
    "late euclidean": builder("late", similarity="euclidean"),
    "ifca gradients": builder("ifca", average="gradients"),
    "ifca restarts": builder("ifca", restarts=1),
    "cfl clusters of age": builder("cfl", mode="clusters", max_age=3),
    "dcfl euclidean": builder("dcfl", distance="euclidean", max_age=9),
    "kmeans random": builder("kmeans", init="random"),
    "kmeans dynamic": builder("kmeans", init="random", weighting="dynamic"),
    "kmeans own": builder("kmeans", n_init=2),
    "kmeans equal starts": builder("kmeans", init="random", weighting="equal", n_init=3),
    "communities_1nn of age": builder("communities_1nn", max_age=4),
    "communities_wnn euclidean": builder(
        "communities_wnn", similarity="euclidean", weighting="samples"
    ),
}
