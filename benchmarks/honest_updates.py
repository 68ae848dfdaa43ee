"""Norms of honest updates relative to their cohort; writes docs/results/honest_updates.md.

    .venv/bin/python benchmarks/honest_updates.py --data <folder with MNIST and FashionMNIST>

Shortened runs of the experiments in conf/experiment and docs/results measure the norms without
screening: `engine.largest_update` and `engine.sample_cap` must affect no honest client, and
`engine.clip_update` only few.
The output folder has one line per result; existing results are not measured again.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from runs import run
from table import REPO, arguments, header, row

from fl_app.aggregation import lower_median
from fl_app.client_app import app
from fl_app.client_wiring import attack
from fl_app.config import load
from fl_app.ingress.fits import FitAnswer
from fl_app.ingress.screen import FEWEST, limits, usual_norms
from fl_app.strategies.cohort import Cohort

PAGE = REPO / "docs" / "results" / "honest_updates.md"
ALONE = ("engine.largest_update=null", "engine.clip_update=null", "engine.workers=1",
         "graph.look_ahead_every=0", "records.evaluate_every=1000",
         "records.checkpoint_every=1000")  # fmt: skip
CLIP = float(load([]).engine.clip_update or np.inf)
HEAD = f"""# Honest updates relative to their cohort

