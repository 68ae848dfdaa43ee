"""One liar whose updates are too long, where not all clients train; writes a page of results.

    .venv/bin/python benchmarks/long_replies.py

docs/results/long_replies.jsonl has one line per result; what is there is not measured again.
`--minutes` is the time after which no run is started, `--measured` writes the page alone.
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from lying import TRAIN, Asked, Tell, run_among, silent, words_of
from results import Case, Found, by_case, write_page
from table import REPO, header, row

from fl_app.composition import choices
from fl_app.config import option

PAGE = REPO / "docs" / "results" / "long_replies.md"
CLIENTS, LIAR, SEEDS, MORE, MOST = 12, 4, 2, 8, 0.05
COMMUNITIES = (
    "flic", "late", "hierarchical", "cfl_clusters", "communities", "communities_1nn",
    "communities_wnn", "dcfl", "ifca",
)  # fmt: skip
"""Methods that are measured with MORE seeds where updates are turned around."""
SETTINGS = (
    "data=digits", "population=label_swap", f"population.clients={CLIENTS}",
    "population.groups=2", "population.train_samples=100", "population.test_samples=28",
    "client.epochs=3", "client.batch_size=20", "client.learning_rate=0.1", "client.momentum=0.8",
    "rounds=16", "records.evaluate_every=16", "records.checkpoint_every=1000",
    "graph.look_ahead_every=0", "fallback=auto", "graph.contrast=auto",
)  # fmt: skip
GIVEN = {"participation": 0.4, "cluster_round": 6, "malicious": 1}
"""Of a method, where it has such a setting."""


def _long(factor: float, rounds: range) -> Tell:
    """Return the lie of an update that is `factor` times too long in these rounds."""

    def tell(asked: Asked) -> None:
        if asked.kind == TRAIN and asked.server_round in rounds:
            model = asked.trained()
            asked.send(lambda start: start + np.float32(factor) * (model - start))

    return tell


EVERY = range(1, 1000)
CLEAN, SILENT, TURNED = "no lie", "silent", "x -1, every round"
CASES: dict[str, Tell] = {
    CLEAN: lambda asked: None,
    SILENT: silent,
    "x 30, first three rounds": _long(30.0, range(1, 4)),
    "x 900, first three rounds": _long(900.0, range(1, 4)),
    "x 3, every round": _long(3.0, EVERY),
    TURNED: _long(-1.0, EVERY),
    "x 900, from round 12": _long(900.0, range(12, 1000)),
}
ABOUT = f"""# One liar with long updates, where not all clients train

Written by `benchmarks/long_replies.py`: the embedded digits, {CLIENTS} clients with 100 samples
each in two groups that swap two labels each, 16 rounds in which two fifths of the clients train,
the fallback and the graph as by default. Methods that cluster late do it after round
{GIVEN["cluster_round"]}; Krum, multi-Krum and Bulyan assume one liar. One client multiplies its
update by a factor in some rounds; with -1 it goes the opposite way.

The first two columns are the mean accuracy of the eleven loyal clients at the end, without a lie
and if the liar never answers; a method whose communities depend on who trained when can be better
without one client. The others are what the loyal clients lost compared with the lower of these two,
means over {SEEDS} seeds; a negative number is a gain. A loss of more than {MOST:g} is bold; so is
the number of loyal clients that were rejected in any round, which stands in brackets.

CFL as published takes one of the two groups for attackers and removes it, so that two clients are
left to train in a round. Their updates are compared with those of former rounds.
"""

TURNED_AROUND = f"""
## Updates turned around, with more seeds

A liar that goes the opposite way in every round sends models that look like those of the others,
and is a third or a half of those that train in its community in a round. What methods with
communities lose by it differs from seed to seed, so that here are means over {MORE} of them, the
loss ± its standard error over the seeds.
"""


def measure(method: str, lie: str, seed: int, *, out: Path) -> Found:
    """Run a method with the liar; return the accuracy of the others, and who was rejected."""
    words = [*SETTINGS, *words_of(method, GIVEN), f"seed={seed}"]
    records = run_among(words, out / "run", () if lie == CLEAN else (LIAR,), CASES[lie])
    scores = records[-1]["accuracy"]["clients"]
    loyal = [scores[str(client)] for client in range(CLIENTS) if client != LIAR]
    rejected = {int(client) for each in records for client in each["rejected"]}
    return {"accuracy": float(np.mean(loyal)), "rejected": sorted(rejected)}


def methods() -> list[str]:
    """Return the methods whose clients send models that the server sees one by one."""
    found = []
    for name in choices("strategy"):
        kind: Any = option(f"strategy={name}").resolve()
        if not (kind.needs_masks or kind.clusters_points):
            found.append(name)
    return found


def wanted() -> list[tuple[str, str, int]]:
    """Return what is measured."""
    few = list(product(methods(), CASES, range(SEEDS)))
    return few + list(product(COMMUNITIES, (CLEAN, SILENT, TURNED), range(SEEDS, MORE)))


def lines(found: list[Found]) -> list[str]:
    """Return the page: a row for each method, a column for each lie."""
    known = by_case(found)
    lies = [lie for lie in CASES if lie not in (CLEAN, SILENT)]
    table = [ABOUT, *header("method", CLEAN, SILENT, *lies)]
    held = cells = 0
    for method in methods():
        by_lie = {
            lie: [known[method, lie, s] for s in range(SEEDS) if (method, lie, s) in known]
            for lie in CASES
        }
        if any(len(each) < SEEDS for each in by_lie.values()):
            continue
        mean = {lie: np.mean([each["accuracy"] for each in runs]) for lie, runs in by_lie.items()}
        texts = []
        for lie in lies:
            honest = {c for each in by_lie[lie] for c in each["rejected"]} - {LIAR}
            loss = float(min(mean[CLEAN], mean[SILENT]) - mean[lie])
            sound = loss <= MOST and not honest
            held, cells = held + sound, cells + 1
            text = f"{loss:+.3f}" + (f" ({len(honest)})" if honest else "")
            texts.append(text if sound else f"**{text}**")
        table.append(row(method, f"{mean[CLEAN]:.3f}", f"{mean[SILENT]:.3f}", *texts))
    return [*table, "", f"{held} of {cells} cells held.", *_turned(known)]


def _turned(known: Mapping[Case, Found]) -> list[str]:
    """Return the table of liars that turn their updates around, of all seeds."""
    table = [TURNED_AROUND, *header("method", CLEAN, SILENT, "loss")]
    for method in COMMUNITIES:
        runs = [
            [known[method, lie, seed]["accuracy"] for lie in (CLEAN, SILENT, TURNED)]
            for seed in range(MORE)
            if all((method, lie, seed) in known for lie in (CLEAN, SILENT, TURNED))
        ]
        if len(runs) < MORE:
            continue
        found = np.array(runs)
        clean, silent, _ = found.mean(axis=0)
        loss = (found[:, 0] if clean < silent else found[:, 1]) - found[:, 2]
        text = f"{loss.mean():+.3f} ± {loss.std(ddof=1) / MORE**0.5:.3f}"
        bold = f"**{text}**" if loss.mean() > MOST else text
        table.append(row(method, f"{clean:.3f}", f"{silent:.3f}", bold))
    return table


if __name__ == "__main__":
    write_page(__doc__, PAGE, wanted, measure, lines)
