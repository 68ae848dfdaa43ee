"""Runs in this process whose evaluations come with the next training, or on their own."""

import json
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict

from fl_app.client_app import app
from fl_app.config import load
from fl_app.engines.inprocess import InProcessGrid, app_context
from fl_app.records.models import read_models
from fl_app.records.serving import read_serving
from fl_app.server_app import app as server_app

CLIENTS = 6
WORDS = (
    f"population.clients={CLIENTS}", "population.train_samples=20", "population.test_samples=10",
    "rounds=4", "records.evaluate_every=1", "records.checkpoint_every=1",
    "strategy.participation=0.5", "tracking=none", "records.figures=false",
    "records.report=false", "records.snapshots=0",
)  # fmt: skip
LABELS = ("population.groups=2", "client.epochs=1")
SMALL = (*LABELS, "network=mlp", "network.hidden=[4]")
NORM = (*LABELS, "network=mcmahan_cnn", "network._target_=user_networks.batch_norm",
        "client.batch_norm=local")  # fmt: skip
MIXED = (*LABELS, "network=mixture", "network.settings.hidden=[4]")
ALL = ("strategy=ifca", "strategy.participation=1")
APART, CARRIED = (f"engine.evaluate_with_training={each}" for each in ("false", "true"))
Change = Callable[[RecordDict], None]


@dataclass
class Watched:
    """The client app, with failures and lies by client, kind of message and round.

    `seen` counts the messages of each kind by round, and `attached` those with evaluations.
    """

    fails: set[tuple[int, str, str]] = field(default_factory=set)
    changes: dict[tuple[int, str, str], Change] = field(default_factory=dict)
    at: Callable[[str, str], None] = lambda kind, server_round: None
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    attached: Counter[str] = field(default_factory=Counter)

    def __call__(self, message: Message, context: Context) -> Message:
        kind, now = message.metadata.message_type, message.metadata.group_id
        key = int(context.node_config["partition-id"]), kind, now
        self.seen[kind, now] += 1
        self.attached[now] += any(name.startswith("attached.") for name in message.content)
        self.at(kind, now)
        if key in self.fails:
            raise RuntimeError("the machine is gone")
        reply = app(message, context)
        self.changes.get(key, lambda content: None)(reply.content)
        return reply


def run(
    folder: Path,
    *words: str,
    watched: Watched | None = None,
    grid: type[InProcessGrid] = InProcessGrid,
) -> list[dict[str, Any]]:
    """Play a run; return the records of its rounds."""
    given = any(each.startswith(("network=", "experiment=")) for each in words)
    parts = () if given else SMALL
    every = [*WORDS, *parts, *words, f"records.folder={folder}"]
    load(every)
    run_config: Any = {"overrides": shlex.join(every)}
    made = grid(watched or app, nodes=CLIENTS, run_config=run_config, workers=1)  # type: ignore[arg-type]
    try:
        server_app(made, app_context(run_config))
    finally:
        made.close()
    return records(folder)


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of a run, without times."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line) | {"time": None} for line in lines]


def summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a run, without times."""
    return json.loads((folder / "summary.json").read_text()) | {"time": None}


def assert_same(first: Path, second: Path) -> None:
    """Assert that two runs have the same records, summary, models and users of these."""
    assert records(first) == records(second)
    assert summary(first) == summary(second)
    assert read_serving(first) == read_serving(second)
    for ours, theirs in zip(read_models(first), read_models(second), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
