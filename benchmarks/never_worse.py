"""Clustering with and without the fallback, beside one model; writes docs/results/never_worse.md.

    .venv/bin/python benchmarks/never_worse.py --data <folder with MNIST>

docs/results/never_worse.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from results import Found, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "never_worse.md"
QUIET = ("graph.look_ahead_every=0", "records.checkpoint_every=1000")
MNIST = ("data=mnist", "network=small_cnn")
HUGE = (
    *MNIST, "population.draw=replacement", "population.train_samples=20",
    "population.test_samples=10", "records.evaluate_at_most=500", "records.evaluate_every=5",
    "rounds=40", "strategy.participation=0.01",
)  # fmt: skip
"""As it was seen: a hundredth of the clients a round, clustered after round 10."""
SMALL = (
    *MNIST, "population.clients=30", "population.train_samples=300", "population.test_samples=100",
    "rounds=24", "records.evaluate_every=6", "client.epochs=2", "client.batch_size=32",
)  # fmt: skip
DIGITS = (
    "data=digits", "network=small_cnn", "population.clients=12", "population.train_samples=100",
    "population.test_samples=28", "rounds=24", "records.evaluate_every=4", "client.epochs=3",
    "client.batch_size=20", "client.learning_rate=0.1",
)  # fmt: skip
PRIVATE = (
    "data=mnist", "network=mlp", "network.hidden=[32]", "population.clients=12",
    "population.train_samples=4500", "population.test_samples=500", "rounds=20",
    "client.batch_size=450", "client.learning_rate=0.5", "client.epochs=1",
    "records.evaluate_every=20", "strategy.participation=1.0", "privacy=sample_dp",
    "privacy.epsilon=2",
)  # fmt: skip
"""As in experiment=private_communities."""
FEW = (
    *MNIST, "population.clients=12", "population.train_samples=100", "population.test_samples=50",
    "rounds=20", "records.evaluate_every=5", "client.epochs=2", "client.batch_size=20",
)  # fmt: skip
FOUR = (
    "network=small_cnn", "data=digits", "population=label_swap", "population.groups=2",
    "population.clients=4", "population.train_samples=100", "population.test_samples=28",
    "rounds=24", "records.evaluate_every=4", "client.epochs=3", "client.batch_size=20",
    "client.learning_rate=0.1", "strategy.participation=1.0",
)  # fmt: skip
"""Two groups of two clients, which are too few for a test over the clients of each."""
MIXED = (
    "data=digits", "network=mlp", "population=label_swap", "population.groups=3",
    "population.clients=12", "population.train_samples=100", "population.test_samples=25",
    "rounds=40", "records.evaluate_every=8", "client.learning_rate=0.1",
    "strategy.participation=1.0",
)  # fmt: skip
"""As on the page of FedEM and FedRC, which need more rounds than others."""
NOISY = (
    "data=digits", "network=mlp", "population=noise", "population.clients=15", "client.epochs=1",
    "rounds=40", "records.evaluate_every=8", "strategy.participation=0.5",
)  # fmt: skip
"""As on the page of FedGWC, whose cohorts must change."""
DRIFTING = (
    "data=digits", "network=mlp", "population=iid", "population.clients=8",
    "population.train_samples=100", "population.test_samples=30", "client.epochs=2",
    "client.learning_rate=0.1", "strategy.participation=1.0", "rounds=24",
    "records.evaluate_every=4", "population.dynamics.drift=labels",
    "population.dynamics.drifters=5", "population.dynamics.drift_rounds=[9,17]",
)  # fmt: skip
"""As on the page of FedDrift."""
SWAPS = ("population=label_swap", "population.groups=4")
ALIKE = ("population=iid",)
PART, LESS = ", two fifths a round", ", three tenths a round"
UNEQUAL = ("population=quantity_skew",)
CASES = {
    "2,000 clients, 3 local epochs": (
        *HUGE, *SWAPS, "population.clients=2000", "client.epochs=3"),
    "20,000 clients, 1 local epoch": (
        *HUGE, *SWAPS, "population.clients=20000", "client.epochs=1"),
    "20,000 clients, 3 local epochs": (
        *HUGE, *SWAPS, "population.clients=20000", "client.epochs=3"),
    "12 clients of digits, no groups": (*DIGITS, *ALIKE, "strategy.participation=1.0"),
    "12 clients of digits, 3 label swaps": (
        *DIGITS, "population=label_swap", "population.groups=3", "strategy.participation=1.0"),
    **{
        f"12 clients of digits, {name}{PART}": (*DIGITS, *words, "strategy.participation=0.4")
        for name, words in (
            ("no groups", ALIKE),
            ("unequal samples", UNEQUAL),
            ("3 label swaps", ("population=label_swap", "population.groups=3")),
        )
    },
    **{
        f"12 clients of MNIST, {name}{LESS}": (*FEW, *words, "strategy.participation=0.3")
        for name, words in (
            ("no groups", ALIKE),
            ("unequal samples", UNEQUAL),
            ("4 label swaps", SWAPS),
            ("4 rotations", ("population=rotation",)),
        )
    },
    "4 clients of digits, 2 label swaps": FOUR,
    "12 clients of digits, 3 label swaps, 40 rounds": MIXED,
    "15 clients of digits, every fourth with noise": NOISY,
    "8 clients of digits, labels drift": DRIFTING,
    "30 clients of MNIST, no groups": (*SMALL, *ALIKE, "strategy.participation=0.5"),
    "30 clients of MNIST, 4 label swaps": (*SMALL, *SWAPS, "strategy.participation=0.5"),
    "12 clients of MNIST, no groups, epsilon 2": (*PRIVATE, *ALIKE),
    "12 clients of MNIST, 3 label swaps, epsilon 2": (
        *PRIVATE, "population=label_swap", "population.groups=3"),
}  # fmt: skip
LARGE = tuple(list(CASES)[:3])
NOISE = "15 clients of digits, every fourth with noise"
FORTY = "12 clients of digits, 3 label swaps, 40 rounds"
MEDIUM = ("30 clients of MNIST, no groups", "30 clients of MNIST, 4 label swaps")
LATE = {"flic": 10, "late": 10, "hierarchical": 10, "flux": 10}
"""The rounds after which methods cluster once."""
METHODS = (
    "flic", "late", "hierarchical", "cfl_clusters", "communities", "dcfl", "pacfl", "flux",
)  # fmt: skip
CHOICES = ("ifca", "feddrift", "fedem", "fedrc")
"""Methods whose clients choose or mix models, so that trials have rounds that alternate."""
MIXTURES = ("fedem", "fedrc")
WORDS = {
    "pacfl": ("strategy.signature=classes", "strategy.threshold=20"),
    "feddrift": ("strategy.start=own",),
}
"""Settings of methods with which they can find groups that are there from the start."""
PARTS = tuple(case for case in CASES if case.endswith((PART, LESS)))
SMALL_DIGITS = tuple(
    case for case in CASES if CASES[case][: len(DIGITS)] == DIGITS and case not in PARTS
)
HIDDEN = tuple(list(CASES)[-2:])
CONTRAST = (HIDDEN[1], "flic")
"""The federation and method with graph.contrast=true; without it, FLIC finds nothing there."""
ONLY = dict.fromkeys(LARGE, ("flic",)) | dict.fromkeys(MEDIUM, ("flic", "cfl_clusters"))
ONLY |= {HIDDEN[0]: ("late",), HIDDEN[1]: ("flic", "late")}
ONLY |= dict.fromkeys(SMALL_DIGITS, (*METHODS, *CHOICES))
ONLY |= {c: ("communities", "dcfl", *["pacfl"] * c.endswith(PART)) for c in PARTS}
ONLY |= {
    "4 clients of digits, 2 label swaps": ("flic", "late", "communities"),
    FORTY: MIXTURES,
    NOISE: ("fedgwc", "ifca"),
    "8 clients of digits, labels drift": ("feddrift", "ifca"),
}
"""The methods that are measured."""
POOLED = (*SMALL_DIGITS, *PARTS, FORTY, NOISE, *MEDIUM)
FEWEST_SEEDS = 3
"""The number of seeds from which a standard error is given."""
SEEDS = dict.fromkeys((*SMALL_DIGITS, NOISE), 8) | dict.fromkeys(MEDIUM, 3)
SEEDS |= dict.fromkeys(PARTS, 4) | {LARGE[0]: 4, FORTY: 4, "4 clients of digits, 2 label swaps": 8}
SEEDS |= {name: 8 for name in PARTS if "no groups" in name}
FEWER = 4
"""The number of seeds of a case, one for others, and of methods that rarely split or take long."""
HEAD = """# Never worse than one model

