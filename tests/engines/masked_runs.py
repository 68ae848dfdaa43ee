"""Runs in this process under masks, of which a test sees what the server receives."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict

from fl_app.client_app import app
from fl_app.config import load
from fl_app.engines.inprocess import InProcessGrid, app_context
from fl_app.masking.stages import RECORD, STAGE
from fl_app.server_app import app as server_app

CLIENTS = 6
WORDS = (
    "experiment=secure_ifca", f"population.clients={CLIENTS}", "population.groups=2",
    "population.train_samples=20", "population.test_samples=10", "rounds=2", "client.epochs=1",
    "network=mlp", "network.hidden=[4]", "records.evaluate_every=1", "tracking=none",
    "records.figures=false", "records.report=false", "records.snapshots=0",
)  # fmt: skip
Change = Callable[[RecordDict], None]


@dataclass
class Watched:
    """The client app, with failures and lies.

    `fails` has clients and the stage, kind of message and round in which they fail, `changes` what
    a client changes in its replies; `again` follows a stage of the second sum of a training. `sent`
    has the client, stage and content of every reply.
    """

    fails: set[tuple[int, str, str, str]] = field(default_factory=set)
    changes: dict[tuple[int, str, str, str], Change] = field(default_factory=dict)
    sent: list[tuple[int, str, RecordDict]] = field(default_factory=list)
    seen: Counter[tuple[int, str, str, str]] = field(default_factory=Counter)

    def __call__(self, message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        record = message.content.config_records.get(RECORD)
        stage = "introduction" if record is None else str(record[STAGE])
        key = client, stage, message.metadata.message_type, message.metadata.group_id
        self.seen[key] += 1
        if self.seen[key] > 1:
            key = client, f"{stage} again", *key[2:]
        if key in self.fails:
            raise RuntimeError("the machine is gone")
        reply = app(message, context)
        self.changes.get(key, lambda content: None)(reply.content)
        self.sent.append((client, stage, reply.content))
        return reply


def run(
    folder: Path, watched: Watched, *words: str, given: Sequence[str] = WORDS
) -> list[dict[str, Any]]:
    """Play a run; return the records of its rounds."""
    every = [*given, *words, f"records.folder={folder}"]
    load(every)
    run_config: Any = {"overrides": shlex.join(every)}
    grid = InProcessGrid(watched, nodes=CLIENTS, run_config=run_config, workers=1)  # type: ignore[arg-type]
    try:
        server_app(grid, app_context(run_config))
    finally:
        grid.close()
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
