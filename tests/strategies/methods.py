"""Every strategy as the tests build it, by a name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from fl_app.params import Layout
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cfl import Cfl
from fl_app.strategies.communities import CommunityDiscovery
from fl_app.strategies.dcfl import Dcfl
from fl_app.strategies.fedavg import FedAvg, FedMedian
from fl_app.strategies.flic import Flic
from fl_app.strategies.hierarchical import Hierarchical
from fl_app.strategies.ifca import Ifca
from fl_app.strategies.kmeans import KMeans
from fl_app.strategies.late import Late
from fl_app.strategies.robust import Robust
from fl_app.strategies.server_context import ServerContext

Build = Callable[[ServerContext], CommunityStrategy]


def _kmeans(given: ServerContext, **options: object) -> KMeans:
    """One centroid of five coordinates, and its count: as many numbers as the toy has."""
    layout = Layout(("centroids", "counts"), ((1, 5), (1,)), 1)
    return KMeans(
        replace(given, layout=layout), participation=0.5, **({"init": "random"} | options)
    )


def _flic(given: ServerContext) -> Flic:
    return Flic(given, participation=0.5, cluster_round=5)


STRATEGIES: dict[str, Build] = {
    "fedavg": lambda given: FedAvg(given, participation=0.5),
    "fedmedian": lambda given: FedMedian(given, participation=0.5),
    "flic": _flic,
    "flic median": lambda given: Flic(given, participation=0.5, cluster_round=5, rule="median"),
    "late": lambda given: Late(given, participation=0.5, cluster_round=5),
    "late euclidean": lambda given: Late(
        given, participation=0.5, cluster_round=5, similarity="euclidean"
    ),
    "hierarchical": lambda given: Hierarchical(
        given, participation=0.5, cluster_round=5, threshold=0.5
    ),
    "ifca": lambda given: Ifca(given, participation=0.5, communities=3),
    "ifca gradients": lambda given: Ifca(
        given, participation=0.5, communities=3, average="gradients"
    ),
    "ifca restarts": lambda given: Ifca(given, participation=0.5, communities=3, restarts=1),
    "cfl": lambda given: Cfl(given, participation=0.5, mode="clusters", max_age=3),
    "cfl byzantine": lambda given: Cfl(given, participation=0.5),
    "dcfl": lambda given: Dcfl(given, participation=0.5),
    "dcfl euclidean": lambda given: Dcfl(given, participation=0.5, distance="euclidean", max_age=9),
    "kmeans": _kmeans,
    "kmeans dynamic": lambda given: _kmeans(given, weighting="dynamic"),
    "kmeans own": lambda given: _kmeans(given, init="kfed", n_init=2),
    "kmeans equal starts": lambda given: _kmeans(given, weighting="equal", n_init=3),
    **{
        name: partial(Robust, participation=0.5, rule=name, malicious=1)
        for name in ("median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median")
    },
    "communities": lambda given: CommunityDiscovery(given, participation=0.5),
    "communities 1nn": lambda given: CommunityDiscovery(
        given, participation=0.5, attribution="1nn", max_age=4
    ),
    "communities wnn": lambda given: CommunityDiscovery(
        given, participation=0.5, attribution="wnn", similarity="euclidean", weighting="samples"
    ),
}
