"""The page and the figure of benchmarks/private_communities.py."""

from collections.abc import Sequence
from itertools import product
from math import inf, sqrt

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from private_cells import (
    BUDGET,
    CLAIM,
    CLAIMS,
    EPSILON,
    EPSILONS,
    MAIN,
    METHODS,
    OTHERS,
    PAPER,
    PAPER_SAMPLES,
    PARTS,
    SAMPLES,
    SEEDS,
    SIZES,
    Cell,
    cells,
    mean_cosine,
    noise_share,
)  # fmt: skip
from results import Found, by_case
from table import REPO, header, row

from fl_app.report.style import SETTINGS

FIGURE = REPO / "docs" / "figures" / "private_communities.png"
HEAD = """# Communities under DP-SGD

Written by `benchmarks/private_communities.py --data <data>`, from runs of
`experiment=private_communities`: MNIST, 12 clients in three groups that swap two digits each, one
hidden layer of 32 units, 20 rounds in which all clients train, DP-SGD with batches of a tenth of a
client's samples. Epsilon is that of the whole run of each client at delta 1e-5. FLIC clusters after
round 10; `contrast` is `graph.contrast=true`. IFCA's clients choose by noisy losses. Accuracy is
the mean over the clients.
"""
ABOUT_NOISE = f"""`noise` is the norm of a round's noise divided by the largest signal of a round.
`c sqrt(d)` is what the theory below predicts for `{CLAIM}`, from this noise and from the share of
the signal that tells the groups apart, which is measured in the runs without noise."""
ABOUT_CLAIM = f"""Augello et al., PerCom Workshops 2023, table I: DCFL 0.72, CFL 0.64, FedAvg 0.54
with an epsilon of 10. `{PAPER}`: {PAPER_SAMPLES:,} samples a client, 14 clients and five newcomers,
labels by Dirichlet(1), four rotations, two clients that drift every ten of 60 rounds. What differs
from the paper: MNIST for EMNIST, one hidden layer, and DP-SGD, since hiding whole updates leaves
all methods [at chance](dcfl_private_run.md)."""
MARGIN = 0.002
ABOUT_ORDER = f"""The table tells why. With {SAMPLES:,} samples and no drift, both methods
find exactly the groups, and DCFL has nothing to add to CFL. With {PAPER_SAMPLES:,} samples, labels
that also differ within a group, and drift, CFL splits nobody under this noise, so that it is
FedAvg. DCFL clusters whatever it sees: its communities are the groups in part, and that helps. With
contrast, which asks of similarities to exceed the noise, neither method splits."""
ABOUT_OTHERS = """As above, with clients in three groups that rotate their images, that have one
distribution of labels each, or with other images; of CIFAR-10 there are 6,000 images, so that a
client has 450."""
THEORY = """
## Why it works, and where it must stop

In a round of T steps with batches of B samples, a client's update has a signal of at most
`learning rate * T * clip` and noise of norm `learning rate * sigma * clip * sqrt(T d) / B` with d
parameters and noise multiplier sigma. After r rounds the summed signal is r times, the summed noise
`sqrt(r)` times that of one round. Two clients of one group, less the drift of all, then have the
mean cosine `c = r s^2 / (r s^2 + n^2)`, with n the norm of one round's noise and s that of the
signal that differs between groups. The cosine of clients without a common signal varies by about
`1 / sqrt(d)`, so that `c sqrt(d)` tells by how much the groups exceed the noise. Where noise is
most of an update, it is about `r T (B f / sigma)^2 / sqrt(d)`, with f the share of s in the largest
signal:

- Samples help with their square: 45 times fewer make it 2,000 times smaller.
- Fewer parameters help, with their square root.
- A choice by losses, as of IFCA, has no such limit: the noise on a mean loss falls with the samples
  alone, whatever the number of parameters. It needs the number of communities.
- For a fixed epsilon of the run, sigma grows with `sqrt(r T)`: more rounds gain nothing. Only their
  sum matters, so a graph of one round has 1 / r of it.
"""


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def page(found: list[Found]) -> list[str]:
    """Return the main table, those of all methods and of other data, and what is missing."""
    known = by_case(found)
    lines = [HEAD, f"## Epsilon {EPSILON:g} for the run, {SAMPLES:,} samples a client", ""]
    lines += header("seed", "communities", "ARI", "accuracy before", "accuracy after")
    for seed in range(SEEDS):
        if each := known.get((MAIN, CLAIM, EPSILON, SAMPLES, seed)):
            scores = _number(each["before"]), _number(each["accuracy"])
            lines.append(row(seed, each["count"], _number(each["ari"], 2), *scores))
    lines += ["", "## Methods, budgets and samples", "", ABOUT_NOISE, ""]
    if found:
        draw(known)
        lines += [f"![ARI and accuracy against epsilon and samples](../figures/{FIGURE.name})", ""]
    lines += [*_table(known, [MAIN]), "", *_limits(known)]
    lines += ["", "## Other splits and data", "", ABOUT_OTHERS, "", *_table(known, OTHERS)]
    lines += ["", "## DCFL's claim", "", ABOUT_CLAIM, "", *_claims(known)]
    return [*lines, "", *_missing([case for case in cells() if case not in known]), THEORY]


