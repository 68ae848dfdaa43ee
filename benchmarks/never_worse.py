"""Clustering with and without the fallback, beside one model; writes docs/results/never_worse.md.

    .venv/bin/python benchmarks/never_worse.py --data <folder with MNIST>

docs/results/never_worse.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

import shutil
import warnings
from itertools import product
from pathlib import Path

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
MEDIUM = ("30 clients of MNIST, no groups", "30 clients of MNIST, 4 label swaps")
LATE = {"flic": 10, "late": 10}
"""The rounds after which methods cluster once."""
METHODS = ("flic", "late", "cfl_clusters", "communities", "dcfl", "pacfl")
CHOICES = ("ifca", "feddrift", "fedem", "fedrc")
"""Methods whose clients choose or mix models, so that trials have rounds that alternate."""
MIXTURES = ("fedem", "fedrc")
WORDS = {
    "pacfl": ("strategy.signature=classes", "strategy.threshold=20"),
    "feddrift": ("strategy.start=own",),
}
"""Settings of methods with which they can find groups that are there from the start."""
SMALL_DIGITS = tuple(case for case in CASES if CASES[case][: len(DIGITS)] == DIGITS)
HIDDEN = tuple(list(CASES)[-2:])
CONTRAST = (HIDDEN[1], "flic")
"""The federation and method with graph.contrast=true; without it, FLIC finds nothing there."""
ONLY = dict.fromkeys(LARGE, ("flic",)) | dict.fromkeys(MEDIUM, ("flic", "cfl_clusters"))
ONLY |= {HIDDEN[0]: ("late",), HIDDEN[1]: ("flic", "late")}
ONLY |= dict.fromkeys(SMALL_DIGITS, (*METHODS, *CHOICES))
ONLY |= {
    "12 clients of digits, 3 label swaps, 40 rounds": MIXTURES,
    NOISE: ("fedgwc", "ifca"),
    "8 clients of digits, labels drift": ("feddrift", "ifca"),
}
"""The methods that are measured."""
SEEDS = {(LARGE[0], "fedavg"): 2, (LARGE[0], "flic"): 2}
SEEDS |= {(SMALL_DIGITS[0], method): 3 for method in ("fedavg", "ifca", "feddrift")}
SEEDS |= {(SMALL_DIGITS[0], "communities"): 3, (SMALL_DIGITS[0], "fedem"): 2}
SEEDS |= {(SMALL_DIGITS[1], method): 5 for method in ("fedavg", "ifca")}
SEEDS |= {(NOISE, method): 6 for method in ("fedavg", "fedgwc", "ifca")}
"""The number of seeds, one for others."""
HEAD = """# Never worse than one model

Written by `benchmarks/never_worse.py --data <data>`. Accuracy is the mean over the clients of the
last evaluation, each with the model that it uses. `one model` is FedAvg with the same settings;
`without` and `with` are `strategy.fallback=false` and `true`. FLIC and late cluster after round 10,
CFL, communities and DCFL whenever their conditions hold. Each cell has a value for each seed. The
communities are those at the end, the ARI is without the fallback, the verdicts are those of the
trials: see [the fallback](../methods/index.md#the-fallback-to-one-model).

IFCA, FedDrift, FedEM and FedRC are judged in rounds that alternate. PACFL compares classes, with a
threshold of 20 degrees, and FedDrift starts with a model for each client, except where labels
drift. FedEM and FedRC have as many components of the same network as there are groups, or two.
Cells were measured on different machines, on which the same run can differ.

With noise, the models of IFCA are of no use, and are undone with all seeds. What it loses until
then is not regained: on average it ends a little below one model. See [trials in rounds that
alternate](../methods/index.md#trials-in-rounds-that-alternate).

The large federations are MNIST with 20 samples a client, drawn with replacement, four groups that
swap labels, and a hundredth of the clients a round; 500 clients evaluate. When the clients are
clustered, a tenth of them have trained, and only these train their communities' models.

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
    shutil.rmtree(out / "run", ignore_errors=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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


def wanted() -> list[tuple[str, str, bool, int]]:
    """Return what is measured."""
    found = []
    for case in CASES:
        pairs = [("fedavg", False), *product(ONLY[case], (False, True))]
        for method, judged in pairs:
            seeds = range(SEEDS.get((case, method), 1))
            found += [(case, method, judged, seed) for seed in seeds]
    return found


def _some(found: list[Found], *key: object) -> list[Found]:
    return [each for each in found if each["case"][: len(key)] == list(key)]


def _last(some: list[Found]) -> str:
    return ", ".join(f"{list(each['accuracy'].values())[-1]:.3f}" for each in some)


def page(found: list[Found]) -> list[str]:
    """Return the table, and the curves of the large federations."""
    lines = [HEAD, *header("federation", "method", "one model", "without", "with", "communities",
                           "ARI", "verdict", "GB without", "GB with")]  # fmt: skip
    missing: list[str] = []
    for case in CASES:
        for method in ONLY[case]:
            off, on = (_some(found, case, method, judged) for judged in (False, True))
            one = _some(found, case, "fedavg")[: len(off)]
            if not off or len(on) < len(off):
                missing.append(f"{method} on {case}")
                continue
            lines.append(row(
                case, method, _last(one), _last(off), _last(on),
                ", ".join(f"{a['count']} → {b['count']}" for a, b in zip(off, on, strict=True)),
                ", ".join("" if each["ari"] is None else f"{each['ari']:.2f}" for each in off),
                ", ".join(" + ".join(each["verdicts"]) or "no split" for each in on),
                *(f"{sum(each['gigabytes'] for each in some) / len(some):.2f}"
                  for some in (off, on)),
            ))  # fmt: skip
    if missing:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    for case in LARGE:
        known = [_some(found, case, *key, 0) for key in
                 (("fedavg", False), ("flic", False), ("flic", True))]  # fmt: skip
        if not all(known):
            continue
        curves = [some[0] for some in known]
        lines += ["", f"## {case}: accuracy by round", "",
                  *header("round", "one model", "FLIC without", "FLIC with")]  # fmt: skip
        for now in curves[0]["accuracy"]:
            cells = [each["accuracy"].get(now) for each in curves]
            lines.append(row(now, *("" if each is None else f"{each:.3f}" for each in cells)))
    return lines


def main() -> None:
    """Run what is missing and write the page."""
    write_page(str(__doc__), PAGE, wanted, measure, page, data=True)


if __name__ == "__main__":
    main()
