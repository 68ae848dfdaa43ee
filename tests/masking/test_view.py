"""What the server receives says nothing about one client's model or choice, nor about its data."""

import sys
from pathlib import Path
from traceback import format_exception

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict, UserConfig
from flwr.common import EvaluateIns, FitIns, Parameters
from flwr.compat.common import recorddict_compat as compat
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_app.client.local import LocalClient, Trained
from fl_app.client_app import app
from fl_app.client_mods import WithheldError, as_private
from fl_app.engines.inprocess import InProcessGrid
from fl_app.ingress.attached import attach, read_attached
from fl_app.masking import participant, unmasking
from fl_app.masking.keys import mask_seed
from fl_app.masking.participant import Participant
from fl_app.masking.slots import Limits, placed, trained
from fl_app.masking.stages import CLIENTS as IN_SUM
from fl_app.masking.stages import PART, RECORD, STAGE, UPDATE, VECTOR
from fl_app.params import to_bytes
from fl_app.types import Integers

sys.path.insert(0, str(Path(__file__).parent))
from rounds import Round

LIMITS, CLIENTS, SLOTS, SIZE = Limits(8.0, 1000.0, 100.0), 4, 3, 20


def _filled(choice: int, seed: int, clients: int = CLIENTS, size: int = SIZE) -> Integers:
    """Return the vector of a client with this choice and a model, samples and loss of its own."""
    draw = np.random.default_rng(seed)
    update = draw.normal(0, 0.5, size).astype(np.float32)
    weight, loss = float(draw.integers(1, 900)), float(draw.uniform(0, 5))
    return placed(trained(update, weight, loss, LIMITS, clients, draw=draw), choice, SLOTS)


class OneTimePads:
    """In place of AES: a table of random vectors by seed, so that a test can change one of them."""

    def __init__(self) -> None:
        self.table: dict[bytes, Integers] = {}
        self.draw = np.random.default_rng(0)

    def __call__(self, seed: bytes, length: int) -> Integers:
        if seed not in self.table:
            self.table[seed] = self.draw.integers(0, 2**32, length, dtype=np.uint32)
        return self.table[seed]


@settings(max_examples=20)
@given(
    choices=st.tuples(st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1)),
    other=st.integers(0, SLOTS - 1),
    seed=st.integers(0, 10_000),
)
def test_the_same_view_is_consistent_with_every_choice_and_model(
    choices: tuple[int, int], other: int, seed: int
) -> None:
    """Client 0 could have had any choice, model, samples and loss, and client 1 the rest.

    All that the server receives is then the same, byte for byte, with another pad between them,
    which the server does not learn as neither is lost.
    """
    played, pads = Round(CLIENTS).begin(), OneTimePads()
    before = {each: client.to_bytes() for each, client in played.clients.items()}
    first = {0: _filled(choices[0], seed), 1: _filled(choices[1], seed + 1)}
    second = {0: _filled(other, seed + 2)}
    second[1] = first[0] + first[1] - second[0]
    rest = {2: _filled(1, seed + 3), 3: _filled(2, seed + 4)}
    shared = mask_seed(played.clients[0].mask_private, played.public[1][0])
    views = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(participant, "mask", pads)
        patch.setattr(unmasking, "mask", pads)
        for vectors in (first, second):
            played.clients = {e: Participant.of_bytes(saved) for e, saved in before.items()}
            played.view = []
            masked = played.vectors({**vectors, **rest}, dropped={3})
            total = played.total(masked)
            sent = {each: vector.tobytes() for each, vector in masked.items()}
            views.append((sent, played.view, total.tobytes()))
            pads.table[shared] = pads.table[shared] + first[0] - second[0]
    assert views[0] == views[1]


