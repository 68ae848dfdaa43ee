"""Every method with its own graph, contrast and both; writes docs/results/contrast_methods.md.

    .venv/bin/python benchmarks/contrast_methods.py

All populations that split digits, every method whose graph can have contrast.
docs/results/contrast_methods.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from results import Found, by_case, read, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "contrast_methods.md"
CLIENTS, ROUNDS, AFTER = 12, 20, 10
SETTINGS = (
    "data=digits", f"population.clients={CLIENTS}", "population.train_samples=100",
    "population.test_samples=25", "network=mlp", "network.hidden=[32]", "client.epochs=2",
    "client.batch_size=20", "client.learning_rate=0.05", f"rounds={ROUNDS}",
    "strategy.participation=1.0", f"records.evaluate_every={ROUNDS}",
    "records.checkpoint_every=1000", "graph.look_ahead_every=0",
)  # fmt: skip
ASSUMED = (f"attack.cohort={CLIENTS}", "attack.attackers=4")
OTHERS: dict[str, tuple[str, ...]] = {
    "alie": ASSUMED, "backdoor": (), "full_knowledge": ASSUMED, "gaussian": (), "ipm": (),
    "label_flip": (), "noisy": (), "random": (), "scaled": (), "zero": (),
}  # fmt: skip
"""Attacks beside `minus_grad`, with what is not as by default."""
POPULATIONS = {
    "three label swaps": ("label_swap", "groups=3"),
    "four rotations": ("rotation", "groups=4"),
    "four rotations, labels of Dirichlet 1": ("dirichlet_rotation", "groups=4"),
    "three label distributions of Dirichlet 0.5": ("dirichlet", "groups=3"),
    "a majority class each": ("majority_class", "train_samples=60", "test_samples=15"),
    "a majority class each, 40 rounds": ("majority_class", "train_samples=60", "test_samples=15"),
    "clients with noisy images": ("noise",),
    "half of the clients alike": ("half_iid",),
    "some classes each": ("non_iid",),
    "three label swaps, minus_grad": ("label_swap", "groups=3"),
    "no groups": ("iid",),
    "no groups, labels of Dirichlet 0.5": ("dirichlet",),
    "no groups, unequal samples": ("quantity_skew",),
    "no groups, unequal samples and noise": ("quantity_skew",),
    **{f"three label swaps, {name}": ("label_swap", "groups=3") for name in OTHERS},
    "three label swaps, two fifths a round": ("label_swap", "groups=3"),
    "four rotations, two fifths a round": ("rotation", "groups=4"),
    "no groups, two fifths a round": ("iid",),
    "no groups, unequal samples, two fifths a round": ("quantity_skew",),
}
NOISE = {
    "no groups, unequal samples and noise": (
        "privacy=sample_dp", "privacy.epsilon=null", "privacy.noise_multiplier=1.0",
    ),
}  # fmt: skip
"""Populations that train with DP-SGD, so that clients with few samples have more noise."""
LONGER = {
    "a majority class each, 40 rounds": ("rounds=40", "records.evaluate_every=40"),
}
"""Populations with more rounds, so that a run does not end with the trial of its communities."""
ATTACKS = {
    f"three label swaps, {name}": (f"attack={name}", "attack.share=0.3", *given)
    for name, given in ({"minus_grad": ()} | OTHERS).items()
}
"""Populations of which some clients attack."""
PART = {name: ("strategy.participation=0.4",) for name in POPULATIONS if name.endswith("a round")}
"""Populations of which not all clients train in a round."""
METHODS = {
    "flic": (f"strategy.cluster_round={AFTER}",),
    "late": (f"strategy.cluster_round={AFTER}",),
    "hierarchical": (f"strategy.cluster_round={AFTER}",),
    "cfl_clusters": (),
    "communities": (),
    "dcfl": (),
}
SEEDS = dict.fromkeys(METHODS, 3) | {"flic": 6, "late": 6, "hierarchical": 6}
"""The number of seeds; more of those methods that have both graphs by default."""
BY_DEFAULT = [name for name in METHODS if SEEDS[name] == max(SEEDS.values())]
JUDGED = {*PART, *ATTACKS} - {"three label swaps, minus_grad"}
"""Populations that are measured with the fallback alone."""
FEW = {*LONGER, *JUDGED}
"""Populations that are measured with the methods that have both graphs by default alone."""
HOW = {
    False: ("graph.contrast=false",),
    True: ("graph.contrast=true",),
    "judged": ("graph.contrast=false", "fallback=auto"),
    "both": ("graph.contrast=both", "fallback=auto"),
}
"""What is compared, by its name in the results."""
How = bool | str
Pair = tuple[How, How]
PAIRS: tuple[Pair, ...] = ((False, True), ("judged", "both"))
COMPARED: dict[Pair, str] = {
    (False, True): "Where contrast loses",
    ("judged", "both"): "Where both lose, beside the method's own graph with the same fallback",
    (False, "both"): "Where both lose, beside the method's own graph as published",
    (True, "both"): "Where both lose, beside contrast",
}
AGAIN = range(6, 12)
"""Further seeds where a method that has both graphs by default has lost accuracy with these."""
LESS = 0.01
"""A mean adjusted Rand index or accuracy that is lower by more than this is a loss."""
HEAD = f"""# Every method with and without contrast

