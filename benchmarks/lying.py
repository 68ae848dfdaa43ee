"""Lies of clients: the changes that each lie makes to the honest replies of a client."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from runs import run

from fl_app.client_app import app
from fl_app.config import load, option
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.params import from_bytes, to_bytes
from fl_app.types import Vector
from fl_app.wiring import initial_model

TRAIN, EVALUATE, INTRODUCE = "train", "evaluate", "get_properties"
MANY = 10**9
TWICE = "each answer twice"
ASSUMES = ("krum", "multi_krum", "bulyan")
"""Robust rules that assume a number of malicious clients."""


NETWORK = ("network=small_cnn", "network.width=0.5")
MIXTURE = (
    "network=mixture", "network.of=fl_app.client.networks.small_cnn",
    "~network.settings.hidden", "+network.settings.width=0.5", "client.cohort=auto",
)  # fmt: skip


def network_of(method: str) -> tuple[str, ...]:
    """Return the overrides of a small network that a method can have."""
    kind = option(f"strategy={method}").resolve()
    if kind.clusters_points:
        return ("network=centroids",)
    return MIXTURE if kind.model_kind == "mixture" else NETWORK


def training_of(method: str, given: Sequence[str]) -> Sequence[str]:
    """Return the overrides of the clients' training; those that cluster points have no batches."""
    return () if option(f"strategy={method}").resolve().clusters_points else given


def settings_of(method: str, given: Mapping[str, object]) -> list[str]:
    """Return the overrides of those of the `given` settings that a method has."""
    options = option(f"strategy={method}").options
    idle = {"malicious"} if options.get("rule") not in ASSUMES else set()
    return [f"strategy.{k}={v}" for k, v in given.items() if k in options and k not in idle]


def words_of(method: str, given: Mapping[str, object]) -> list[str]:
    """Return the overrides of a method with a small network, such as `flic rule=median`."""
    name, _, rule = method.partition(" ")
    rules = [f"strategy.{rule}"] if rule else []
    return [f"strategy={name}", *network_of(name), *settings_of(name, given), *rules]


@dataclass
class Asked:
    """What a liar was asked, and its honest reply, which the lie changes in place.

    `place` counts the liars; `start` (d,) is the model it received, of which the first
    `trainable` entries are trained or, of centroids, are centroids.
    """

    kind: str
    server_round: int
    place: int
    start: Vector
    trainable: int
    content: RecordDict

    def trained(self) -> Vector:
        """Return the trainable entries of the model that it trained honestly."""
        data = self.content["fitres.parameters"]["0"].data
        found: Vector = from_bytes(data)[: self.trainable].copy()
        return found

    def send(self, change: Callable[[Vector], Vector]) -> None:
        """Send `change` of the received model, the further entries as they are."""
        if self.kind != TRAIN:
            return
        model = from_bytes(self.content["fitres.parameters"]["0"].data).copy()
        with np.errstate(over="ignore"):
            model[: self.trainable] = change(self.start[: self.trainable])
        self.send_bytes(to_bytes(model))

    def send_bytes(self, data: bytes) -> None:
        """Send these bytes in the place of the model."""
        if self.kind == TRAIN:
            self.content["fitres.parameters"]["0"] = Array("", (), "numpy.ndarray", data)

    def say(self, kind: str, name: str, value: object) -> None:
        """Say a field beside the model or the score."""
        if self.kind == kind:
            record = "fitres" if kind == TRAIN else "evaluateres"
            self.content[f"{record}.metrics"][name] = value

    def claim(self, samples: float) -> None:
        """Claim so many samples when trained."""
        if self.kind == TRAIN:
            self.content["fitres.num_examples"] = MetricRecord({"num_examples": samples})

    def introduce(self, **said: object) -> None:
        """Say something else of itself."""
        if self.kind == INTRODUCE:
            before = self.content["getpropertiesres.properties"]
            self.content["getpropertiesres.properties"] = ConfigRecord({**before, **said})


Tell = Callable[[Asked], None]


def _header(text: str) -> Tell:
    """Return the lie of a model whose header holds this text, in as many bytes as the right one."""

    def tell(asked: Asked) -> None:
        data = to_bytes(asked.start)
        asked.send_bytes(data[:10] + text.encode().ljust(117) + b"\n" + data[128:])

    return tell


def silent(asked: Asked) -> None:
    """Answer with a failure, but for the introduction."""
    if asked.kind != INTRODUCE:
        raise RuntimeError("silent")


def claim_many(asked: Asked) -> None:
    """Claim very many samples at the introduction and when trained."""
    asked.introduce(samples=MANY)
    asked.claim(MANY)


def _leave(asked: Asked) -> None:
    if asked.kind == TRAIN:
        raise SystemExit(1)


def _another(asked: Asked) -> None:
    """Answer as another client, that it did badly."""
    asked.say(EVALUATE, "client_id", 4)
    asked.say(EVALUATE, "accuracy", 0.0)


def _other_type(asked: Asked) -> None:
    if asked.kind == INTRODUCE:
        return
    for name in list(asked.content):
        del asked.content[name]
    asked.content["getpropertiesres.status"] = ConfigRecord({"code": 0, "message": ""})


def _infinite(asked: Asked) -> None:
    asked.say(EVALUATE, "client_id", float("inf"))
    asked.say(EVALUATE, "community", float("inf"))
    asked.say(EVALUATE, "choice_loss", float("inf"))


def _loss(asked: Asked) -> None:
    asked.say(TRAIN, "loss", 1e308)
    if asked.kind == EVALUATE:
        asked.content["evaluateres.loss"] = MetricRecord({"loss": 1e308})


