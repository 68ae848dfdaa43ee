"""Every method with and without contrast, without privacy; writes docs/results/contrast_methods.md.

    .venv/bin/python benchmarks/contrast_methods.py

All populations that split digits, every method whose graph can have contrast.
docs/results/contrast_methods.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

import shutil
import warnings
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from results import Found, by_case, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "contrast_methods.md"
CLIENTS, ROUNDS, AFTER, SEEDS = 12, 20, 10, 3
SETTINGS = (
    "data=digits", f"population.clients={CLIENTS}", "population.train_samples=100",
    "population.test_samples=25", "network=mlp", "network.hidden=[32]", "client.epochs=2",
    "client.batch_size=20", "client.learning_rate=0.05", f"rounds={ROUNDS}",
    "strategy.participation=1.0", f"records.evaluate_every={ROUNDS}",
    "records.checkpoint_every=1000", "graph.look_ahead_every=0",
)  # fmt: skip
POPULATIONS = {
    "three label swaps": ("label_swap", "groups=3"),
    "four rotations": ("rotation", "groups=4"),
    "four rotations, labels of Dirichlet 1": ("dirichlet_rotation", "groups=4"),
    "three label distributions of Dirichlet 0.5": ("dirichlet", "groups=3"),
    "a majority class each": ("majority_class", "train_samples=60", "test_samples=15"),
    "clients with noisy images": ("noise",),
    "half of the clients alike": ("half_iid",),
    "some classes each": ("non_iid",),
    "three label swaps, minus_grad": ("label_swap", "groups=3"),
    "no groups": ("iid",),
    "no groups, labels of Dirichlet 0.5": ("dirichlet",),
    "no groups, unequal samples": ("quantity_skew",),
    "no groups, unequal samples and noise": ("quantity_skew",),
}
NOISE = {
    "no groups, unequal samples and noise": (
        "privacy=sample_dp", "privacy.epsilon=null", "privacy.noise_multiplier=1.0",
    ),
}  # fmt: skip
"""Populations that train with DP-SGD, so that clients with few samples have more noise."""
ATTACKS = {"three label swaps, minus_grad": ("attack=minus_grad", "attack.share=0.3")}
"""Populations of which some clients send minus their update."""
METHODS = {
    "flic": (f"strategy.cluster_round={AFTER}",),
    "late": (f"strategy.cluster_round={AFTER}",),
    "hierarchical": (f"strategy.cluster_round={AFTER}",),
    "cfl_clusters": (),
    "communities": (),
    "dcfl": (),
}
CONTRAST = (False, True)
LESS = 0.01
"""A mean adjusted Rand index or accuracy that is lower by more than this is a loss."""
HEAD = f"""# Every method with and without contrast

Written by `benchmarks/contrast_methods.py`: digits, {CLIENTS} clients of 100 samples (a mean where
the population gives clients different numbers), {ROUNDS} rounds in which all train, no privacy
except DP-SGD where noise is added.
Methods that cluster once do so after round {AFTER}. Each cell is without contrast -> with contrast,
the mean over those of the seeds 0 to {SEEDS - 1} that are measured: the missing ones stand at the
end. With `minus_grad` a third of the clients sends minus its update. **Bold**: contrast loses more
than {LESS} of it.
`by_column` and `own` split by columns and files of a user, which digits do not have.
"""


def measure(seed: int, population: str, method: str, contrast: bool, *, out: Path) -> Found:
    """Run one federation and return its communities and accuracy."""
    name, *given = POPULATIONS[population]
    words = [*SETTINGS, f"population={name}", *(f"population.{each}" for each in given)]
    words += [f"strategy={method}", *METHODS[method], f"seed={seed}"]
    words += ATTACKS.get(population, ()) + NOISE.get(population, ())
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = run([*words, f"graph.contrast={contrast}".lower()], folder, app)
    last = records[-1]
    groups = last["communities"] or {"count": 1, "ari": None}
    return {
        "count": groups["count"],
        "ari": groups["ari"], "accuracy": last["accuracy"]["mean"],
        "recall": (last["attack"] or {}).get("recall"),
    }  # fmt: skip


def cases() -> list[tuple[int, str, str, bool]]:
    """Return what is measured, first one seed of every method, and every seed of the first."""
    whole = list(product(range(SEEDS), POPULATIONS, METHODS, CONTRAST))
    return sorted(whole, key=lambda case: case[0] > 0 and case[2] != next(iter(METHODS)))


def page(found: Sequence[Found]) -> list[str]:
    """Return a table for each of communities, ARI and accuracy, and where contrast never loses."""
    known = by_case(found)
    lines, lost = [HEAD], dict[str, list[str]]()
    for title, key, digits in (
        ("Adjusted Rand index", "ari", 2), ("Accuracy", "accuracy", 3), ("Communities", "count", 1),
        ("Malicious clients found", "recall", 2),
    ):  # fmt: skip
        lines += [f"## {title}", "", *header("population", *METHODS)]
        for population in ATTACKS if key == "recall" else POPULATIONS:
            cells = []
            for method in METHODS:
                before, after = _pairs(known, population, method, key)
                loses = key != "count" and bool(before) and mean(after) < mean(before) - LESS
                if loses:
                    lost.setdefault(method, []).append(f"{population} ({title.lower()})")
                cells.append(_cell(before, after, digits, loses=loses))
            lines.append(row(population, *cells))
        lines.append("")
    missing = [case for case in cases() if case not in known]
    lines += ["## Where contrast loses", ""]
    lines += [f"- {name}: {'; '.join(lost.get(name, ['nowhere']))}" for name in METHODS]
    if missing:
        lines += ["", "Not measured yet, and not in the means:", ""]
    for method in METHODS:
        left = [case for case in missing if case[2] == method]
        if left:
            seeds = ", ".join(str(seed) for seed in sorted({case[0] for case in left}))
            lines.append(f"- {method}: {len(left)} runs of the seeds {seeds}")
    return lines


def _pairs(
    by_case: dict[tuple[Any, ...], Found], population: str, method: str, key: str
) -> tuple[list[float], list[float]]:
    """Return the values without and with contrast of the seeds that have both."""
    before, after = list[float](), list[float]()
    for seed in range(SEEDS):
        pair = [by_case.get((seed, population, method, contrast)) for contrast in CONTRAST]
        values = [None if each is None else each[key] for each in pair]
        if values[0] is not None and values[1] is not None:
            before.append(values[0])
            after.append(values[1])
    return before, after


def _cell(before: list[float], after: list[float], digits: int, *, loses: bool) -> str:
    if not before:
        return ""
    text = f"{mean(before):.{digits}f} -> {mean(after):.{digits}f}"
    return f"**{text}**" if loses else text


def main() -> None:
    """Run what is missing and write the page."""
    write_page(str(__doc__), PAGE, cases, measure, page)


if __name__ == "__main__":
    main()
