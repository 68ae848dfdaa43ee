"""IFCA under DP-SGD with exact and with noisy losses; writes docs/results/private_choices.md.

    .venv/bin/python benchmarks/private_choices.py --out outputs/private_choices.jsonl

Exact losses are no setting: they are measured with the noise taken out of the product, as it was
before losses had any. Continues where it was stopped.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from runs import run
from table import REPO, arguments, header, machine, row

from fl_app.client import private_losses
from fl_app.client_app import app
from fl_app.engines import privacy_budget
from fl_app.strategies.ifca import Ifca

PAGE = REPO / "docs" / "results" / "private_choices.md"
ROUNDS, SEEDS = 20, 2
SETTINGS = (
    "experiment=privacy_label_swap", "strategy=ifca", "privacy=sample_dp", "engine.workers=1",
    f"rounds={ROUNDS}", f"records.evaluate_every={ROUNDS}",
)  # fmt: skip
EPSILON = (30,)
EXACT = "exact"
LOSSES = (EXACT, 0.1)
HEAD = """# Choices by noisy losses

Written by `benchmarks/private_choices.py --out <file>`, on {machine}: IFCA with
`privacy=sample_dp` on the embedded digits, 12 clients of 100 samples in three groups that swap two
labels each, all clients in each of {rounds} rounds, three models. *exact*: clients choose by exact
losses, as before losses had noise, and all of the budget is for the updates, so that the promise
does not hold. A share: `privacy.loss_share`. Mean over seeds 0 to {last}.

- *accuracy*: of the clients at the end; *ARI*: agreement of their choices with the groups.
- *noise multiplier*: of the updates, in clip bounds. *noise on a loss*: its deviation.
- *booked*: the largest epsilon that the ledger books; with exact losses without them.
"""


@contextmanager
def exact_losses() -> Iterator[None]:
    """Let clients choose by losses without noise that nobody books."""

    def asks(options: object) -> bool:
        return False

    def unchanged(losses: np.ndarray, **_: Any) -> np.ndarray:
        return losses.astype(np.float32)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Ifca, "asks_losses", asks, create=True))
        stack.enter_context(patch.object(privacy_budget, "answers", lambda *_: False))
        stack.enter_context(patch.object(private_losses, "with_noise", unchanged))
        yield


def measure(epsilon: float, losses: str | float, seed: int) -> dict[str, Any]:
    """Return what one run achieves."""
    words = [*SETTINGS, f"privacy.epsilon={epsilon}", f"seed={seed}"]
    share = "privacy.loss_bound=1e6" if losses == EXACT else f"privacy.loss_share={losses}"
    deviations: list[float] = []
    noisy = private_losses.with_noise

    def noted(given: np.ndarray, *, deviation: float, draw: np.random.Generator) -> np.ndarray:
        deviations.append(deviation)
        return noisy(given, deviation=deviation, draw=draw)

    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.enter_context(patch.object(private_losses, "with_noise", noted))
        if losses == EXACT:
            stack.enter_context(exact_losses())
        last = run([*words, share], Path(folder) / "run", app)[-1]
    return {
        "case": [epsilon, losses, seed], "accuracy": last["accuracy"]["mean"],
        "ari": last["communities"]["ari"], "noise": last["privacy"]["noise_multiplier"],
        "deviation": max(deviations, default=0.0), "epsilon": last["privacy"]["epsilon"]["max"],
    }  # fmt: skip


def main() -> None:
    """Run what is missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file for the finished runs")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    found = [json.loads(line) for line in lines]
    done = [each["case"] for each in found]
    for seed, epsilon, losses in product(range(SEEDS), EPSILON, LOSSES):
        if [epsilon, losses, seed] not in done:
            found.append(measure(epsilon, losses, seed))
            with given.out.open("a") as file:
                file.write(json.dumps(found[-1]) + "\n")
            print(found[-1], flush=True)
    given.page.write_text("\n".join(page(found)) + "\n")


def page(found: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the page."""
    names = "epsilon", "losses", "accuracy", "ARI", "noise multiplier", "noise on a loss", "booked"
    lines = [HEAD.format(machine=machine(), rounds=ROUNDS, last=SEEDS - 1), *header(*names)]
    for epsilon, losses in product(EPSILON, LOSSES):
        some = [each for each in found if each["case"][:2] == [epsilon, losses]]
        measures = ("accuracy", 3), ("ari", 3), ("noise", 2), ("deviation", 2), ("epsilon", 2)
        cells = [f"{np.mean([each[name] for each in some]):.{d}f}" for name, d in measures]
        told = losses if losses == EXACT else f"share {losses}"
        lines.append(row(epsilon, told, *cells))
    return lines


if __name__ == "__main__":
    main()
