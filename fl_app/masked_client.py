"""What a client sends under `masking=secagg`: the one place that every reply passes.

The client itself trains and evaluates as without masks. Its plain replies end here, and only
masked vectors, keys and encrypted shares go on to the server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from logging import getLogger
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import EvaluateIns, EvaluateRes, MessageTypeLegacy, Parameters
from flwr.compat.common import recorddict_compat as compat

from fl_app.client.memory import Memory
from fl_app.client.own_sketch import OwnSketch
from fl_app.client.sketch_release import SketchRelease
from fl_app.config import Config
from fl_app.masking import slots
from fl_app.masking.participant import Participant, ProtocolError
from fl_app.masking.settings import SecAgg
from fl_app.masking.stages import (
    BOXES,
    CHOICE,
    CIPHER_KEYS,
    CLIENTS,
    DROPPED,
    IDS,
    KEPT,
    KEYS,
    MASK_KEYS,
    MASKED,
    OPEN,
    PART,
    RECORD,
    REFUSED,
    SCORE,
    SEEDS,
    SETUP,
    SHARES,
    SKETCH,
    STAGE,
    SURVIVORS,
    UNMASK,
    UPDATE,
    VECTOR,
)
from fl_app.params import from_bytes
from fl_app.rng import generator
from fl_app.types import Integers
from fl_app.wiring import initial_model, masking

log = getLogger(__name__)
_PROTOCOL, _KEPT = "protocol", "kept update"
Ask = Callable[[RecordDict], RecordDict]
"""Gives the client a message with this content and returns the content of its plain reply."""
Fields = dict[str, Any]


def answer(
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    config: Config,
    memory: Callable[[], Memory],
) -> Message:
    """Answer a message of the server without anything of this client alone.

    With a strategy that clusters sketches, one noisy sketch is released. `memory` returns where
    that which it is made of stays. Raises ProtocolError for a message that asks for a plain reply.
    """

    def ask(content: RecordDict) -> RecordDict:
        message.content = content
        reply = call_next(message, context)
        if reply.has_error():
            raise RuntimeError(reply.error.reason)
        return reply.content

    if message.metadata.message_type == MessageTypeLegacy.GET_PROPERTIES:
        return Message(_anonymous(ask(message.content)), reply_to=message)
    given = message.content.config_records.get(RECORD)
    if given is None:
        raise ProtocolError(
            "a message must be a stage of secure aggregation, since this client has "
            f"masking=secagg, got a plain one of type {message.metadata.message_type}"
        )
    told = MaskedClient.of(message, context, config, ask, memory).answer(dict(given))
    return Message(RecordDict({RECORD: ConfigRecord(told)}), reply_to=message)


def _anonymous(content: RecordDict) -> RecordDict:
    """Return an introduction without the number of samples and the planted group."""
    reply = compat.recorddict_to_getpropertiesres(content)
    hidden = {**reply.properties, "samples": 0, "group": -1}
    return compat.getpropertiesres_to_recorddict(replace(reply, properties=hidden))


@dataclass
class MaskedClient:
    """A client in the secure sums of a round; `ask` gives the client itself a plain message.

    `own` is for a method that clusters sketches, `direction` the part of a model for them.
    """

    state: RecordDict
    protocol: Participant
    settings: SecAgg
    uniform: bool
    seed: int
    message: Message
    ask: Ask
    own: OwnSketch | None
    direction: Callable[[], slice]

    @classmethod
    def of(
        cls,
        message: Message,
        context: Context,
        config: Config,
        ask: Ask,
        memory: Callable[[], Memory],
    ) -> "MaskedClient":
        """Return the client as its last message left it."""
        settings = masking(config.masking)
        assert isinstance(settings, SecAgg)
        client_id = int(context.node_config["partition-id"])
        saved = context.state.config_records.get(RECORD)
        protocol = Participant(client_id)
        if saved is not None:
            protocol = Participant.of_bytes(_bytes(saved[_PROTOCOL]))
        uniform = config.strategy.options.get("weighting") == "uniform"
        release, own = SketchRelease.of(config.strategy.options), None
        if release is not None:
            now = int(message.metadata.group_id or 0)
            own = OwnSketch(release, memory(), config.seed, client_id, now)

        def direction() -> slice:
            return initial_model(config)[0].direction

        seed = config.seed
        return cls(context.state, protocol, settings, uniform, seed, message, ask, own, direction)

    def answer(self, given: Fields) -> Fields:
        """Return what the client tells in a stage, and store what it needs in the next one."""
        if given[STAGE] == SKETCH and self.own is not None:
            return self._release(self.own)
        stages = {
            SETUP: self._set_up,
            SHARES: self._share,
            VECTOR: self._mask,
            UNMASK: self._reveal,
        }
        told = stages[given[STAGE]](given)
        self.state[RECORD] = ConfigRecord({_PROTOCOL: self.protocol.to_bytes()})
        return told

    def _release(self, own: OwnSketch) -> Fields:
        given = compat.recorddict_to_fitins(self.message.content, keep_input=True)
        models = [from_bytes(tensor) for tensor in given.parameters.tensors]
        return {SKETCH: own.released(models, self.direction).astype("<f4").tobytes()}

    def _set_up(self, given: Fields) -> Fields:
        of_masks, of_ciphers = self.protocol.set_up()
        return {MASK_KEYS: of_masks, CIPHER_KEYS: of_ciphers}

    def _share(self, given: Fields) -> Fields:
        pairs = zip(given[MASK_KEYS], given[CIPHER_KEYS], strict=True)
        public = dict(zip(given[IDS], pairs, strict=True))
        boxes = self.protocol.share(public, self.settings.needed(len(public) + 1))
        return {IDS: [*boxes], BOXES: [*boxes.values()]}

    def _mask(self, given: Fields) -> Fields:
        parts = {
            UPDATE: self._update,
            CHOICE: self._choice,
            KEPT: self._kept,
            SCORE: self._score,
        }
        vector = parts[given[PART]](given)
        boxes = dict(zip(given[IDS], given[BOXES], strict=True))
        masked, refused = self.protocol.mask(vector, boxes)
        return {MASKED: masked.astype("<u4").tobytes(), REFUSED: refused}

    def _reveal(self, given: Fields) -> Fields:
        seeds, keys = self.protocol.reveal(given[SURVIVORS], given[DROPPED])
        return {SEEDS: seeds, KEYS: keys}

    def _update(self, given: Fields) -> Integers:
        """Train; return a vector with all that is summed in the slot of the chosen model."""
        content, choice, models = self._trained(given[CLIENTS])
        return slots.placed(content, choice, models)

    def _choice(self, given: Fields) -> Integers:
        """Train; return a vector with the choice alone, and keep the rest for `_kept`."""
        content, choice, models = self._trained(given[CLIENTS])
        kept = content.astype("<u4").tobytes()
        now = self.message.metadata.group_id
        self.state[_KEPT] = ConfigRecord(
            {"content": kept, "choice": choice, "models": models, "round": now}
        )
        return slots.placed(slots.chosen(given[CLIENTS]), choice, models)

    def _kept(self, given: Fields) -> Integers:
        """Return what was kept in this round, of a slot that is not open only the count."""
        kept: Mapping[str, Any] = dict(self.state.config_records.get(_KEPT) or {})
        if kept.get("round") != self.message.metadata.group_id:
            raise ProtocolError(
                f"an update of round {self.message.metadata.group_id} must have been kept, got "
                f"one of round {kept.get('round')}"
            )
        # emptied, since a node that carries several clients would restore a record that is gone
        self.state[_KEPT] = ConfigRecord({})
        content = np.frombuffer(kept["content"], "<u4")
        filled = content if kept["choice"] in given[OPEN] else slots.emptied(content)
        return slots.placed(filled, kept["choice"], kept["models"])

    def _trained(self, clients: int) -> tuple[Integers, int, int]:
        """Train; return the content of the slot, the chosen model, and the number of models."""
        asked, limits = self.message.content, self.settings.limits
        starts = compat.recorddict_to_fitins(asked, keep_input=True).parameters.tensors
        reply = compat.recorddict_to_fitres(self.ask(asked), keep_input=True)
        choice = int(reply.metrics.get("choice", 0))
        update = from_bytes(reply.parameters.tensors[0]) - from_bytes(starts[choice])
        if np.abs(update).max() > limits.update:
            log.warning("changes above masking.largest_change=%g are cut", limits.update)
        weight = limits.samples if self.uniform else float(reply.num_examples)
        loss = float(reply.metrics["loss"])
        if self.own is not None and len(starts) == 1:
            self.own.trained(from_bytes(starts[choice]), update)
        now = int(self.message.metadata.group_id or 0)
        draw = generator(
            self.seed, purpose="masked rounding", round=now, client=self.protocol.client_id
        )
        content = slots.trained(update, weight, loss, limits, clients, draw=draw)
        return content, choice, len(starts)

    def _score(self, given: Fields) -> Integers:
        """Return the accuracy of the model of the least training loss."""
        ins = compat.recorddict_to_fitins(self.message.content, keep_input=True)
        models, replies = ins.parameters.tensors, list[EvaluateRes]()
        for row, model in enumerate(models):
            asked = {**ins.config, "community": row, "choose": len(models) > 1}
            one = EvaluateIns(Parameters([model], ins.parameters.tensor_type), asked)
            found = self.ask(compat.evaluateins_to_recorddict(one, keep_input=True))
            replies.append(compat.recorddict_to_evaluateres(found))
        best = min(replies, key=_choice_loss)
        if not best.num_examples:
            raise ValueError("a client must have samples for test with masks, got none; add some")
        return slots.scored(float(best.metrics["accuracy"]), given[CLIENTS])


def _choice_loss(reply: EvaluateRes) -> float:
    return float(reply.metrics["choice_loss"])


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value
