"""What benchmarks/private_communities.py measures: methods, budgets, samples, splits and data."""

from itertools import product
from math import inf, sqrt

import numpy as np

SEEDS, EPSILON, SAMPLES = 5, 2.0, 4500
EPSILONS, SIZES = (0.5, 1.0, 2.0, 5.0, 10.0, inf), (100, 300, 1000, 2000, 4500)
ROUNDS, CLUSTERED, STEPS, PARTS, GROUPS = 20, 10, 10, 10, 3
"""Rounds of a run, the round after which FLIC clusters, steps of a round, batches, groups."""
LARGEST = 0.5 * STEPS * CLUSTERED
"""Largest norm of a client's summed updates without noise: learning rate times steps, clip 1."""
METHODS = {
    "flic, contrast": (),
    "flic": (),
    "cfl_clusters, contrast": ("strategy=cfl_clusters", "strategy.gap_above=null"),
    "cfl_clusters": ("strategy=cfl_clusters",),
    "communities": ("strategy=communities",),
    "dcfl": ("strategy=dcfl",),
    "ifca": ("strategy=ifca",),
}
CLAIM = "flic, contrast"
MAIN = "label swap"
IMAGES = ("data=image_folder", "population.test_samples=150")
OTHERS: dict[str, tuple[tuple[str, ...], int, int]] = {
    "rotation": (("population=rotation",), 4500, 25_450),
    "Dirichlet": (("population=dirichlet", "population.alpha=0.3"), 2000, 25_450),
    "Fashion-MNIST": (("data=fashion_mnist",), 4500, 25_450),
    "CIFAR-10": (IMAGES, 450, 98_666),
}
"""Overrides, samples of a client and parameters of the network, of other splits and data."""
BESIDE = ("flic, contrast", "flic", "ifca")
"""Methods on other splits and data."""
PAPER, PAPER_SAMPLES, BUDGET = "as DCFL's paper", 3000, 10.0
CLAIMED: dict[str, tuple[str, ...]] = {
    "dcfl, contrast": ("strategy=dcfl",),
    "fedavg": ("strategy=fedavg",),
}
CLAIMS = ("dcfl, contrast", "dcfl", "cfl_clusters, contrast", "cfl_clusters", "fedavg")
"""Methods of the claim of DCFL's paper, that DCFL > CFL > FedAvg with an epsilon of 10."""
EVERY = METHODS | CLAIMED
OF_PAPER = ("network=mlp", "~network.width", "network.hidden=[32]", "privacy=sample_dp",
            "records.evaluate_every=60")  # fmt: skip
"""In place of those of the experiment with few samples, whose network trains slowly under DP."""
Cell = tuple[str, str, float, int, int]
"""Setting, method, epsilon, samples, seed."""


def cells() -> list[Cell]:
    """Return what is measured: the main table, that of all methods, and other data."""
    found: list[Cell] = [(MAIN, CLAIM, EPSILON, SAMPLES, seed) for seed in range(SEEDS)]
    pairs = [(EPSILON, SAMPLES), *((each, SAMPLES) for each in EPSILONS if each != EPSILON)]
    pairs += [(EPSILON, each) for each in SIZES if each != SAMPLES]
    for seed in (0, 1):
        found += [(MAIN, method, *pair, seed) for pair in pairs for method in METHODS]
        found += [
            (name, method, epsilon, OTHERS[name][1], seed)
            for name, epsilon, method in product(OTHERS, (inf, 10.0, EPSILON), BESIDE)
        ]
    claims = ((MAIN, SAMPLES), (PAPER, PAPER_SAMPLES))
    found += [
        (name, method, BUDGET, samples, seed)
        for seed, (name, samples), method in product(range(3), claims, CLAIMS)
    ]
    return list(dict.fromkeys(found))


def words(setting: str, method: str, epsilon: float, samples: int, seed: int) -> list[str]:
    """Return the overrides of a run, without the folder of its data."""
    experiment = "dcfl_mnist" if setting == PAPER else "private_communities"
    found = [f"experiment={experiment}", *EVERY[method], f"seed={seed}"]
    found += [f"population.train_samples={samples}", f"client.batch_size={samples // PARTS}"]
    found += [f"privacy.epsilon={epsilon}", "strategy.participation=1.0"]
    found.append(f"graph.contrast={'contrast' in method}".lower())  # runs are without by default
    if setting == PAPER:
        return [*found, *OF_PAPER]
    if "flic" not in method:
        found.append("~strategy.cluster_round")
    return found if setting == MAIN else [*found, *OTHERS[setting][0]]


def noise_share(multiplier: float, batch: int, parameters: int) -> float:
    """Return the norm of the noise of one round beside the largest signal of one round.

    multiplier * sqrt(d) / (B * sqrt(T)), with d parameters, batches of B samples and T steps: the
    noise of T steps adds up to learning rate * clip * multiplier * sqrt(T d) / B, the gradients to
    at most learning rate * clip * T.
    """
    return multiplier * sqrt(parameters) / (batch * sqrt(STEPS))


def group_share(vectors: np.ndarray) -> float:
    """Return the share of the largest signal that tells the groups of clients apart.

    `vectors` (n, d) are the updates of clients in order of their ids, summed up to the clustering,
    less their common drift; client i is in group i modulo GROUPS. The share is
    `sqrt(mean_g |m_g - m|^2) / LARGEST`, with m_g the mean of group g and m that of all.
    """
    means = np.stack([vectors[group::GROUPS].mean(axis=0) for group in range(GROUPS)])
    apart = means - vectors.mean(axis=0)
    return float(np.sqrt((apart**2).sum(axis=1).mean())) / LARGEST


def mean_cosine(share: float, noise: float) -> float:
    """Return the mean cosine of two clients of a group, `c = r f^2 / (r f^2 + n^2)`, in [0, 1].

    r = CLUSTERED rounds are summed; f is `group_share`, n is `noise_share`. 0 if both are 0.
    """
    signal = CLUSTERED * share**2
    return signal / (signal + noise**2) if signal else 0.0