def _table(known: dict[Cell, Found], settings: Sequence[str]) -> list[str]:
    lines = header("setting", "epsilon", "samples", "noise", "c sqrt(d)", "method", "seeds",
                   "communities", "ARI", "accuracy")  # fmt: skip
    for setting, method, epsilon, samples in dict.fromkeys(case[:4] for case in cells()):
        mine = (setting, method, epsilon, samples)
        some = {case[4]: each for case, each in known.items() if case[:4] == mine}
        if setting not in settings or not some:
            continue
        shares = _noise(setting, samples, some), _predicted(known, mine, some)
        told = f"{epsilon:g}", f"{samples:,}", *shares, method
        seeds = ", ".join(map(str, some))
        if refused := next((each["refused"] for each in some.values() if "refused" in each), None):
            lines.append(row(setting, *told, seeds, "", "", f"refused: {refused}"))
            continue
        lines.append(row(
            setting, *told, seeds, ", ".join(str(each["count"]) for each in some.values()),
            ", ".join(_number(each["ari"], 2) for each in some.values()),
            ", ".join(_number(each["accuracy"]) for each in some.values()),
        ))  # fmt: skip
    return lines


def _claims(known: dict[Cell, Found]) -> list[str]:
    """Return the table of the methods of DCFL's claim, with their mean over the seeds."""
    lines = header("setting", "method", "seeds", "communities", "ARI", "accuracy", "mean accuracy")
    means: dict[str, dict[str, float]] = {MAIN: {}, PAPER: {}}
    for (setting, samples), method in product(((MAIN, SAMPLES), (PAPER, PAPER_SAMPLES)), CLAIMS):
        mine = (setting, method, BUDGET, samples)
        some = {case[4]: each for case, each in known.items() if case[:4] == mine}
        if some:
            scores = [each["accuracy"] for each in some.values()]
            means[setting][method] = sum(scores) / len(scores)
            lines.append(row(
                setting, method, ", ".join(map(str, some)),
                ", ".join(str(each["count"]) for each in some.values()),
                ", ".join(_number(each["ari"], 2) for each in some.values()),
                ", ".join(map(_number, scores)), _number(means[setting][method]),
            ))  # fmt: skip
    orders = [f"- {setting}: {order(found)}" for setting, found in means.items() if found]
    holds = [setting for setting, found in means.items() if found and as_claimed(found)]
    verdict = (
        f"DCFL > CFL > FedAvg, each by more than {MARGIN} and with the same graph, holds in "
        f"{' and '.join(holds) or 'neither setting'}."
    )
    return [*lines, "", "The order of the means:", "", *orders, "", verdict, ABOUT_ORDER]


def as_claimed(means: dict[str, float]) -> bool:
    """Whether DCFL > CFL > FedAvg by more than MARGIN, with or without contrast."""
    fedavg = means.get("fedavg", inf)
    pairs = [
        (means.get(f"dcfl{graph}", -inf), means.get(f"cfl_clusters{graph}", inf))
        for graph in ("", ", contrast")
    ]
    return any(dcfl > cfl + MARGIN and cfl > fedavg + MARGIN for dcfl, cfl in pairs)


def order(means: dict[str, float]) -> str:
    """Return names by falling mean, joined by = where three digits are equal, else by >."""
    told, before = "", ""
    for name, mean in sorted(means.items(), key=lambda each: -each[1]):
        sign = "" if not told else " = " if _number(mean) == before else " > "
        told, before = f"{told}{sign}{name}", _number(mean)
    return told


