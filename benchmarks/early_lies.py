"""Two liars among twelve clients that have hardly learned, against every method; writes a page.

    .venv/bin/python benchmarks/early_lies.py

docs/results/early_lies.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

from itertools import product
from pathlib import Path

import numpy as np
from long_replies import methods
from lying import PULLS, Tell, run_among, silent, words_of
from results import Found, by_case, write_page
from table import REPO, header, row

from fl_app.config import option

PAGE = REPO / "docs" / "results" / "early_lies.md"
CLIENTS, LIARS, SEEDS, MOST = 12, (1, 5), 3, 0.05
SETTINGS = (
    "data=digits", "population=label_swap", f"population.clients={CLIENTS}",
    "population.groups=2", "population.train_samples=60", "population.test_samples=28",
    "client.epochs=3", "client.batch_size=20", "client.learning_rate=0.1", "client.momentum=0.8",
    "client.cohort=fused", f"client.cohort_size={CLIENTS}", "rounds=8", "records.evaluate_every=4",
    "records.checkpoint_every=1000", "graph.look_ahead_every=0",
)  # fmt: skip
GIVEN = {"participation": 1.0, "cluster_round": 4, "malicious": 2}
"""Of a method, where it has such a setting."""


CLEAN, SILENT, MEDIAN = "no lie", "silent", " rule=median"
CASES: dict[str, Tell] = {
    CLEAN: lambda asked: None,
    SILENT: silent,
    **PULLS,
}
ABOUT = f"""# Two liars among twelve clients that have hardly learned

Written by `benchmarks/early_lies.py`: the embedded digits, {CLIENTS} clients with 60 samples each
in two groups that swap two labels each, 8 rounds in which all clients participate, methods as
published. Methods that cluster late do it after round {GIVEN["cluster_round"]}. Two clients send a
model of zeros in every round, or the model of the first round again and again.

The first two columns are the mean accuracy of the ten loyal clients at the end, without a lie and
if the liars never answer. The others are what the loyal clients lost compared with the lower of
these two in the runs of one seed: the mean and the largest over {SEEDS} seeds. A largest loss of
more than {MOST:g} is bold. One test image is 0.004.
"""


def measure(method: str, lie: str, seed: int, *, out: Path) -> Found:
    """Run a method with the liars; return the accuracy of the others."""
    words = [*SETTINGS, *words_of(method, GIVEN), f"seed={seed}"]
    records = run_among(words, out / "run", () if lie == CLEAN else LIARS, CASES[lie])
    scores = records[-1]["accuracy"]["clients"]
    loyal = [scores[str(client)] for client in range(CLIENTS) if client not in LIARS]
    return {"accuracy": float(np.mean(loyal))}


def compared() -> list[str]:
    """Return the methods, and those with a mean also with a median in its place."""
    rules = {name: option(f"strategy={name}").options.get("rule") for name in methods()}
    return [*rules, *(f"{name}{MEDIAN}" for name, rule in rules.items() if rule == "mean")]


def wanted() -> list[tuple[str, str, int]]:
    """Return what is measured."""
    return list(product(compared(), CASES, range(SEEDS)))


def lines(found: list[Found]) -> list[str]:
    """Return the page: a row for each method that is measured, a column for each lie."""
    known = by_case(found)
    lies = [lie for lie in CASES if lie not in (CLEAN, SILENT)]
    table = [ABOUT, *header("method", CLEAN, SILENT, *lies)]
    for method in compared():
        cases = [(method, *case) for case in product(CASES, range(SEEDS))]
        if any(case not in known for case in cases):
            continue
        scores = {
            lie: np.array([known[method, lie, s]["accuracy"] for s in range(SEEDS)])
            for lie in CASES
        }
        least, texts = np.minimum(scores[CLEAN], scores[SILENT]), []
        for lie in lies:
            lost = least - scores[lie]
            text = f"{lost.mean():+.3f}, {lost.max():+.3f}"
            texts.append(text if lost.max() <= MOST else f"**{text}**")
        table.append(row(method, *(f"{scores[k].mean():.3f}" for k in (CLEAN, SILENT)), *texts))
    return table


if __name__ == "__main__":
    write_page(__doc__, PAGE, wanted, measure, lines)
