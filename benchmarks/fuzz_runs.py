"""Complete runs with wrong replies: the real client app, grid, messenger, loop and checkpoint.

Each run is compared with a second one, in which the rejected replies of the first are never sent.
"""

import json
import sys
import tempfile
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.compat.common import recorddict_compat as compat
from runs import run
from table import REPO

sys.path.insert(0, str(REPO / "tests" / "ingress"))
from lies import lie_of_content, lie_of_evaluation, lie_of_fit, lie_of_record

from fl_app.client_app import app
from fl_app.records.checkpoint import read
from fl_app.strategies.rejections import Rejections

CLIENTS, LIARS, ROUNDS = 8, (1, 4, 6), 4
TRAIN, EVALUATE, INTRODUCE = "train", "evaluate", "get_properties"
NAMES = {TRAIN: "fit", EVALUATE: "evaluation", INTRODUCE: "introduction"}
SETTINGS = (
    "data=digits", "population=label_swap", f"population.clients={CLIENTS}",
    "population.groups=2", "population.train_samples=30", "population.test_samples=10",
    "records.evaluate_every=1", f"rounds={ROUNDS}",
    "records.checkpoint_every=1", "graph.look_ahead_every=0", "engine.workers=1",
)  # fmt: skip
SAME = ("accuracy", "global_accuracy", "communities", "train_loss", "step", "events", "notes")
"""What the records of two runs must have in common, beside the checkpoint."""
Question = tuple[str, int, int | str]
"""A message's kind, its round, and the client that was asked."""


class Lying:
    """The real client app; some clients lie, once in each round and kind of message.

    Whoever is asked a question of `unsent` raises instead.
    """

    def __init__(self, seed: str, unsent: set[Question]) -> None:
        self.seed, self.unsent = seed, unsent
        self.told: dict[Question, str] = {}

    def __call__(self, message: Message, context: Context) -> Message:
        """Do what is asked; then perhaps lie."""
        kind, client = message.metadata.message_type, message.metadata.dst_node_id - 1
        question = kind, int(message.metadata.group_id or 0), client
        if client not in LIARS or question in self.told:
            return app(message, context)
        draw = Random(zlib.crc32(repr((self.seed, question)).encode()))
        lies = draw.random() < (0.3 if kind == INTRODUCE else 0.9)
        if not lies:
            return app(message, context)
        reply = app(message, context)
        self.told[question], content = _lie(draw, kind, reply.content)
        if question in self.unsent:
            raise RuntimeError("never sent")
        return Message(content, reply_to=message)


def _lie(draw: Random, kind: str, honest: RecordDict) -> tuple[str, RecordDict]:
    if draw.random() < 0.5 and kind != INTRODUCE:
        try:
            return _of_fields(draw, kind, honest)
        except BaseException:  # Flower's own records do not take it
            return lie_of_record(draw, honest)
    return (lie_of_record if draw.random() < 0.6 else lie_of_content)(draw, honest)


def _of_fields(draw: Random, kind: str, honest: RecordDict) -> tuple[str, RecordDict]:
    if kind == TRAIN:
        name, told = lie_of_fit(draw, compat.recorddict_to_fitres(honest, keep_input=True))
        return name, compat.fitres_to_recorddict(told, keep_input=True)  # type: ignore[arg-type]
    name, told = lie_of_evaluation(draw, compat.recorddict_to_evaluateres(honest))
    return name, compat.evaluateres_to_recorddict(told)  # type: ignore[arg-type]


@contextmanager
def _rejections(found: set[Question]) -> Any:
    """Note which questions got an answer that was rejected."""
    add = Rejections.add

    def spy(self: Rejections, client: int | str, why: str) -> None:
        kinds = {"introduction:": (INTRODUCE, 0), "evaluation:": (EVALUATE, self.round)}
        found.add((*kinds.get(why.split(" ", 1)[0], (TRAIN, self.round)), client))
        add(self, client, why)

    Rejections.add = spy  # type: ignore[method-assign]
    try:
        yield
    finally:
        Rejections.add = add  # type: ignore[method-assign]


def _state(folder: Path, records: list[dict[str, Any]]) -> Any:
    """Return all that a run has learnt and measured."""
    kept = read(folder / "checkpoint")
    arrays = {name: (a.dtype, a.shape, a.tobytes()) for name, a in kept.arrays.items()}
    values = {name: value for name, value in kept.state.items() if name != "history"}
    measured = [{name: record[name] for name in SAME} for record in records]
    models = (folder / "models.safetensors").read_bytes()
    return arrays, json.dumps(values, sort_keys=True), json.dumps(measured), models


def pair(overrides: list[str], seed: int) -> tuple[Counter[Any], Counter[Any]]:
    """Play a run with lies and one without what was rejected; return the lies told and valid.

    Raises AssertionError where the second ends in another state, or ends early.
    """
    words, rejected = [*SETTINGS, *overrides, f"seed={seed}"], set[Question]()
    name = " ".join(words)
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "lied", Path(folder) / "clean"
        lied = Lying(name, set())
        with _rejections(rejected):
            records = run(words, first, lied)
        clean = run(words, second, Lying(name, rejected))
        assert _state(first, records) == _state(second, clean)
        assert rejected <= lied.told.keys()
    told = Counter((NAMES[question[0]], kind) for question, kind in lied.told.items())
    valid = Counter(
        (NAMES[q[0]], kind) for q, kind in lied.told.items() if q not in rejected
    )  # fmt: skip
    return told, valid