def test_a_masked_vector_is_not_related_to_what_is_in_it() -> None:
    """Bounds of about six standard deviations: one wrong alarm in 10^8 runs."""
    size = 40_000
    plain = {each: _filled(each % SLOTS, each, size=size) for each in range(3)}
    played = Round(3).begin()
    for each, masked in played.vectors(plain).items():
        inside, outside = plain[each].view(np.int32), masked.view(np.int32)
        bound = 6 / len(masked) ** 0.5
        assert abs(np.corrcoef(inside, outside)[0, 1]) < bound
        slots = (masked / 2**32 - 0.5).reshape(SLOTS, -1)
        assert np.abs(slots.mean(axis=1)).max() < 6 * (1 / 12) ** 0.5 / slots.shape[1] ** 0.5
        bits = np.unpackbits(masked.view(np.uint8))
        assert abs(bits.mean() - 0.5) < 3 / len(bits) ** 0.5
        assert np.count_nonzero(masked == 0) < 10  # though most of the slots are empty


def test_two_sums_of_the_same_vector_have_nothing_in_common() -> None:
    plain = {each: _filled(0, 1) for each in range(3)}
    sent = [Round(3).begin().vectors(plain) for _ in range(2)]
    seen = [vector.tobytes() for each in sent for vector in each.values()]
    assert len({*seen}) == 6


SMALL = (
    "population.clients=3 population.groups=1 population.train_samples=9 network=mlp data=digits"
)
PRIVATE = ["experiment=secure_ifca", "privacy=sample_dp", "privacy=local_dp"]
ROUND = {"round": 1, "clip_bound": 1.0}


def _reply(words: str, content: RecordDict) -> Message:
    """Return what a client of a run sends for a message of training."""
    run_config = {"overrides": f"{words} {SMALL}"}
    grid = InProcessGrid(app, nodes=3, run_config=run_config, workers=1)
    try:
        (reply,) = grid.send_and_receive([Message(content, 1, MessageType.TRAIN, group_id="1")])
    finally:
        grid.close()
    return reply


def _asked() -> tuple[Parameters, RecordDict]:
    models = Parameters([to_bytes(np.zeros(4, np.float32))], "numpy.ndarray")
    return models, compat.fitins_to_recorddict(FitIns(models, ROUND), keep_input=True)


class DivergedError(Exception):
    """A failure in the code of a user."""


@pytest.mark.parametrize("words", ["privacy=none", *PRIVATE])
@pytest.mark.parametrize("kind", [DivergedError, SystemExit])
def test_a_failure_says_its_kind_alone(
    words: str,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fit(*_: object, **__: object) -> None:
        raise kind("loss 0.123456")

    monkeypatch.setattr(LocalClient, "fit", fit)
    content = _asked()[1]
    if "secure" in words:
        content[RECORD] = ConfigRecord({STAGE: VECTOR, PART: UPDATE, IN_SUM: 3})
    told = _reply(words, content).error.reason
    if words == "privacy=none":
        assert told == f"{kind.__name__}: loss 0.123456"
        return
    assert told == f"WithheldError: {kind.__name__}, whose text is in the client's log only"
    assert f"client 0 failed: {kind.__name__}: loss 0.123456" in caplog.text


@pytest.mark.parametrize("words", PRIVATE[1:])
def test_so_does_that_of_an_attached_evaluation(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(*_: object, **__: object) -> None:
        raise DivergedError("loss 0.123456")

    trained = Trained(np.zeros(4, np.float32), 0.0, 9, 0.0)
    monkeypatch.setattr(LocalClient, "fit", lambda *_, **__: trained)
    monkeypatch.setattr(LocalClient, "score", score)
    models, content = _asked()
    attach(content, [EvaluateIns(models, {**ROUND, "choose": False})])
    told = read_attached(_reply(words, content).content, 0)
    assert told == "WithheldError: DivergedError, whose text is in the client's log only"


def test_no_engine_gets_the_text_in_a_traceback() -> None:
    def fail(*_: object) -> Message:
        raise DivergedError("loss 0.123456")

    run_config: UserConfig = {"overrides": f"{PRIVATE[0]} {SMALL}"}
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), run_config)
    message = Message(RecordDict(), 1, MessageType.TRAIN)
    with pytest.raises(WithheldError) as caught:
        as_private(message, context, fail)
    assert "0.123456" not in "".join(format_exception(caught.value))
