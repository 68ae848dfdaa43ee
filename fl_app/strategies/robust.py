"""Robust aggregation: one model for all clients, by rules that limit malicious clients.

Krum, Bulyan and the trimmed mean are Flower's functions, so that results apply to Flower's users.
No rule weights by samples, since a client could claim any number of them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from flwr.server.strategy import aggregate as flower
from pydantic import Field

from fl_app.aggregation import Rule, geometric_median, median
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.server_context import ServerContext
from fl_app.types import NonNegativeInt, Participation, Vector, Vectors, Weights
from fl_app.used_with import UsedWith, When

Name = Literal["median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median"]
Trim = Annotated[float, Field(ge=0, lt=0.5)]


class Robust(SingleModel):
    """FedAvg with a robust rule instead of the weighted mean, over the n replies of a round.

    `median`: the coordinate-wise median. `trimmed_mean`: the coordinate-wise mean without the
    share `trim` of the values at each end, rounded down (both Yin et al., ICML 2018). `krum`: the
    model with the least sum of squared distances to its max(1, n - f - 2) nearest others, where f
    is `malicious`. `multi_krum`: the plain mean of the n - f models with the least sums (both
    Blanchard et al., NeurIPS 2017). `bulyan`: Krum selects n - 2f models one after another; each
    coordinate is the mean of the n - 4f selected values nearest to their median (El Mhamdi et al.,
    ICML 2018). `geometric_median`: the point with the least sum of distances (Pillutla et al.,
    IEEE TSP 2022). Krum needs 2f + 3 replies and Bulyan 4f + 3. With fewer replies, f is the
    largest number that they allow, at least 0; with fewer than three, `bulyan` is the median.
    """

    name = "robust"
    used_with: ClassVar[UsedWith] = {
        "malicious": When("rule", ("krum", "multi_krum", "bulyan")),
        "trim": When("rule", ("trimmed_mean",)),
    }

    def __init__(
        self,
        context: ServerContext,
        *,
        participation: Participation,
        rule: Name,
        malicious: NonNegativeInt,
        trim: Trim,
    ) -> None:
        rules: Mapping[Name, Rule] = {
            "median": median,
            "geometric_median": geometric_median,
            "trimmed_mean": partial(trimmed_mean, share=trim),
            "krum": partial(krum, malicious=malicious, many=False),
            "multi_krum": partial(krum, malicious=malicious, many=True),
            "bulyan": partial(bulyan, malicious=malicious),
        }
        super().__init__(context, participation=participation, rule=rules[rule])
        self.aggregator.weighted = False


def trimmed_mean(models: Vectors, weights: Weights, *, share: float) -> Vector:
    """Return the coordinate-wise mean (d,) of models (n, d) without `share` of them at each end.

    `share * n` is rounded down: with three models and a share below 1/3 nothing is removed.
    """
    return _flower(flower.aggregate_trimmed_avg, models, proportiontocut=share)


def krum(models: Vectors, weights: Weights, *, malicious: int, many: bool) -> Vector:
    """Return the model (d,) of (n, d) that Krum selects, or with `many` a mean of several.

    The mean is not weighted, as in the paper.
    """
    tolerated = min(malicious, max(0, (len(models) - 3) // 2))
    keep = len(models) - tolerated if many else 0
    return _flower(flower.aggregate_krum, models, num_malicious=tolerated, to_keep=keep)


def bulyan(models: Vectors, weights: Weights, *, malicious: int) -> Vector:
    """Return the Bulyan aggregate (d,) of models (n, d), or the median of fewer than three."""
    if len(models) < 3:
        return median(models, weights)
    tolerated = min(malicious, (len(models) - 3) // 4)
    options = {"num_malicious": tolerated, "aggregation_rule": flower.aggregate_krum, "to_keep": 0}
    return _flower(flower.aggregate_bulyan, models, **options)


def _flower(rule: Callable[..., Any], models: Vectors, **options: Any) -> Vector:
    # Flower's multi-Krum weights by the counts that are passed with the models
    results = [([model], 1) for model in models]
    found: Vector = np.asarray(rule(results, **options)[0], np.float32)
    return found
