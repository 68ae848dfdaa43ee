"""The papers' tables of attackers, CFL's and FLIC's; writes docs/results/attack_tables.md.

    .venv/bin/python benchmarks/attack_tables.py --data <folder with MNIST and FashionMNIST>

`experiment=byzantine_paper` and `experiment=minus_grad_paper`, in this process.
docs/results/attack_tables.jsonl has one line per run; what is there is not measured again.
"""

from contextlib import suppress
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

from attack_page import (
    ATTACKS,
    CFL,
    DATA,
    FLIC,
    PROBED,
    PROBES,
    SHARES,
    STRATEGIES,
    WHY,
    page,
)
from results import Case, Found, write_page
from runs import run
from table import REPO
from update_cosines import looking

from fl_app.client_app import app
from fl_app.client_wiring import attack
from fl_app.config import load
from fl_app.strategies.replies import TooFewRepliesError

PAGE = REPO / "docs" / "results" / "attack_tables.md"
SEEDS = range(3)


def words(table: str, *case: Any) -> list[str]:
    """Return the overrides of a case, without the folder of its data."""
    if table == CFL:
        data, name, strategy, seed = case
        return ["experiment=byzantine_paper", f"data={data}", f"attack={name}",
                f"strategy={strategy}", f"seed={seed}"]  # fmt: skip
    if table == WHY:
        return ["experiment=byzantine_paper", "attack=noisy", f"population.clients={PROBED}",
                "strategy.alpha_threshold=-0.99", *PROBES[case[0]]]  # fmt: skip
    share, seed = case
    found = ["experiment=minus_grad_paper", f"attack.share={share}", f"seed={seed}"]
    return [*found, *SHARES[share].overrides]


def measure(*case: Any, data: Path, out: Path) -> Found:
    """Run one federation; return its last scores, and what CFL saw in each round."""
    given = [*words(*case), f"data.root={data}", "engine.workers=1"]
    folder, began = out / "run", process_time()
    malicious = attack(load(given))[1]
    records: list[dict[str, Any]] = []
    with looking(malicious) as looks, suppress(TooFewRepliesError):  # all models diverged
        records = run(given, folder, app)
    return scores(records) | {"cpu": process_time() - began, "looks": looks}


def scores(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the scores of a run from its records of the rounds; None if it ended early.

    `before` is the accuracy of the loyal clients at the last evaluation with one model.
    `cleared` is the first round in which all malicious clients were detected.
    """
    names = ("accuracy", "loyal", "recall", "loyal_lost", "cleared", "before", "pure", "sizes")
    found: dict[str, Any] = dict.fromkeys(names)
    scored = [each for each in records if each["accuracy"]]
    if not scored:
        return found
    last, attacked = scored[-1], scored[-1]["attack"]
    found["accuracy"] = last["accuracy"]["mean"]
    if not attacked:
        return found
    found["loyal"], found["recall"] = attacked["loyal_accuracy"], attacked["recall"]
    found["loyal_lost"], found["pure"] = attacked["loyal_lost"], attacked["pure_share"]
    found["sizes"] = attacked["loyal_sizes"]
    single = [each for each in scored if each["phase"] == "federated"]
    found["before"] = single[-1]["attack"]["loyal_accuracy"] if single else None
    detected = (e["round"] for e in records if e["attack"] and e["attack"]["recall"] == 1.0)
    found["cleared"] = next(detected, None)
    return found


def cases() -> list[Case]:
    """Return what is measured: first the probes and a seed of all tables, then the other seeds."""
    found: list[Case] = [(WHY, probe) for probe in PROBES]
    for seed in SEEDS:
        found += [(CFL, "mnist", *each, seed) for each in product(ATTACKS, STRATEGIES)]
        found += [(FLIC, share, seed) for share in SHARES]
        others = product(DATA[1:], ATTACKS, STRATEGIES)
        found += [(CFL, *each, seed) for each in others]
    return found


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page, data=True)