def _limits(known: dict[Cell, Found]) -> list[str]:
    """Return from which prediction on the claimed method finds all groups, and up to which none."""
    seen: dict[float, list[float]] = {}
    for (setting, method, _, samples, _), each in known.items():
        share = _share(known, setting)
        if method == CLAIM and each.get("noise") and each["ari"] is not None and share:
            predicted = _exceeds(setting, samples, each["noise"], share)
            seen.setdefault(predicted, []).append(each["ari"])
    good = min((c for c in seen if all(min(seen[e]) == 1 for e in seen if e >= c)), default=inf)
    bad = max((c for c in seen if all(max(seen[e]) == 0 for e in seen if e <= c)), default=0.0)
    return [
        f"Of {sum(map(len, seen.values()))} runs of `{CLAIM}` with noise, in this table and the",
        f"next, all with `c sqrt(d)` of at least {good:.1f} find exactly the groups, those with at "
        f"most {bad:.1f}",
        f"find none, and the {sum(len(seen[c]) for c in seen if bad < c < good)} between them find "
        "some or none.",
    ]


def _share(known: dict[Cell, Found], setting: str) -> float | None:
    """Return the mean share of the signal that tells the groups of a setting apart."""
    found = [
        each["share"] for case, each in known.items() if case[0] == setting and "share" in each
    ]
    return sum(found) / len(found) if found else None


def _exceeds(setting: str, samples: int, multiplier: float, share: float) -> float:
    """Return `c sqrt(d)`."""
    parameters = _parameters(setting)
    noise = noise_share(multiplier, samples // PARTS, parameters)
    return mean_cosine(share, noise) * sqrt(parameters)


def _predicted(
    known: dict[Cell, Found], mine: tuple[str, str, float, int], some: dict[int, Found]
) -> str:
    setting, method, _, samples = mine
    multiplier = next((each.get("noise") for each in some.values()), None)
    share = _share(known, setting)
    if method != CLAIM or multiplier is None or share is None:
        return ""
    return f"{_exceeds(setting, samples, multiplier, share):.1f}"


def _parameters(setting: str) -> int:
    return OTHERS[setting][2] if setting in OTHERS else 25_450


def _noise(setting: str, samples: int, some: dict[int, Found]) -> str:
    multiplier = next((each.get("noise") for each in some.values()), None)
    if multiplier is None:
        return ""
    return f"{noise_share(multiplier, samples // PARTS, _parameters(setting)):.2f}"


def draw(known: dict[Cell, Found]) -> None:
    """Draw mean ARI and accuracy of each method against epsilon, and against samples."""
    by_epsilon = [(f"{each:g}", (each, SAMPLES)) for each in EPSILONS]
    by_size = [(f"{each:,}", (EPSILON, each)) for each in SIZES]
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        figure = Figure((10, 6.4), layout="constrained")
        axes = figure.subplots(2, 2, sharey="row", sharex="col")
        for upright, name in enumerate(("ari", "accuracy")):
            for across, points in enumerate((by_epsilon, by_size)):
                _draw(axes[upright][across], known, points, name)
        axes[0][0].set_ylabel("adjusted Rand index")
        axes[1][0].set_ylabel("accuracy")
        axes[1][0].set_xlabel(f"epsilon of the run, {SAMPLES:,} samples a client")
        axes[1][1].set_xlabel(f"samples a client, epsilon {EPSILON:g}")
        figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        figure.savefig(FIGURE, dpi=120)


def _draw(
    axis: Axes, known: dict[Cell, Found], points: Sequence[tuple[str, tuple[float, int]]], name: str
) -> None:
    axis.set_xticks(range(len(points)), [told for told, _ in points])
    axis.set_ylim(-0.2, 1.05)
    for number, method in enumerate(METHODS):
        drawn = []
        for place, (_, pair) in enumerate(points):
            some = [known.get((MAIN, method, *pair, seed)) for seed in (0, 1)]
            values = [each[name] for each in some if each and each[name] is not None]
            if values:
                drawn.append((place, sum(values) / len(values)))
        x, y = zip(*drawn, strict=True) if drawn else ((), ())
        style = "-" if "contrast" in method else "--"
        axis.plot(x, y, style, marker="osv^DPX"[number], alpha=0.85, label=method)


def _missing(cases: list[Cell]) -> list[str]:
    """Return a line for every setting, budget and number of samples that is not measured whole."""
    rest: dict[tuple[str, float, int], dict[int, list[str]]] = {}
    for setting, method, epsilon, samples, seed in cases:
        rest.setdefault((setting, epsilon, samples), {}).setdefault(seed, []).append(method)
    lines = ["Not measured yet:", ""] if rest else []
    for (setting, epsilon, samples), by_seed in rest.items():
        seeds = (f"seed {seed}: {'; '.join(names)}" for seed, names in by_seed.items())
        lines.append(f"- {setting}, epsilon {epsilon:g}, {samples:,} samples: {', '.join(seeds)}")
    return lines
