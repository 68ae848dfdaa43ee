"""The page of attack_tables.py: what is measured, beside the figures of the papers."""

from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean, pstdev
from typing import Any, NamedTuple

from results import Found
from table import header, row


class Share(NamedTuple):
    """A share of attackers: further overrides, and the accuracy of FLIC in the paper."""

    overrides: tuple[str, ...]
    paper: float


THRESHOLD = 0.02
CFL, FLIC, WHY = "cfl", "flic", "why"
STRATEGIES = ("fedavg", "cfl")
ATTACKS = ("noisy", "gaussian", "label_flip", "none")
PAPER = {
    ("gaussian", "fedavg"): 0.098, ("gaussian", "cfl"): 0.932,
    ("noisy", "fedavg"): 0.969, ("noisy", "cfl"): 0.974,
    ("label_flip", "fedavg"): 0.913, ("label_flip", "cfl"): 0.974,
    ("none", "fedavg"): 0.975, ("none", "cfl"): 0.974,
}  # fmt: skip
"""Accuracy on MNIST, Sattler et al., ICASSP 2020, table 1, by attack and strategy."""
DATA = ("mnist", "fashion_mnist")
SHARES = {
    0.3: Share((), 0.95),
    0.4: Share((), 0.94),
    0.5: Share((), 0.91),
    0.6: Share(("strategy.cluster_round=50", "rounds=150"), 0.97),
}
"""Espinoza Castellon et al., IJCNN 2022, table 2."""
PROBES = {
    "150 samples in batches of 25": ("population.train_samples=150", "client.batch_size=25"),
    "150 samples in batches of 25, four epochs": (
        "population.train_samples=150",
        "client.batch_size=25",
        "client.epochs=4",
    ),
    "600 samples in batches of 25": ("client.batch_size=25",),
    "600 samples in batches of 100": (),
    "600 samples, pixels in [0, 1]": ("data.standardise=false",),
    "600 samples, learning rate 0.2": ("client.learning_rate=0.2",),
}
"""What differs from `experiment=byzantine_paper` in the runs that explain the noisy clients."""
PROBED = 20
"""Clients in these runs."""

HEAD = """# The papers' tables of attackers

Written by `benchmarks/attack_tables.py --data <data>`. Mean and standard deviation over the seeds;
in bf16, in one process, with a CNN of 105,866 parameters. `None` in place of an accuracy: all
models diverged. What is missing is measured when the command runs again.

## CFL, Sattler et al., ICASSP 2020, table 1

100 clients with the paper's 600 samples in batches of 100, 30 of them malicious, threshold 0.02.
What differs: 30 rounds of one epoch with a learning rate of 0.05, standardised pixels and the CNN
are ours, since we have no source for the paper's; nor have we one for its figures on Fashion-MNIST.
"""
HEAD_FLIC = """
## FLIC, Espinoza Castellon et al., IJCNN 2022, table 2

100 clients with 600 samples that send the negative of their update, C = 0.1, E = 1, B = 50;
clustered after round 200 of 300, with 60 attackers after round 50 of 150. `before` is the accuracy
of the loyal clients with one model, at the last evaluation before the clustering. What differs: the
CNN and a learning rate of 0.01 are ours.
"""
HEAD_WHY = f"""
## Why CFL tells noisy clients apart or does not

{PROBED} clients on MNIST, six of them noisy; CFL with a threshold that it never reaches, so that
all clients train in all rounds. Cosines of the updates of loyal clients, of noisy clients, and
across, and norms are means over pairs, clients and the last ten rounds; `alpha_cross` is their
mean over the same rounds and the least of all. CFL splits below {THRESHOLD}. `right` counts the
rounds in which the bipartition has exactly the noisy clients as its smaller part. Conditions on
norms are off, as in the paper; they could only prevent splits.

`alpha_cross` is the largest cosine across the parts, not their mean: it lies well above the mean in
every row, and further above the more pairs there are, so that the 100 clients of the table above
split later than 20. With 150 samples the mean across is hardly negative. The largest cosine stays
above the threshold, or, with four epochs, is about it, where the bipartition is mostly a wrong one.
With the paper's 600 samples it falls below with the right clients, in batches of either size. A
learning rate of 0.2 brings the mean closer to zero again. Pixels that are not standardised make the
attack stronger, since its noise is relative to them, and the training slower. One seed.
"""


