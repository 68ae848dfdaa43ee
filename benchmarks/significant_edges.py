"""Significant edges or significant splits; writes docs/results/significant_edges.md.

    .venv/bin/python benchmarks/significant_edges.py

Digits with and without groups, with and without DP-SGD, and the same sums of updates for each rule.
docs/results/significant_edges.jsonl has one line per result; what is there is not measured again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from contrast_methods import CLIENTS, SETTINGS
from results import Found, by_case, write_page
from runs import run
from sklearn.metrics import adjusted_rand_score
from table import REPO, header, row

from fl_app.client_app import app
from fl_app.graph.client_graph import ClientGraph
from fl_app.graph.communities import louvain
from fl_app.graph.contrast import centred_cosines, exceeding
from fl_app.graph.detection import BySignificance
from fl_app.graph.split_strength import FALSE_SPLIT
from fl_app.types import Labels, Matrix

PAGE = REPO / "docs" / "results" / "significant_edges.md"
ROUNDS, SEEDS = 20, 3
POPULATIONS = {
    "three label swaps": ("label_swap", "groups=3"),
    "four rotations": ("rotation", "groups=4"),
    "three label distributions of Dirichlet 0.5": ("dirichlet", "groups=3"),
    "no groups": ("iid",),
    "no groups, labels of Dirichlet 0.5": ("dirichlet",),
    "no groups, unequal samples": ("quantity_skew",),
}
NOISE = (0.0, 0.5, 1.0, 2.0)
RULES = ("no test", "edges", "splits")
HEAD = f"""# Significant edges or significant splits

Written by `benchmarks/significant_edges.py`: digits, {CLIENTS} clients, FLIC with
`graph.contrast=true` after {ROUNDS} rounds in which all train, with DP-SGD of a fixed noise
multiplier where it is above 0. Each rule gets the same sums of updates. Cells: communities found
with the seeds 0 to {SEEDS - 1}, and in brackets the adjusted Rand index where there are groups.
Without groups the right answer is one community.

- **no test**: Louvain on the positive part of the cosines of centred vectors.
- **edges**: Louvain on the edges that are significant one by one. A cosine of independent noise in
  d dimensions has a standard deviation of at most `1 / sqrt(d)`, however large the noise is, so
  that the noise multiplier need not be known. An edge is kept if the cosine exceeds the mean of
  unrelated clients, `-1 / (n - 1)`, by as many of them as one of all pairs reaches in one
  federation of twenty.
- **splits**: what fl-app does. Each split of the communities has to be stronger than the strongest
  other direction and than the edge of the spectrum of noise: see [FLIC](../methods/flic.md).

Edges stand out of noise, but clients without groups are no noise: whatever is a client's own,
such as its share of the labels, makes cosines that are far from what independent noise would
give. So a test of edges finds groups where there are none, and only the test of splits asks
whether clients differ as groups do. Its price is that it sees less in much noise: with a noise
multiplier of 2, the edges still show most of some groups whose splits are no longer found.
"""


def edges(cosine: Matrix, parameters: int) -> Labels:
    """Return Louvain's communities (n,) of the edges that noise in so many dimensions has not."""
    n = len(cosine)
    far = NormalDist().inv_cdf(1 - FALSE_SPLIT / (n * (n - 1) / 2)) / parameters**0.5
    return _parted(exceeding(centred_cosines(cosine), far - 1 / (n - 1)))


def _parted(similarity: Matrix) -> Labels:
    alone = ~similarity.any(axis=0)
    if alone.all():
        return np.zeros(len(similarity), int)
    return louvain(similarity, backend="fast", resolution=1.0, seed=0)


@contextmanager
def _watched(seen: dict[str, Any]) -> Iterator[None]:
    """Keep the cosines, the parameters and the communities of the last look."""
    usual = BySignificance.__call__

    def looked(self: BySignificance, graph: ClientGraph, among: Labels) -> Labels:
        labels = usual(self, graph, among)
        seen.update(
            cosine=self._cosines(graph, among), splits=labels,
            parameters=graph.vectors.length, ids=graph.vectors.ids_of(among),
        )  # fmt: skip
        return labels

    BySignificance.__call__ = looked  # type: ignore[method-assign]
    try:
        yield
    finally:
        BySignificance.__call__ = usual  # type: ignore[method-assign]


def measure(population: str, noise: float, seed: int, *, out: Path) -> Found:
    """Run one federation and return the communities of each rule, and their ARI."""
    name, *given = POPULATIONS[population]
    words = [*SETTINGS, "strategy=flic", f"strategy.cluster_round={ROUNDS}", f"seed={seed}"]
    words += [f"population={name}", *(f"population.{each}" for each in given)]
    words += ["graph.contrast=true", f"rounds={ROUNDS + 1}"]
    if noise:
        words += ["privacy=sample_dp", "privacy.epsilon=null", f"privacy.noise_multiplier={noise}"]
    folder, seen = out / "run", dict[str, Any]()
    with _watched(seen):
        run(words, folder, app)
    none = exceeding(centred_cosines(seen["cosine"]), 0.0)
    labels = {
        "no test": _parted(none),
        "edges": edges(seen["cosine"], seen["parameters"]),
        "splits": seen["splits"],
    }
    groups = int(dict(each.split("=") for each in given).get("groups", 1))
    planted = seen["ids"] % groups
    return {
        "counts": {rule: int(each.max()) + 1 for rule, each in labels.items()},
        "ari": {rule: float(adjusted_rand_score(planted, each)) for rule, each in labels.items()},
    }


def cases() -> list[tuple[str, float, int]]:
    """Return what is measured."""
    return list(product(POPULATIONS, NOISE, range(SEEDS)))


def page(found: list[Found]) -> list[str]:
    """Return the table: a row for every population and noise multiplier."""
    known = by_case(found)
    lines = [HEAD, *header("population", "noise multiplier", *RULES)]
    for population, noise in product(POPULATIONS, NOISE):
        some = [
            known[population, noise, s] for s in range(SEEDS) if (population, noise, s) in known
        ]
        planted = not population.startswith("no groups")
        cells = list[str]()
        for rule in RULES:
            counts = ", ".join(str(each["counts"][rule]) for each in some)
            ari = ", ".join(f"{each['ari'][rule]:.2f}" for each in some)
            cells.append(f"{counts} ({ari})" if planted and some else counts)
        lines.append(row(population, noise, *cells))
    return lines


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page)
