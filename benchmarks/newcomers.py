"""How often a newcomer is assigned to its planted group; writes docs/results/newcomers.md.

    .venv/bin/python benchmarks/newcomers.py --data <folder>

Two runs on MNIST find the communities: groups that swap labels, and groups that rotate images.
Newcomers have samples that no client of the run has trained on, and are assigned by
`fl_app.use.assign`.
"""

from collections import Counter
from pathlib import Path

import numpy as np
from table import REPO, arguments, header, row

from fl_app.data.shift import rotate, swap
from fl_app.one_run import override
from fl_app.one_run import run as run_once
from fl_app.rng import generator
from fl_app.use.assign import Assignment, by_certainty, by_loss, by_update
from fl_app.use.run import load_run
from fl_app.use.samples import on_device
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import dataset, device

PAGE = REPO / "docs" / "results" / "newcomers.md"
TRIALS, CLIENTS = 100, 20
GROUPS = {"label_swap": 5, "rotation": 4}
SAMPLES = (5, 10, 20, 50)
OVERRIDES = [
    "data=mnist", f"population.clients={CLIENTS}", "population.train_samples=300",
    "population.test_samples=100",
    "network=small_cnn", "network.width=0.5", "strategy=flic", "fallback=false",
    "strategy.participation=1.0", "strategy.cluster_round=15", "rounds=30", "client.batch_size=20",
    "client.learning_rate=0.1", "client.epochs=2", "client.threads=1", "tracking=none",
    "records.figures=false", "records.report=false",
]  # fmt: skip
WAYS = {"loss": 0, "update, 1 epoch": 1, "update, 3 epochs": 3, "without labels": None}
HEAD = f"""# Newcomers, assigned to their community

Written by `benchmarks/newcomers.py`: FLIC on MNIST with {CLIENTS} clients of 300 images, 30 rounds,
seed 0, small_cnn of width 0.5. Newcomers have images of MNIST's test set, {TRIALS} trials in a row,
each group equally often. The share of newcomers that `fl-app assign` puts into the community of
their planted group: with labels by the least loss, and by the direction of an update after a short
local training; without labels by the least entropy of the answers. In brackets, the mean margin of
right and of wrong assignments.

Groups that swap labels have the same images, so their inputs cannot tell them apart: without
labels one in {GROUPS["label_swap"]} is right by chance.
"""


def majority(scorer: Scorer, groups: int) -> dict[str, int]:
    """Return the planted group that most clients of each community have."""
    members = scorer.run.communities.items()
    return {
        f"community_{row}": Counter(client % groups for client in clients).most_common(1)[0][0]
        for row, clients in members
        if clients
    }


def assigned(
    scorer: Scorer, population: str, trial: int, samples: int, epochs: int | None
) -> Assignment:
    """Return the assignment of the newcomer of one trial; `epochs` 0: by loss, None: no labels."""
    data, groups = dataset(scorer.config.data, scorer.config.seed), GROUPS[population]
    draw = generator(1, purpose="newcomers", round=samples, client=trial)
    inputs, labels = data.test(draw.choice(len(data.test_labels), samples, replace=False))
    group = trial % groups
    if population == "rotation":
        inputs = rotate(inputs, 360 * group / groups)
    else:
        inputs, labels = swap(inputs, labels, group)
    given = on_device(inputs, labels, device(scorer.config))
    if epochs is None:
        return by_certainty(scorer, given[0])
    return by_update(scorer, *given, epochs=epochs) if epochs else by_loss(scorer, *given)


def cell(scorer: Scorer, population: str, samples: int, epochs: int | None) -> str:
    """Return the share of right assignments and the margins."""
    count = GROUPS[population]
    groups = majority(scorer, count)
    found = [assigned(scorer, population, trial, samples, epochs) for trial in range(TRIALS)]
    right = np.array([groups.get(each.model) == t % count for t, each in enumerate(found)])
    margins = np.array([each.margin or 0.0 for each in found])
    means = [f"{margins[part].mean():.2f}" if part.any() else "-" for part in (right, ~right)]
    return f"{right.mean():.2f} ({means[0]}, {means[1]})"


def table(population: str, folder: Path, data: Path) -> list[str]:
    """Return the part of the page on one population; its run is made if it is not there."""
    if not (folder / "serving.json").exists():
        given = [f"population={population}", f"population.groups={GROUPS[population]}"]
        run_once([*OVERRIDES, *given, override("data.root", str(data.resolve()))], folder)
    scorer = Scorer(load_run(folder), config_of(folder, []))
    communities = scorer.run.summary["communities"]
    lines = [f"## {GROUPS[population]} groups of {population}\n",
             f"Communities of the run: {communities['count']}, ARI {communities['ari']:.2f}, "
             f"accuracy {scorer.run.summary['accuracy']['mean']:.3f}.\n",
             *header("samples", *WAYS)]  # fmt: skip
    for samples in SAMPLES:
        cells = [cell(scorer, population, samples, epochs) for epochs in WAYS.values()]
        lines.append(row(samples, *cells))
        print(lines[-1], flush=True)
    return [*lines, ""]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--out", type=Path, default=Path("outputs/newcomers"))
    given = parser.parse_args()
    parts = [line for each in GROUPS for line in table(each, given.out / each, given.data)]
    PAGE.write_text("\n".join([HEAD, *parts]).rstrip() + "\n")


if __name__ == "__main__":
    main()