def page(found: Sequence[Found]) -> list[str]:
    """Return the page of all results."""
    return [*_of_cfl(found), *_of_looks(found), *_of_flic(found)]


def spread(values: Iterable[float | None], digits: int = 3) -> str:
    """Return mean and deviation of the values; those that are None are counted as diverged."""
    given = list(values)
    known = [value for value in given if value is not None]
    if not known:
        return "None" if given else ""
    text = f"{mean(known):.{digits}f}"
    text += f" ± {pstdev(known):.{digits}f}" if len(known) > 1 else ""
    return text if len(known) == len(given) else f"{text} ({len(known)} of {len(given)})"


def _of_cfl(found: Sequence[Found]) -> list[str]:
    names = ("data", "attack", "strategy", "seeds", "accuracy", "of loyal clients", "detected",
             "loyal suspected", "first round with all detected", "paper, MNIST")  # fmt: skip
    lines = [HEAD, *header(*names)]
    for data, attack, strategy in product(DATA, ATTACKS, STRATEGIES):
        some = [each for each in found if each["case"][:-1] == [CFL, data, attack, strategy]]
        if not some:
            continue
        attacked = attack != "none"
        cells = [spread(each["accuracy"] for each in some)]
        for name, digits in (("loyal", 3), ("recall", 3), ("loyal_lost", 1)):
            cells.append(spread((each[name] for each in some), digits) if attacked else "")
        cleared = ", ".join(str(each["cleared"] or "never") for each in some) if attacked else ""
        paper = PAPER[attack, strategy] if data == "mnist" else ""
        lines.append(row(data, attack, strategy, len(some), *cells, cleared, paper))
    return lines


def _of_looks(found: Sequence[Found]) -> list[str]:
    names = ("setting", "loyal", "noisy", "across", "alpha_cross", "least", "first round below",
             "right", "norm of loyal", "of noisy", "of the mean")  # fmt: skip
    lines = [HEAD_WHY, *header(*names)]
    some = {each["case"][1]: each for each in found if each["case"][0] == WHY}
    probes = (probe for probe in PROBES if probe in some)
    return lines + [row(probe, *explained(some[probe]["looks"])) for probe in probes]


def explained(looks: Sequence[dict[str, Any]]) -> list[str]:
    """Return the cells of a run from what was seen in each round."""
    last = looks[-10:]

    def over(name: str) -> str:
        return f"{mean(each[name] for each in last):.3f}"

    right = [each for each in looks if each["caught"] == each["parted"] == each["attackers"]]
    below = (each["round"] for each in looks if each["alpha_cross"] < THRESHOLD)
    return [
        *map(over, ("loyal", "malicious", "across", "alpha_cross")),
        f"{min(each['alpha_cross'] for each in looks):.3f}",
        str(next(below, "never")),
        f"{len(right)} of {len(looks)}",
        *map(over, ("loyal_norm", "malicious_norm", "mean_norm")),
    ]


def _of_flic(found: Sequence[Found]) -> list[str]:
    names = ("attackers", "seeds", "before", "accuracy of loyal clients", "share in pure "
             "communities", "sizes of loyal communities", "paper, FLIC")  # fmt: skip
    lines = [HEAD_FLIC, *header(*names)]
    for share, given in SHARES.items():
        some = [each for each in found if each["case"][:2] == [FLIC, share]]
        if some:
            scores = [spread(each[name] for each in some) for name in ("before", "loyal", "pure")]
            sizes = "; ".join(", ".join(map(str, each["sizes"] or ())) for each in some)
            lines.append(row(f"{share:.0%}", len(some), *scores, sizes, f"{given.paper:.2f}"))
    return lines
