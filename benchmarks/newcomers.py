"""How often a newcomer is assigned to its planted group; writes docs/results/newcomers.md.

    .venv/bin/python benchmarks/newcomers.py --data <folder>

One run on MNIST label swap finds the communities. Newcomers have samples that no client of the run
has trained on, and are assigned by `fl_app.use.assign`.
"""

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
from table import REPO, header, row

from fl_app.data.shift import swap
from fl_app.main import override
from fl_app.main import run as run_once
from fl_app.rng import generator
from fl_app.use.assign import Assignment, by_loss, by_update
from fl_app.use.run import load_run
from fl_app.use.samples import on_device
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import dataset, device

PAGE = REPO / "docs" / "results" / "newcomers.md"
TRIALS, GROUPS, CLIENTS = 100, 5, 20
SAMPLES = (5, 10, 20, 50)
OVERRIDES = [
    "data=mnist", "population=label_swap", f"population.groups={GROUPS}",
    f"population.clients={CLIENTS}", "population.train_samples=300", "population.test_samples=100",
    "network=small_cnn", "network.width=0.5", "strategy=flic", "strategy.participation=1.0",
    "strategy.cluster_round=15", "rounds=30", "client.batch_size=20", "client.learning_rate=0.1",
    "client.epochs=2", "client.threads=1", "tracking=none", "records.figures=false",
    "records.report=false",
]  # fmt: skip
WAYS = {"loss": 0, "update, 1 epoch": 1, "update, 3 epochs": 3}
HEAD = f"""# Newcomers, assigned to their community

Written by `benchmarks/newcomers.py`: FLIC on MNIST with {GROUPS} groups that swap two digits each,
{CLIENTS} clients of 300 images, 30 rounds, seed 0, small_cnn of width 0.5. Newcomers have images
of MNIST's test set; {TRIALS} trials for each number of samples, each group equally often. The table
shows the share of newcomers that `fl-app assign` assigns to the community of their planted group:
by the least loss, and by the direction of an update after a short local training. In brackets: the
mean margin of right and of wrong assignments.
"""


def majority(scorer: Scorer) -> dict[str, int]:
    """Return the planted group that most clients of each community have."""
    members = scorer.run.communities.items()
    return {
        f"community_{row}": Counter(client % GROUPS for client in clients).most_common(1)[0][0]
        for row, clients in members
        if clients
    }


def assigned(scorer: Scorer, trial: int, samples: int, epochs: int) -> Assignment:
    """Return the assignment of the newcomer of one trial; `epochs` 0: by loss."""
    data = dataset(scorer.config.data, scorer.config.seed)
    draw = generator(1, purpose="newcomers", round=samples, client=trial)
    inputs, labels = data.test(draw.choice(len(data.test_labels), samples, replace=False))
    given = on_device(*swap(inputs, labels, trial % GROUPS), device(scorer.config))
    return by_update(scorer, *given, epochs=epochs) if epochs else by_loss(scorer, *given)


def cell(scorer: Scorer, samples: int, epochs: int) -> str:
    """Return the share of right assignments and the margins."""
    groups = majority(scorer)
    found = [assigned(scorer, trial, samples, epochs) for trial in range(TRIALS)]
    right = np.array([groups.get(each.model) == t % GROUPS for t, each in enumerate(found)])
    margins = np.array([each.margin or 0.0 for each in found])
    means = [f"{margins[part].mean():.2f}" if part.any() else "-" for part in (right, ~right)]
    return f"{right.mean():.2f} ({means[0]}, {means[1]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--out", type=Path, default=Path("outputs/newcomers"))
    given = parser.parse_args()
    if not (given.out / "serving.json").exists():
        run_once([*OVERRIDES, override("data.root", str(given.data.resolve()))], given.out)
    scorer = Scorer(load_run(given.out), config_of(given.out, []))
    communities = scorer.run.summary["communities"]
    lines = [HEAD, f"Communities of the run: {communities['count']}, ARI {communities['ari']:.2f}, "
             f"accuracy {scorer.run.summary['accuracy']['mean']:.3f}.\n",
             *header("samples", *WAYS)]  # fmt: skip
    for samples in SAMPLES:
        cells = [cell(scorer, samples, epochs) for epochs in WAYS.values()]
        lines.append(row(samples, *cells))
        print(lines[-1], flush=True)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
