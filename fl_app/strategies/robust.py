"""Robust aggregation: one model for all, by rules that a minority of liars cannot move far.

Flower's own functions where it has one, so that the comparison is with what its users have.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from flwr.server.strategy import aggregate as flower
from pydantic import Field, NonNegativeInt

from fl_app.aggregation import Rule, geometric_median, median
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.setting import Setting
from fl_app.types import Participation, Vector, Vectors, Weights

Name = Literal["median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median"]
Trim = Annotated[float, Field(ge=0, lt=0.5)]


class Robust(SingleModel):
    """FedAvg with another mean.

    `median` by coordinate (Yin et al., ICML 2018); `trimmed_mean` without the share `trim` at
    either end of every coordinate (the same); `krum` and `multi_krum`, the update nearest to
    its neighbours, or the mean of the n - `malicious` nearest (Blanchard et al., NeurIPS
    2017); `bulyan` (El Mhamdi et al., ICML 2018); `geometric_median` (Pillutla et al., IEEE
    TSP 2022). Where a round brings too few replies for `malicious` liars to be borne (krum
    2f + 3, bulyan 4f + 3), the rule reckons with as many as these replies allow.
    """

    name = "robust"

    def __init__(
        self,
        setting: Setting,
        *,
        participation: Participation,
        rule: Name,
        malicious: NonNegativeInt = 0,
        trim: Trim = 0.3,
    ) -> None:
        rules: Mapping[str, Rule] = {
            "median": median,
            "geometric_median": geometric_median,
            "trimmed_mean": partial(trimmed_mean, share=trim),
            "krum": partial(krum, malicious=malicious, many=False),
            "multi_krum": partial(krum, malicious=malicious, many=True),
            "bulyan": partial(bulyan, malicious=malicious),
        }
        super().__init__(setting, participation=participation, rule=rules[rule])


def trimmed_mean(models: Vectors, weights: Weights, *, share: float) -> Vector:
    """Return the mean (d,) of models (n, d) without `share` of them at either end."""
    return _flower(flower.aggregate_trimmed_avg, models, weights, proportiontocut=share)


def krum(models: Vectors, weights: Weights, *, malicious: int, many: bool) -> Vector:
    """Return the model (d,) of (n, d) with the nearest neighbours, or a mean of several."""
    borne = min(malicious, max(0, (len(models) - 3) // 2))
    keep = len(models) - borne if many else 0
    return _flower(flower.aggregate_krum, models, weights, num_malicious=borne, to_keep=keep)


def bulyan(models: Vectors, weights: Weights, *, malicious: int) -> Vector:
    """Return the Bulyan aggregate (d,) of models (n, d); of fewer than three their median."""
    if len(models) < 3:
        return median(models, weights)
    borne = min(malicious, (len(models) - 3) // 4)
    options = {"num_malicious": borne, "aggregation_rule": flower.aggregate_krum, "to_keep": 0}
    return _flower(flower.aggregate_bulyan, models, weights, **options)


def _flower(rule: Callable[..., Any], models: Vectors, weights: Weights, **options: Any) -> Vector:
    results = [([model], int(weight)) for model, weight in zip(models, weights, strict=True)]
    found: Vector = np.asarray(rule(results, **options)[0], np.float32)
    return found
