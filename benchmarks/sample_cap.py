"""The effect of a claim of 1e9 samples under each cap; writes docs/results/sample_cap.md.

    .venv/bin/python benchmarks/sample_cap.py

In the federation of benchmarks/lies.py, two liars among twelve clients claim it in their
introduction and in each reply. docs/results/sample_cap.jsonl has one line per result; what is there
is not measured again.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from lies import CLIENTS, LIARS, overrides
from lying import TRAIN, Asked, Tell, claim_many, run_among
from results import Found, by_case, write_page
from table import REPO, header, row

from fl_app.params import from_bytes, to_bytes
from fl_app.strategies.replies import TooFewRepliesError

PAGE = REPO / "docs" / "results" / "sample_cap.md"
METHODS = ("fedavg", "flic", "late", "hierarchical", "ifca", "cfl", "cfl_clusters", "kmeans")
CAPS = ("1", "2", "3", "5", "10", "samples")
HEAD = f"""# Claimed samples, by cap

Written by `benchmarks/sample_cap.py`: in the federation of [all lies](lies.md), two of {CLIENTS}
clients claim 1e9 samples in their introduction and in every round. They train honestly, or send
the negative of their update (for centroids and counts, what they trained), or a model of zeros. A
number is the accuracy that the ten loyal clients lost, compared with the run of the same seed
without liars. A cap is `engine.sample_cap`, and `samples` is `strategy.weighting=samples`
(`dynamic` in k-means), without a cap. One seed; accuracy is measured on 280 images; one image is
0.004.
"""


def _negative(asked: Asked) -> None:
    claim_many(asked)
    if asked.kind == TRAIN:
        sent = from_bytes(asked.content["fitres.parameters"]["0"].data).copy()
        part = slice(0, asked.trainable)
        sent[part] = 2 * asked.start[part] - sent[part]
        asked.send_bytes(to_bytes(sent))


def _zeros(asked: Asked) -> None:
    claim_many(asked)
    asked.send(np.zeros_like)


SENT: dict[str, Tell] = {
    "an honest model": claim_many,
    "the negative": _negative,
    "zeros": _zeros,
}


def measure(method: str, cap: str, sent: str, *, out: Path) -> Found:
    """Return the accuracy of the loyal, None where all diverged; with no `sent` without liars."""
    words = overrides(method)
    if cap == "samples":
        words.append(f"strategy.weighting={'dynamic' if method == 'kmeans' else 'samples'}")
    elif cap:
        words.append(f"engine.sample_cap={cap}")
    liars, tell = (LIARS, SENT[sent]) if sent else ((), claim_many)
    try:
        records = run_among(words, out / "run", liars, tell)
    except TooFewRepliesError:
        return {"accuracy": None}
    clients = [each["accuracy"] for each in records if each["accuracy"]][-1]["clients"]
    loyal = [clients.get(str(client), 0.0) for client in range(CLIENTS) if client not in LIARS]
    return {"accuracy": float(np.mean(loyal))}


def cases() -> list[tuple[str, str, str]]:
    """Return method, cap and what liars send, first each method without liars."""
    lied = [(method, cap, sent) for method in METHODS for sent in SENT for cap in CAPS]
    return [*((method, "", "") for method in METHODS), *lied]


def page(found: Sequence[Found]) -> list[str]:
    """Return the table of the cases that are measured."""
    known = {case: each["accuracy"] for case, each in by_case(found).items()}
    lines = [HEAD, *header("method", "without liars", "liars send", *(f"cap {c}" for c in CAPS))]
    for method, sent in product(METHODS, SENT):
        if all((method, cap, sent) in known for cap in CAPS):
            clean = known[method, "", ""]
            reached = (known[method, cap, sent] for cap in CAPS)
            losses = ("diverged" if r is None else f"{clean - r:+.3f}" for r in reached)
            lines.append(row(method, f"{clean:.3f}", sent, *losses))
    return lines


if __name__ == "__main__":
    write_page(__doc__, PAGE, cases, measure, page)
