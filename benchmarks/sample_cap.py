"""The effect of a claim of 1e9 samples under each cap; writes docs/results/sample_cap.md.

    .venv/bin/python benchmarks/sample_cap.py

In the federation of benchmarks/lies.py, two liars among twelve clients claim it in their
introduction and in each reply. The output folder has one line per result; existing results are
not measured again.
"""

import argparse
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from lies import CLIENTS, LIARS, overrides
from lying import MANY, TRAIN, Asked, LyingApp, Tell
from runs import run
from table import REPO, header, row

from fl_app.client_app import app
from fl_app.config import load
from fl_app.params import from_bytes, to_bytes
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.wiring import initial_model

PAGE = REPO / "docs" / "results" / "sample_cap.md"
METHODS = ("fedavg", "flic", "late", "hierarchical", "ifca", "cfl", "cfl_clusters", "kmeans")
CAPS = ("1", "2", "3", "5", "10", "samples")
HEAD = f"""# Claimed samples, by cap

Written by `benchmarks/sample_cap.py`: in the federation of [all lies](lies.md), two of {CLIENTS}
clients claim 1e9 samples in their introduction and in every round. They train honestly, or send
the negative of their update (for centroids and counts, what they trained). A number is the accuracy
that the ten loyal clients lost, compared with the run of the same seed without liars. A cap is
`engine.sample_cap`, and `samples` is `strategy.weighting=samples` (`dynamic` in k-means), without
a cap. One seed; accuracy is measured on 280 images; one image is 0.004.
"""


def _honest(asked: Asked) -> None:
    asked.introduce(samples=MANY)
    asked.claim(MANY)


def _negative(asked: Asked) -> None:
    _honest(asked)
    if asked.kind == TRAIN:
        sent = from_bytes(asked.content["fitres.parameters"]["0"].data).copy()
        part = slice(0, asked.trainable)
        sent[part] = 2 * asked.start[part] - sent[part]
        asked.send_bytes(to_bytes(sent))


SENT: dict[str, Tell] = {"an honest model": _honest, "the negative": _negative}


def measure(method: str, cap: str, sent: str, folder: Path) -> dict[str, Any]:
    """Return the accuracy of the loyal, None where all diverged; with no `sent` without liars."""
    words = overrides(method)
    if cap == "samples":
        words.append(f"strategy.weighting={'dynamic' if method == 'kmeans' else 'samples'}")
    elif cap:
        words.append(f"engine.sample_cap={cap}")
    shutil.rmtree(folder, ignore_errors=True)
    trainable = int(initial_model(load(words))[0].direction.stop)
    liars, tell = (LIARS, SENT[sent]) if sent else ((), _honest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            records = run(words, folder, LyingApp(app, liars, tell, trainable))
        except TooFewRepliesError:
            return {"method": method, "cap": cap, "sent": sent, "accuracy": None}
    clients = [each["accuracy"] for each in records if each["accuracy"]][-1]["clients"]
    loyal = [clients.get(str(client), 0.0) for client in range(CLIENTS) if client not in LIARS]
    return {"method": method, "cap": cap, "sent": sent, "accuracy": float(np.mean(loyal))}


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "sample_cap")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "results.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    found = {(r["method"], r["cap"], r["sent"]): r["accuracy"] for r in map(json.loads, lines)}
    cases = [(method, cap, sent) for method in METHODS for sent in SENT for cap in CAPS]
    for case in [*((method, "", "") for method in METHODS), *cases]:
        if case not in found:
            result = measure(*case, options.out / "run")
            found[case] = result["accuracy"]
            with log.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)
    page = [HEAD, *header("method", "without liars", "liars send", *(f"cap {c}" for c in CAPS))]
    for method in METHODS:
        clean = found[method, "", ""]
        for sent in SENT:
            reached = (found[method, cap, sent] for cap in CAPS)
            losses = ("diverged" if r is None else f"{clean - r:+.3f}" for r in reached)
            page.append(row(method, f"{clean:.3f}", sent, *losses))
    PAGE.write_text("\n".join(page) + "\n")
    print("\n".join(page))


if __name__ == "__main__":
    main()
