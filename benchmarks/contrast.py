"""FLIC's graph with and without contrast; writes docs/results/contrast.md.

    .venv/bin/python benchmarks/contrast.py --data <folder with FashionMNIST>

Federations with and without planted groups, some participation, no privacy.
docs/results/contrast.jsonl has one line per result; what is there is not measured again.
"""

from itertools import product
from pathlib import Path

from results import Found, write_page
from runs import run
from table import REPO, header, row

from fl_app.client_app import app

PAGE = REPO / "docs" / "results" / "contrast.md"
CLIENTS, ROUNDS, AFTER, SEEDS = 24, 24, 16, 2
FASHION = (
    "data=fashion_mnist", f"population.clients={CLIENTS}", "population.train_samples=150",
    "population.test_samples=50", "network=small_cnn", "network.width=0.5", "client.epochs=1",
    "client.batch_size=20", "client.learning_rate=0.05",
)  # fmt: skip
DIGITS = (
    "data=digits", "population.clients=12", "population.train_samples=100",
    "population.test_samples=28", "network=mlp", "client.learning_rate=0.1", "client.epochs=2",
    "client.batch_size=10",
)  # fmt: skip
SETTINGS = (
    "strategy=flic", f"rounds={ROUNDS}", f"strategy.cluster_round={AFTER}",
    f"records.evaluate_every={ROUNDS}", "records.checkpoint_every=1000", "graph.look_ahead_every=0",
)  # fmt: skip
POPULATIONS = {
    "four label swaps": ("label_swap", "groups=4"),
    "two label swaps": ("label_swap", "groups=2"),
    "four rotations": ("rotation", "groups=4"),
    "no groups": ("iid",),
    "no groups, labels of Dirichlet 0.5": ("dirichlet", "alpha=0.5"),
}
PARTICIPATION = (1.0, 0.3)
LATE = {"late: four rotations": "four rotations", "late: no groups": "no groups"}
FITTED, HALF = "fitted: ", 0.5
LATE |= {f"{FITTED}{each}": each for each in LATE.values()}
LONG, LOOKS = 241, range(40, 241, 40)
CONTRAST = (False, True)
HEAD = f"""# FLIC's graph with and without contrast

Written by `benchmarks/contrast.py --data <data>`: Fashion-MNIST, {CLIENTS} clients of 150 samples,
{ROUNDS} rounds, clustered after round {AFTER}. `graph.contrast=false` is the paper's graph: the
latest updates and `1 + cos`. `true` sums the updates over the rounds and keeps only significant
splits: see [FLIC](../methods/flic.md). Each cell has a value for each of {SEEDS} seeds:
communities, adjusted Rand index against the planted groups (none without groups), and mean accuracy
of the clients at the end. Without groups the right answer is one community.
"""


OF_LATE = f"""
## Late looks

All clients train one model in {LONG} rounds. What would be found at a look in these rounds:
communities, and ARI with the planted groups. The training loss of the round is the same with both
graphs.
"""
OF_FITTED = """
## Late looks once the samples are fitted

The same with 12 clients of 100 digits and an MLP, half of the clients in each round, whose model
soon fits all training samples. The sums then go on growing by what is each client's own, beside
which the splits of the groups sink below twice the strongest other direction. With contrast, a look
that finds one community therefore returns those of the last look that found several.
"""


def measure(
    population: str, share: float, contrast: bool, seed: int, *, data: Path, out: Path
) -> Found:
    """Run one federation and return its communities and accuracy, and those of late looks."""
    name, *given = POPULATIONS[LATE.get(population, population)]
    of_digits = population.startswith(FITTED)
    words = [*(DIGITS if of_digits else (*FASHION, f"data.root={data}")), *SETTINGS]
    words += [f"population={name}", *(f"population.{each}" for each in given)]
    if population in LATE:
        words += [f"rounds={LONG}", f"strategy.cluster_round={LONG - 1}"]
        words += [f"graph.look_ahead_every={LOOKS.step}", f"records.evaluate_every={LONG}"]
    words += [f"strategy.participation={share}", f"graph.contrast={contrast}".lower()]
    folder = out / "run"
    records = run([*words, f"seed={seed}"], folder, app)
    last = records[-1]
    found = {
        "count": last["communities"]["count"],
        "ari": last["communities"]["ari"], "accuracy": last["accuracy"]["mean"],
    }  # fmt: skip
    if population in LATE:
        looks = [records[each - 1] for each in LOOKS]
        found["looks"] = [[r["communities"]["count"], r["communities"]["ari"]] for r in looks]
        found["losses"] = [r["train_loss"] for r in looks]
    return found


def page(found: list[Found]) -> list[str]:
    """Return the table: a row for every population and participation."""
    names = ("communities", "ARI", "accuracy")
    columns = [f"{name}, {how}" for how in ("paper", "contrast") for name in names]
    lines = [HEAD, *header("population", "participation", *columns)]
    for population, share in product(POPULATIONS, PARTICIPATION):
        cells: list[str] = []
        for contrast in CONTRAST:
            some = [each for each in found if each["case"][:3] == [population, share, contrast]]
            planted = not population.startswith("no groups")
            cells.append(", ".join(str(each["count"]) for each in some))
            cells.append(", ".join(f"{each['ari']:.2f}" for each in some) if planted else "")
            cells.append(", ".join(f"{each['accuracy']:.3f}" for each in some))
        lines.append(row(population, share, *cells))
    return lines + _late(found, OF_LATE, "late: ") + _late(found, OF_FITTED, FITTED)


def _late(found: list[Found], head: str, kind: str) -> list[str]:
    """Return a table of late looks: a row for every population and graph."""
    lines = [head, *header("population", "graph", "seed", *(f"round {each}" for each in LOOKS))]
    for name, contrast in product((each for each in LATE if each.startswith(kind)), CONTRAST):
        for each in (e for e in found if [e["case"][0], e["case"][2]] == [name, contrast]):
            planted = LATE[name] != "no groups"
            cells = [f"{n} (ARI {ari:.2f})" if planted else str(n) for n, ari in each["looks"]]
            seed = each["case"][3]
            lines.append(row(LATE[name], ("paper", "contrast")[contrast], seed, *cells))
            if not contrast:
                losses = [f"{loss:.4f}" for loss in each["losses"]]
                lines.append(row(LATE[name], "training loss", seed, *losses))
    return lines


def cases() -> list[tuple[str, float, bool, int]]:
    """Return what is measured."""
    usual = list(product(POPULATIONS, PARTICIPATION, CONTRAST, range(SEEDS)))
    late = product(LATE, CONTRAST, range(SEEDS))
    return usual + [(each, HALF if FITTED in each else 1.0, *rest) for each, *rest in late]


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page, data=True)
