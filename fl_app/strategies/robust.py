"""Robust aggregation: one model for all, by rules that a minority of liars cannot move far.

Krum, Bulyan and the trimmed mean are Flower's own functions, so that the comparison is with
what its users have. No rule weighs by samples: a client could claim any number of them.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from flwr.server.strategy import aggregate as flower
from pydantic import Field

from fl_app.aggregation import Rule, geometric_median, median
from fl_app.strategies.fedavg import SingleModel
from fl_app.strategies.server_context import ServerContext
from fl_app.types import NonNegativeInt, Participation, Vector, Vectors, Weights

Name = Literal["median", "trimmed_mean", "krum", "multi_krum", "bulyan", "geometric_median"]
Trim = Annotated[float, Field(ge=0, lt=0.5)]


class Robust(SingleModel):
    """FedAvg with another rule in the place of the weighted mean.

    `median` by coordinate, and `trimmed_mean` by coordinate without the share `trim` of the
    values at either end, rounded down (both Yin et al., ICML 2018). `krum`: the model with the
    least sum of squared distances to its n - f - 2 nearest others, f being `malicious`;
    `multi_krum`: the plain mean of the n - f models of least sum (both Blanchard et al.,
    NeurIPS 2017). `bulyan` (El Mhamdi et al., ICML 2018). `geometric_median` (Pillutla et al.,
    IEEE TSP 2022). Krum needs 2f + 3 replies and Bulyan 4f + 3: with fewer, the largest f that
    the replies allow takes the place of `malicious`, and below three Bulyan is the median.
    """

    name = "robust"

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


def trimmed_mean(models: Vectors, weights: Weights, *, share: float) -> Vector:
    """Return the mean (d,) of models (n, d) without `share` of them at either end.

    By coordinate. `share * n` is rounded down: of three models nothing is cut below a third.
    """
    return _flower(flower.aggregate_trimmed_avg, models, proportiontocut=share)


def krum(models: Vectors, weights: Weights, *, malicious: int, many: bool) -> Vector:
    """Return the model (d,) of (n, d) that Krum selects, or with `many` the mean of several.

    The mean is plain, as in the paper.
    """
    borne = min(malicious, max(0, (len(models) - 3) // 2))
    keep = len(models) - borne if many else 0
    return _flower(flower.aggregate_krum, models, num_malicious=borne, to_keep=keep)


def bulyan(models: Vectors, weights: Weights, *, malicious: int) -> Vector:
    """Return the Bulyan aggregate (d,) of models (n, d); of fewer than three their median."""
    if len(models) < 3:
        return median(models, weights)
    borne = min(malicious, (len(models) - 3) // 4)
    options = {"num_malicious": borne, "aggregation_rule": flower.aggregate_krum, "to_keep": 0}
    return _flower(flower.aggregate_bulyan, models, **options)


def _flower(rule: Callable[..., Any], models: Vectors, **options: Any) -> Vector:
    # Flower's multi-Krum weighs by the counts that stand beside the models: equal ones here
    results = [([model], 1) for model in models]
    found: Vector = np.asarray(rule(results, **options)[0], np.float32)
    return found