Written by `benchmarks/never_worse.py --data <data>`. Accuracy is the mean over the clients of the
last evaluation, each with the model that it uses. `one model` is FedAvg with the same settings;
`without` and `with` are `strategy.fallback=false` and `true`; by default IFCA, FedDrift, FedEM,
FedRC and runs with an epsilon are `without`, and the others `with`. FLIC, late, hierarchical and
FLUX cluster after round 10, CFL, communities and DCFL whenever their conditions hold. Cells are
means over the seeds.
A difference is the mean of the differences of each seed, ± its standard error: within two of these
it can be luck. The communities are those at the end, the ARI is without the fallback, the verdicts
are those of all trials: see [the fallback](../methods/index.md#the-fallback-to-one-model).

IFCA, FedDrift, FedEM and FedRC are judged in rounds that alternate. PACFL compares classes, with a
threshold of 20 degrees, and FedDrift starts with a model for each client, except where labels
drift. FedEM and FedRC have as many components of the same network as there are groups, or two.
Cells were measured on different machines, on which the same run can differ.

In a trial clients make as many steps as without one, so that a split that is kept is as good as
without the fallback. With communities, DCFL and PACFL every other client of a community trains the
common model in a round of the trial, and with DCFL right answers decide. Where two fifths or three
tenths of the clients train in a round, nobody takes turns. There the models of communities and DCFL
are means with stale ones of other clients, which lag behind one model; with the fallback the stale
ones follow their communities, which are found from the fifth or seventh round on
(`strategy.catch_up`). FedEM and FedRC lose rounds to the trial, and with some seeds still learn
after 40.

With noise, the models of IFCA are of no use, and are undone with all seeds. What it loses until
then is regained slowly: on average it ends a little below one model, by about the standard error.
See [trials in rounds that alternate](../methods/index.md#trials-in-rounds-that-alternate).

The large federations are MNIST with 20 samples a client, drawn with replacement, four groups that
swap labels, and a hundredth of the clients a round; 500 clients evaluate. When the clients are
clustered, a tenth of them have trained, and only these train their communities' models. After that
clustering was undone, twice as many have trained, and a second one follows in round 25 or 30.

The rows with an epsilon have `privacy=sample_dp` and 4,500 samples a client, which are clustered
after round 10 of 20, by FLIC with `graph.contrast=true`. With the fallback a tenth of the budget is
for the losses.
"""


def measure(case: str, method: str, fallback: bool, seed: int, *, data: Path, out: Path) -> Found:
    """Run one federation; return its communities, accuracies, verdicts and cost."""
    words = [*QUIET, *_networks(case, method), f"strategy={method}", f"seed={seed}"]
    words += () if CASES[case] == DRIFTING else WORDS.get(method, ())
    if any(each.startswith("data=mnist") for each in words):
        words.append(f"data.root={data}")
    if method != "fedavg":
        words.append(f"strategy.fallback={fallback}".lower())
    if method in LATE:
        words.append(f"strategy.cluster_round={LATE[method]}")
    if (case, method) == CONTRAST:
        words.append("graph.contrast=true")
    records = run(words, out / "run", app)
    last = records[-1]
    kinds = [event["kind"] for record in records for event in record["events"]]
    return {
        "accuracy": {r["round"]: r["accuracy"]["mean"] for r in records if r["accuracy"]},
        "count": last["communities"]["count"] if last["communities"] else 1,
        "ari": last["communities"]["ari"] if last["communities"] else None,
        "verdicts": [kind for kind in kinds if kind in ("kept", "undone", "fell back")],
        "gigabytes": sum(r["bytes"]["down"] + r["bytes"]["up"] for r in records) / 1e9,
        "seconds": sum(record["time"]["training_s"] for record in records),
    }


def _networks(case: str, method: str) -> tuple[str, ...]:
    """Return the words of a case, with a mixture of its networks for a method that needs one."""
    words = CASES[case]
    if method not in MIXTURES:
        return words
    (name,) = (each.removeprefix("network=") for each in words if each.startswith("network="))
    of = f"network.of=fl_app.client.networks.{name}"
    own = () if name == "mlp" else ("~network.settings.hidden", "+network.settings.width=1.0")
    rest = [each for each in words if not each.startswith("network=")]
    return (*rest, "network=mixture", of, *own)


def _seeds(case: str, method: str) -> range:
    few = case in SMALL_DIGITS and method in ("feddrift", *MIXTURES)
    return range(FEWER if few else SEEDS.get(case, 1))


def wanted() -> list[tuple[str, str, bool, int]]:
    """Return what is measured."""
    found = []
    for case in CASES:
        for method, judged in [("fedavg", False), *product(ONLY[case], (False, True))]:
            found += [(case, method, judged, seed) for seed in _seeds(case, method)]
    return found


def _some(found: list[Found], *key: object) -> dict[int, Found]:
    """Return the results of a case, a method and a fallback, or of its start, by seed."""
    return {each["case"][-1]: each for each in found if each["case"][: len(key)] == list(key)}


def _last(each: Found) -> float:
    return float(list(each["accuracy"].values())[-1])


def _mean(values: Sequence[float] | np.ndarray, sign: str = "") -> str:
    """Return the mean, and for at least three values its standard error."""
    mean = f"{np.mean(values):{sign}.3f}"
    if len(values) < FEWEST_SEEDS:
        return mean
    return f"{mean} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


def _numbers(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f}".removesuffix(".0")


def _row(found: list[Found], case: str, method: str) -> str | None:
    """Return the row of a method, of the seeds that were measured both with and without."""
    one, off, on = (
        _some(found, case, *key)
        for key in (("fedavg", False), (method, False), (method, True))
    )  # fmt: skip
    seeds = [seed for seed in _seeds(case, method) if seed in off and seed in on and seed in one]
    if not seeds:
        return None
    ari = [off[s]["ari"] for s in seeds if off[s]["ari"] is not None]
    kinds = Counter(kind for s in seeds for kind in on[s]["verdicts"] or ["no split"])
    return row(
        case, method, len(seeds),
        *(f"{np.mean([_last(some[s]) for s in seeds]):.3f}" for some in (one, off, on)),
        _mean([_last(on[s]) - _last(off[s]) for s in seeds], "+"),
        _mean([_last(on[s]) - _last(one[s]) for s in seeds], "+"),
        " → ".join(_numbers([some[s]["count"] for s in seeds]) for some in (off, on)),
        f"{np.mean(ari):.2f}" if ari else "",
        ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        *(f"{np.mean([some[s]['gigabytes'] for s in seeds]):.2f}" for some in (off, on)),
    )  # fmt: skip


def _pooled(found: list[Found]) -> list[str]:
    """Return the differences of the usual federations, the mean over the methods of each seed.

    Methods whose trials have rounds that alternate are apart.
    """
    lines = ["", "## Methods of a federation together", "",
             *header("federation", "methods", "seeds", "with - without",
                     "with - one model")]  # fmt: skip
    for case, alternate in product(POOLED, (False, True)):
        one = _some(found, case, "fedavg", False)
        methods = [method for method in ONLY[case] if (method in CHOICES) == alternate]
        off, on = ([_some(found, case, m, judged) for m in methods] for judged in (False, True))
        seeds = sorted(set(one).intersection(*off, *on))
        if len(seeds) < FEWEST_SEEDS or len(methods) < 2:
            continue
        ours, theirs = ([[_last(each[s]) for each in some] for s in seeds] for some in (on, off))
        less = np.mean(np.subtract(ours, theirs), axis=1)
        beside = np.mean(ours, axis=1) - [_last(one[s]) for s in seeds]
        names = ", ".join(methods)
        lines.append(row(case, names, len(seeds), _mean(less, "+"), _mean(beside, "+")))
    return lines


def page(found: list[Found]) -> list[str]:
    """Return the tables, and the curves of the large federations."""
    lines = [HEAD, *header("federation", "method", "seeds", "one model", "without", "with",
                           "with - without", "with - one model", "communities", "ARI", "verdicts",
                           "GB without", "GB with")]  # fmt: skip
    missing: list[str] = []
    for case in CASES:
        for method in ONLY[case]:
            made = _row(found, case, method)
            lines += [made] if made else []
            missing += [] if made else [f"{method} on {case}"]
    if missing:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    lines += _pooled(found)
    for case in LARGE:
        known = [_some(found, case, *key) for key in
                 (("fedavg", False), ("flic", False), ("flic", True))]  # fmt: skip
        if not all(0 in some for some in known):
            continue
        curves = [some[0] for some in known]
        lines += ["", f"## {case}: accuracy by round", "",
                  *header("round", "one model", "FLIC without", "FLIC with")]  # fmt: skip
        for now in curves[0]["accuracy"]:
            cells = [each["accuracy"].get(now) for each in curves]
            lines.append(row(now, *("" if each is None else f"{each:.3f}" for each in cells)))
    return lines


if __name__ == "__main__":
    write_page(__doc__, PAGE, wanted, measure, page, data=True)