Written by `benchmarks/honest_updates.py --data <data>`: the experiments of conf/experiment and of
the other result pages, with fewer clients, samples and rounds, and one seed.
`engine.largest_update` and `engine.clip_update` were off. The ratio of an update is its norm
divided by the usual norm of its round (see fl_app/ingress/screen.py). The ratio of samples is the
number of a client divided by the lower median of its round. The table has the largest ratios of all
rounds. Attackers are the clients of `attack`, which a simulation knows. The majority classes of the
pages on CIFAR-10 are from Fashion-MNIST here. The last column counts the updates of honest clients
that `engine.clip_update={CLIP:g}` would shorten.
"""
Sweep = dict[str, Sequence[str]]


@dataclass
class Seen:
    """What the spy saw of one run."""

    rounds: int = 0
    honest: float = 0.0
    attackers: float = 0.0
    samples: float = 0.0
    updates: int = 0
    longer: int = 0
    alone: int = 0
    malicious: frozenset[int] = field(default_factory=frozenset)

    def look(self, cohort: Cohort, answers: Sequence[FitAnswer], norms: np.ndarray) -> None:
        """Look at the updates of one round, before they are screened."""
        received = np.array([cohort._norm_sent(each.row) for each in answers])
        usual = usual_norms(norms, received)
        longer = norms > limits(usual, received, multiple=CLIP, of=len(norms))
        longer &= not cohort.screens_direction
        self.rounds += 1
        self.alone += len(answers) < FEWEST
        samples = np.array([answer.samples for answer in answers], float)
        shares = samples / lower_median(samples)
        each = zip(answers, norms, usual, shares, longer, strict=True)
        for answer, norm, middle, share, is_longer in each:
            ratio = float(norm / middle) if middle > 0 else 0.0
            if answer.client_id in self.malicious:
                self.attackers = max(self.attackers, ratio)
            else:
                self.honest = max(self.honest, ratio)
                self.updates += 1
                self.longer += int(is_longer)
                self.samples = max(self.samples, float(share))


@contextmanager
def _spying(seen: Seen) -> Iterator[None]:
    screen = Cohort._screen

    def spy(self: Cohort, answers: Sequence[FitAnswer], norms: np.ndarray) -> np.ndarray:
        if answers:
            seen.look(self, answers, norms)
        return screen(self, answers, norms)

    Cohort._screen = spy  # type: ignore[method-assign]
    try:
        yield
    finally:
        Cohort._screen = screen  # type: ignore[method-assign]


@dataclass(frozen=True)
class Experiment:
    """Runs that a row of the page stands for: overrides, and values to go through."""

    name: str
    pages: str
    overrides: Sequence[str]
    sweep: Sweep

    def runs(self) -> Iterator[list[str]]:
        """Yield the overrides of each run."""
        for values in product(*self.sweep.values()):
            pairs = zip(self.sweep, values, strict=True)
            yield [*self.overrides, *(f"{key}={value}" for key, value in pairs)]


def _experiment(name: str, pages: str, overrides: str, **sweep: str) -> Experiment:
    """Return an experiment of words; keys of the sweep have `__` in the place of a dot."""
    values = {key.replace("__", "."): each.split() for key, each in sweep.items()}
    return Experiment(name, pages, overrides.split(), values)


ATTACKS = ("none minus_grad gaussian scaled zero random alie ipm full_knowledge label_flip noisy "
           "backdoor")  # fmt: skip
SMALL = "network.width=0.25 population.train_samples=60 population.test_samples=20"
EXPERIMENTS = (
    _experiment("the default run", "auto_cluster_round, methods_digits", "rounds=40",
                strategy="flic ifca communities"),
    _experiment("federation_demo", "engines", "experiment=federation_demo"),
    _experiment("mnist_methods", "methods_mnist, communities_max_age",
                f"experiment=mnist_methods rounds=12 population.clients=12 {SMALL}",
                population="label_swap rotation",
                strategy="fedavg late communities_wnn ifca"),
    _experiment("mnist_methods, clustered", "methods_mnist",
                f"experiment=mnist_methods rounds=15 population.clients=12 {SMALL} "
                "strategy.cluster_round=6",
                population="label_swap rotation", strategy="flic hierarchical"),
    _experiment("mnist_label_swap", "flic_mnist",
                "experiment=mnist_label_swap rounds=12 population.clients=15 "
                "population.train_samples=100 population.test_samples=20 strategy.cluster_round=6 "
                "strategy.participation=0.4 records.snapshot_rounds=[]"),
    _experiment("majority classes", "communities_cifar10 and those beside it",
                "experiment=cifar10_majority data=fashion_mnist network=small_cnn rounds=10 "
                f"{SMALL}",
                population__share="0.3 0.7 1.0", strategy="communities communities_1nn ifca"),
    _experiment("byzantine", "byzantine",
                f"experiment=byzantine rounds=12 population.clients=20 {SMALL}",
                data="mnist fashion_mnist", attack="none gaussian noisy label_flip",
                strategy="fedavg cfl"),
    _experiment("minus_grad", "flic_attackers",
                f"experiment=minus_grad rounds=15 population.clients=20 {SMALL}",
                attack__share="0.3 0.6", strategy="fedavg fedmedian"),
    _experiment("defences", "defences",
                f"experiment=defences rounds=10 population.clients=12 {SMALL}",
                attack=ATTACKS, strategy="fedavg geometric_median communities"),
    _experiment("dcfl_mnist", "dcfl_mnist, dcfl_settings, dcfl_settling, dcfl_distances",
                "experiment=dcfl_mnist rounds=45 population.train_samples=100 "
                "population.test_samples=20",
                strategy="dcfl cfl_clusters fedavg ifca"),
    _experiment("dcfl_mnist, updates hidden", "dcfl_private, dcfl_private_run",
                "experiment=dcfl_mnist rounds=15 population.train_samples=100 "
                "population.test_samples=20 population.dynamics.newcomers=0",
                privacy="local_dp local_dp_round", strategy="dcfl cfl_clusters fedavg"),
    _experiment("dcfl_mnist, samples hidden", "dcfl_private, dcfl_private_run, dcfl_levers",
                "experiment=dcfl_mnist rounds=8 population.train_samples=100 "
                "population.test_samples=20 population.dynamics.newcomers=0",
                privacy="sample_dp sample_dp_round", client__learning_rate="0.3 1.0",
                privacy__clip="1.0 3.0"),
    _experiment("privacy_label_swap", "privacy_label_swap, privacy_label_swap_samples",
                "experiment=privacy_label_swap rounds=12 strategy.cluster_round=6 "
                "network.width=0.25",
                privacy="local_dp sample_dp", privacy__epsilon="30 3 1"),
    _experiment("a budget of quantiles", "privacy_noise",
                "experiment=privacy_label_swap rounds=12 strategy=fedavg network.width=0.25 "
                "strategy.participation=1.0", privacy__quantile="0.2 0.8"),
    _experiment("kmeans_mnist", "kmeans_tables, kmeans_participation, kmeans_speed",
                "experiment=kmeans_mnist rounds=40 population.clients=30 "
                "population.train_samples=100 population.test_samples=10",
                population="iid half_iid non_iid", strategy__weighting="capped dynamic equal",
                strategy__participation="1.0 0.2"),
    _experiment("kmeans_blobs", "kmeans_tables",
                "experiment=kmeans_blobs rounds=300 population.clients=50 data.samples=3000",
                population="iid half_iid non_iid", strategy__init="kfed kmeans++ random",
                strategy__learning_rate="0.01 1.0"),
    _experiment("skewed quantities", "none",
                "rounds=15 network.width=0.25 population.clients=20 strategy.participation=0.5",
                population="quantity_skew", population__alpha="0.1 0.5 1.0",
                strategy="fedavg communities"),
    _experiment("skewed labels", "none",
                "rounds=15 network.width=0.25 population.clients=20 strategy.participation=0.5",
                population="dirichlet", population__alpha="0.05 0.5",
                strategy="fedavg communities"),
)  # fmt: skip


def measure(words: list[str], data: str) -> dict[str, Any]:
    """Run one configuration with the spy; return what it saw, and why it ended early if it did."""
    given = [*words, *ALONE]
    config = load(given)
    if "root" in config.data.options:
        given.append(f"data.root={data}")
    seen, folder, ended = Seen(malicious=attack(config)[1]), tempfile.mkdtemp(), None
    with _spying(seen):
        try:
            run(given, Path(folder), app)
        except Exception as error:
            ended = f"{type(error).__name__}: {error}"[:200]
    shutil.rmtree(folder)
    kept = {name: value for name, value in vars(seen).items() if name != "malicious"}
    return {"run": " ".join(words), "ended": ended} | kept


def measured(experiment: Experiment, out: Path, data: str) -> list[dict[str, Any]]:
    """Return the results of an experiment; those in the output folder are taken as they are."""
    log = out / f"{experiment.name.replace(' ', '_').replace(',', '')}.jsonl"
    log.parent.mkdir(parents=True, exist_ok=True)
    lines = log.read_text().splitlines() if log.exists() else []
    found = {each["run"]: each for each in map(json.loads, lines)}
    for words in experiment.runs():
        key = " ".join(words)
        if key not in found:
            found[key] = measure(words, data)
            with log.open("a") as file:
                file.write(json.dumps(found[key]) + "\n")
            print(json.dumps(found[key]), flush=True)
    return [found[" ".join(words)] for words in experiment.runs()]


def line(experiment: Experiment, results: list[dict[str, Any]]) -> str:
    """Return the row of an experiment."""
    most = {key: max(r[key] for r in results) for key in ("honest", "attackers", "samples")}
    shown = f"{most['attackers']:,.1f}" if most["attackers"] else ""
    rounds, early = sum(r["rounds"] for r in results), sum(bool(r["ended"]) for r in results)
    swept = ", ".join(f"{key}={','.join(values)}" for key, values in experiment.sweep.items())
    counts = (len(results), f"{rounds:,}", early or "")
    longer, updates = (sum(r[key] for r in results) for key in ("longer", "updates"))
    touched = f"{longer} of {updates:,} ({longer / updates:.2%})" if longer else f"0 of {updates:,}"
    return row(experiment.name, experiment.pages, f"`{swept}`" if swept else "", *counts,
               f"{most['honest']:.1f}", shown, f"{most['samples']:.1f}", touched)  # fmt: skip


def main() -> None:
    """Run what is missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--data", required=True, help="folder with MNIST and FashionMNIST")
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "honest_updates")
    parser.add_argument("--only", nargs="+", default=[each.name for each in EXPERIMENTS])
    options = parser.parse_args()
    names = ("experiment", "pages", "swept", "runs", "rounds", "ended early",
             "largest ratio of the honest", "of attackers", "largest ratio of samples",
             "shortened")  # fmt: skip
    lines = [HEAD, *header(*names)]
    chosen = [each for each in EXPERIMENTS if each.name in options.only]
    lines += [line(each, measured(each, options.out, options.data)) for each in chosen]
    if len(chosen) == len(EXPERIMENTS):
        PAGE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