Written by `benchmarks/contrast_methods.py`: digits, {CLIENTS} clients of 100 samples (a mean where
the population gives clients different numbers), {ROUNDS} rounds (40 where the row says so) in which
all train unless the row says so, no privacy except DP-SGD where noise is added.
Methods that cluster once do so after round {AFTER}. Each cell has two pairs: without contrast ->
with contrast, both as published (`fallback=false`); and without contrast -> `graph.contrast=both`,
both with the fallback to one model (`fallback=auto`, the default). They are means over those of
seeds 0 to 2, and 0 to 5 for FLIC, late and hierarchical clustering, that are measured: the missing
ones stand at the end. These three have the last of the four by default; some populations are
measured with them alone, and some of these only with the fallback. Where an attack is named, a
third of the clients make it, and accuracy is that of the others; with `minus_grad` they send minus
their update. **Bold**: the second of a pair has lost more than {LESS}.
`by_column` and `own` split by columns and files of a user, which digits do not have.
"""
AGAIN_HEAD = """## Where the default has lost accuracy, with other seeds

Of so many cells some lose by luck. Those of the three methods above that lost with the fallback
were run with other seeds, which no choice has touched; the difference is ± its standard error.
"""


def measure(seed: int, population: str, method: str, how: How, *, out: Path) -> Found:
    """Run one federation and return its communities and accuracy."""
    name, *given = POPULATIONS[population]
    words = [*SETTINGS, f"population={name}", *(f"population.{each}" for each in given)]
    words += [f"strategy={method}", *METHODS[method], f"seed={seed}"]
    words += ATTACKS.get(population, ()) + NOISE.get(population, ())
    words += LONGER.get(population, ()) + PART.get(population, ())
    folder = out / "run"
    records = run([*words, *HOW[how]], folder, app)
    last = records[-1]
    groups, attack = last["communities"] or {"count": 1, "ari": None}, last["attack"] or {}
    return {
        "count": groups["count"],
        "ari": groups["ari"],
        "accuracy": attack.get("loyal_accuracy", last["accuracy"]["mean"]),
        "recall": attack.get("recall"),
    }  # fmt: skip


def cases() -> list[tuple[int, str, str, How]]:
    """Return what is measured, and at the end what has lost, with other seeds."""
    lost = _lost_by_default(by_case(read(PAGE.with_suffix(".jsonl"))))
    again = product(AGAIN, lost, PAIRS[1])
    return _planned() + [(seed, people, method, how) for seed, (people, method), how in again]


def _planned() -> list[tuple[int, str, str, How]]:
    """Return what is measured, first with the fallback, of the methods with most seeds."""
    whole = product(range(max(SEEDS.values())), POPULATIONS, METHODS, HOW)
    known = [
        case for case in whole
        if case[0] < SEEDS[case[2]]
        and (case[1] not in FEW or case[2] in BY_DEFAULT)
        and (case[1] not in JUDGED or isinstance(case[3], str))
    ]  # fmt: skip
    return sorted(known, key=lambda case: (case[2] not in BY_DEFAULT, isinstance(case[3], bool)))


def page(found: Sequence[Found]) -> list[str]:
    """Return a table for each of communities, ARI and accuracy, and what loses where."""
    known = by_case(found)
    lines, lost = [HEAD], dict[tuple[How, How], dict[str, list[str]]]()
    for title, key, digits in (
        ("Adjusted Rand index", "ari", 2), ("Accuracy", "accuracy", 3), ("Communities", "count", 1),
        ("Malicious clients found", "recall", 2),
    ):  # fmt: skip
        lines += [f"## {title}", "", *header("population", *METHODS)]
        for population in ATTACKS if key == "recall" else POPULATIONS:
            cells = [_cell(known, population, method, key, digits) for method in METHODS]
            lines.append(row(population, *cells))
            for method, pair in product(METHODS, COMPARED):
                if _loses(known, population, method, key, pair):
                    told = f"{population} ({title.lower()})"
                    lost.setdefault(pair, {}).setdefault(method, []).append(told)
        lines.append("")
    for pair, title in COMPARED.items():
        of = lost.get(pair, {})
        lines += [f"## {title}", ""]
        lines += [f"- {name}: {'; '.join(of.get(name, ['nowhere']))}" for name in METHODS]
        lines.append("")
    if lost_by_default := _lost_by_default(known):
        lines += [AGAIN_HEAD, *header("population", "method", "seeds", "own", "both", "both - own")]
        lines += [*(_again(known, *each) for each in lost_by_default), ""]
    return lines + _missing([case for case in cases() if case not in known])


def _lost_by_default(known: dict[tuple[Any, ...], Found]) -> list[tuple[str, str]]:
    """Return the populations and methods with both graphs by default that have lost accuracy."""
    every = product(POPULATIONS, BY_DEFAULT)
    return [each for each in every if _loses(known, *each, "accuracy", PAIRS[1])]


def _again(known: dict[tuple[Any, ...], Found], population: str, method: str) -> str:
    """Return a row with the accuracies of the further seeds."""
    before, after = _values(known, population, method, "accuracy", PAIRS[1], AGAIN)
    if len(before) < 2:
        return row(population, method, str(len(before)), "", "", "")
    each = [b - a for a, b in zip(before, after, strict=True)]
    change = f"{mean(each):+.3f} ± {stdev(each) / len(each) ** 0.5:.3f}"
    told = str(len(each)), f"{mean(before):.3f}", f"{mean(after):.3f}", change
    return row(population, method, *told)


def _missing(missing: Sequence[tuple[int, str, str, How]]) -> list[str]:
    lines = ["Not measured yet, and not in the means:", ""] if missing else []
    for method in METHODS:
        left = [case for case in missing if case[2] == method]
        if left:
            seeds = ", ".join(str(seed) for seed in sorted({case[0] for case in left}))
            lines.append(f"- {method}: {len(left)} runs of the seeds {seeds}")
    return lines


def _values(
    known: dict[tuple[Any, ...], Found], population: str, method: str, key: str, pair: Pair,
    seeds: Sequence[int] | None = None,
) -> tuple[list[float], list[float]]:  # fmt: skip
    """Return the values of a pair, of the seeds, those of every cell, that have both."""
    before, after = list[float](), list[float]()
    for seed in range(SEEDS[method]) if seeds is None else seeds:
        both = [known.get((seed, population, method, how)) for how in pair]
        values = [None if each is None else each[key] for each in both]
        if values[0] is not None and values[1] is not None:
            before.append(values[0])
            after.append(values[1])
    return before, after


def _loses(
    known: dict[tuple[Any, ...], Found], population: str, method: str, key: str, pair: Pair
) -> bool:
    """Whether the second of a pair has lost; a number of communities is no gain or loss."""
    before, after = _values(known, population, method, key, pair)
    return key != "count" and bool(before) and mean(after) < mean(before) - LESS


def _cell(
    known: dict[tuple[Any, ...], Found], population: str, method: str, key: str, digits: int
) -> str:
    found = []
    for pair in PAIRS:
        before, after = _values(known, population, method, key, pair)
        if before:
            text = f"{mean(before):.{digits}f} -> {mean(after):.{digits}f}"
            loses = _loses(known, population, method, key, pair)
            found.append(f"**{text}**" if loses else text)
    return "; ".join(found)


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page)