def _form(shape: str) -> Tell:
    return _header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}")


def _in_turn(*tells: Tell) -> Tell:
    """Return a lie that is another one for each liar and round."""

    def tell(asked: Asked) -> None:
        tells[(asked.place + asked.server_round // 2) % len(tells)](asked)

    return tell


def _says(kind: str, name: str, *values: object) -> Tell:
    """Return the lie of a field beside model or score, its values in turn."""
    return _in_turn(*(lambda asked, v=value: asked.say(kind, name, v) for value in values))


def _sends(change: Callable[[Vector], Vector]) -> Tell:
    return lambda asked: asked.send(change)


class _FirstModel:
    """Sends the model that the liars received in the first round again and again."""

    def __init__(self) -> None:
        self.model = np.empty(0, np.float32)

    def __call__(self, asked: Asked) -> None:
        """Remember the model of the first round, and send it."""
        if asked.kind == TRAIN and asked.server_round == 1:
            self.model = asked.start[: asked.trainable].copy()
        asked.send(lambda start: self.model)


PULLS: dict[str, Tell] = {"model x 0": _sends(np.zeros_like), "first model": _FirstModel()}
"""Models towards which clients that have hardly learned are drawn: see early_lies.py."""
SENT: dict[str, Tell] = {
    "samples nan, 1e308": _in_turn(
        lambda asked: asked.claim(float("nan")), lambda asked: asked.claim(1e308)
    ),
    "samples 1e9 when trained": lambda asked: asked.claim(MANY),
    "samples 1e9 from the start": claim_many,
    "malformed header": _header("{'descr': '<f4', 'shape': (1_0\\"),
    "shape (-5,), (10**12,)": _in_turn(_form("(-5,)"), _form("(1000000000000,)")),
    "choice=inf": _says(TRAIN, "choice", float("inf")),
    "train_s text": _says(TRAIN, "train_s", "abc"),
    "loss 1e308": _loss,
    "model x 1e6": _sends(lambda start: start * np.float32(1e6)),
    "model x 1e9": _sends(lambda start: start * np.float32(1e9)),
    "w and -w": lambda asked: asked.send(lambda start: start * (1 - 2 * asked.place)),
    "constant 1e15": _sends(lambda start: np.full_like(start, 1e15)),
    "model NaN": _sends(lambda start: start * np.float32(np.nan)),
    TWICE: lambda asked: None,
    "SystemExit": _leave,
    "reply of another type": _other_type,
}
SCORED: dict[str, Tell] = {
    "attack_success text": _says(EVALUATE, "attack_success", "abc"),
    "as another client": _another,
    "community 99, -5, 2**40": _says(EVALUATE, "community", 99, -5, 2**40),
    "infinite ids": _infinite,
    "accuracy 7, -3": _says(EVALUATE, "accuracy", 7, -3),
}
INTRODUCED: dict[str, Tell] = {
    "id 2**40": lambda asked: asked.introduce(client_id=2**40),
    "id and samples text": _in_turn(
        lambda asked: asked.introduce(client_id="abc"),
        lambda asked: asked.introduce(samples="many"),
    ),
    "group 2**31": lambda asked: asked.introduce(group=2**31),
    "no samples": lambda asked: asked.introduce(samples=0),
}
LIES: dict[str, Tell] = SENT | SCORED | INTRODUCED
"""Every kind of lie by what the table calls it."""


class LyingApp:
    """The real client app, with a lie in the replies of some clients."""

    def __init__(self, app: ClientApp, liars: tuple[int, ...], tell: Tell, trainable: int) -> None:
        self.app, self.liars, self.tell, self.trainable = app, liars, tell, trainable

    def __call__(self, message: Message, context: Context) -> Message:
        """Do what is asked, and lie about it."""
        client, kind = message.metadata.dst_node_id - 1, message.metadata.message_type
        start = np.empty(0, np.float32)
        if kind != INTRODUCE:
            record = "fitins" if kind == TRAIN else "evaluateins"
            start = from_bytes(message.content[f"{record}.parameters"]["0"].data)
        reply = self.app(message, context)
        if client in self.liars and reply.has_content():
            place, now = self.liars.index(client), int(message.metadata.group_id or 0)
            self.tell(Asked(kind, now, place, start, self.trainable, reply.content))
        return reply


def run_among(
    words: list[str], folder: Path, liars: tuple[int, ...], tell: Tell
) -> list[dict[str, Any]]:
    """Run with these overrides and liars, in a new folder; return the records of the rounds."""
    trainable = int(initial_model(load(words))[0].direction.stop)
    return run(words, folder, LyingApp(app, liars, tell, trainable))


@contextmanager
def answers_twice(liars: tuple[int, ...]) -> Iterator[None]:
    """Hand the liars' answers to a strategy twice, which no engine does by itself."""
    fit, evaluate = ClientMessenger.fit, ClientMessenger.evaluate

    def twice(send: Callable[..., tuple[list, list]]) -> Callable[..., tuple[list, list]]:
        def sent(self: ClientMessenger, *arguments: object) -> tuple[list, list]:
            results, failures = send(self, *arguments)
            return results + [r for r in results if self.roster.client_id(r[0]) in liars], failures

        return sent

    ClientMessenger.fit, ClientMessenger.evaluate = twice(fit), twice(evaluate)  # type: ignore[method-assign]
    try:
        yield
    finally:
        ClientMessenger.fit, ClientMessenger.evaluate = fit, evaluate  # type: ignore[method-assign]
