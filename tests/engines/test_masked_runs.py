"""IFCA under masks: as without them, for the server only sums, whoever is lost on the way."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common import FitIns, Parameters
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.compat.common import recorddict_compat as compat
from safetensors.numpy import load_file

from fl_app.client_app import app
from fl_app.client_mods import WithheldError
from fl_app.engines import masked_exchange
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.community_exchange import CommunityExchange
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.masked_exchange import MaskedExchange
from fl_app.masking import participant
from fl_app.masking.participant import Participant
from fl_app.masking.slots import SlotSums, slot_sums
from fl_app.masking.stages import (
    BOXES,
    CIPHER_KEYS,
    IDS,
    KEPT,
    KEYS,
    MASK_KEYS,
    MASKED,
    OPEN,
    PART,
    RECORD,
    REFUSED,
    SEEDS,
    SETUP,
    SHARES,
    STAGE,
    STAGES,
    UNMASK,
    VECTOR,
)
from fl_app.masking.stages import CLIENTS as CLIENTS_IN_SUM
from fl_app.report.page.run_records import read_records
from fl_app.report.page.write import render
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.roster import Roster
from fl_app.testing.toy import context
from fl_app.use.card import write_card
from fl_app.use.run import load_run
from fl_app.wiring import made

sys.path.insert(0, str(Path(__file__).parent))
from masked_runs import CLIENTS, WORDS, Watched, run

TRAIN, EVALUATE = MessageType.TRAIN, MessageType.EVALUATE
OF_STAGE = {SETUP: {MASK_KEYS, CIPHER_KEYS}, SHARES: {IDS, BOXES}, VECTOR: {MASKED, REFUSED},
            UNMASK: {SEEDS, KEYS}}  # fmt: skip


def _models(folder: Path) -> np.ndarray:
    saved = load_file(folder / "models.safetensors")
    return np.concatenate([saved[name].ravel() for name in sorted(saved)])


@pytest.mark.parametrize("strategy", ["ifca", "fedavg"])
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
@pytest.mark.parametrize("smallest", [1, 2])
def test_a_run_is_the_same_as_without_masks(
    tmp_path: Path, strategy: str, weighting: str, smallest: int
) -> None:
    words = [f"strategy={strategy}", f"strategy.weighting={weighting}", "strategy.participation=1"]
    words.append("seed=4")  # of which three clients choose each model
    words += [] if strategy == "ifca" else ["~strategy.unchosen"]
    found = run(tmp_path / "masked", Watched(), *words, f"masking.smallest={smallest}")
    plain = run(tmp_path / "plain", Watched(), *words, "masking=none")
    for ours, theirs in zip(found, plain, strict=True):
        assert ours["accuracy"]["mean"] == pytest.approx(theirs["accuracy"]["mean"], abs=1e-6)
        assert ours["accuracy"]["std"] == pytest.approx(theirs["accuracy"]["std"], abs=1e-3)
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-4)
        assert ours["accuracy"]["clients"] == {}
        assert sum(ours["notes"]["clients_by_model"]) == CLIENTS
        assert ours["bytes"]["up"] > theirs["bytes"]["up"]
    assert np.abs(_models(tmp_path / "masked") - _models(tmp_path / "plain")).max() < 1e-4


def test_what_the_server_receives_has_no_field_for_anything_of_one_client(tmp_path: Path) -> None:
    """Only keys, shares and masked vectors, as long for each choice; no number at all."""
    watched = Watched()
    run(tmp_path, watched)
    stages = {stage for _, stage, _ in watched.sent}
    assert stages == {"introduction", *STAGES}
    lengths: dict[int, set[int]] = {each: set() for each in range(CLIENTS)}
    for client, stage, content in watched.sent:
        if stage == "introduction":
            told = compat.recorddict_to_getpropertiesres(content).properties
            expected = {"client_id": client, "group": -1, "samples": 0, "malicious": False}
            assert {name: told[name] for name in told if name != "flower"} == expected
            continue
        assert [*content] == [RECORD]
        record = content[RECORD]
        assert {*record} == OF_STAGE[stage]
        if stage == SHARES:
            assert record[IDS] == [each for each in range(CLIENTS) if each != client]
        if stage == VECTOR:
            assert record[REFUSED] == []
        values = [value for name, value in record.items() if name not in (IDS, REFUSED)]
        parts = [each for v in values for each in (v if isinstance(v, list) else [v])]
        assert {type(each) for each in parts} == {bytes}
        if stage == VECTOR:
            lengths[client].add(len(record[MASKED]))
    (same,) = {frozenset(each) for each in lengths.values()}
    assert same


def test_no_masked_vector_has_the_model_or_the_choice_of_its_client_in_it(tmp_path: Path) -> None:
    """A choice would make two slots of zeros, and a model numbers of the size of its entries."""
    watched = Watched()
    run(tmp_path, watched, "strategy.communities=3", "rounds=1", "masking.smallest=2")
    vectors = [c[RECORD][MASKED] for _, stage, c in watched.sent if stage == VECTOR]
    long = [np.frombuffer(each, "<u4") for each in vectors if len(each) > 1000]
    assert len(long) == CLIENTS
    for each in long:
        slots = each.reshape(3, -1) / 2**32 - 0.5
        assert np.abs(slots.mean(axis=1)).max() < 6 * (1 / 12) ** 0.5 / slots.shape[1] ** 0.5
        assert np.abs(slots.std(axis=1) - (1 / 12) ** 0.5).max() < 0.1
    assert len({each.tobytes() for each in long}) == CLIENTS


@pytest.mark.parametrize(("smallest", "fewest"), [(1, 3), (3, 3), (5, 5)])
@pytest.mark.parametrize("name", ["ifca", "secure_flic"])
def test_no_round_trains_with_fewer_clients_than_a_sum_needs(
    name: str, smallest: int, fewest: int
) -> None:
    kind = CommunityExchange if name == "secure_flic" else MaskedExchange
    settings = made("masking=secagg", smallest=smallest)
    assert kind(made(f"strategy={name}", context()), settings).fewest == fewest


@pytest.mark.parametrize("name", ["ifca", "secure_flic"])
def test_a_round_in_which_no_client_is_available_has_too_few_replies(name: str) -> None:
    kind = CommunityExchange if name == "secure_flic" else MaskedExchange
    exchange = kind(made(f"strategy={name}", context()), made("masking=secagg"))
    messenger = ClientMessenger(Roster(), clients=CLIENTS, timeout=None)
    assert exchange.train(messenger, 1, []) == []
    with pytest.raises(TooFewRepliesError, match="round 1"):
        exchange.learn(1, [])


@pytest.mark.parametrize("stage", [*STAGES, *(f"{stage} again" for stage in STAGES)])
def test_a_run_goes_on_without_clients_that_are_lost_in_a_stage(tmp_path: Path, stage: str) -> None:
    lost = {(client, stage, TRAIN, "2") for client in (1, 4)}
    lost |= {(2, stage.partition(" ")[0], EVALUATE, "2")}
    first, second = run(tmp_path, Watched(fails=lost), "masking.smallest=2")
    assert first["failed"] == {}
    assert {*second["failed"]} == {"1", "2", "4"}
    late = stage == f"{UNMASK} again"  # the client is in the sum
    counted = CLIENTS if late else CLIENTS - 2
    assert sum(second["notes"]["clients_by_model"]) == counted
    assert second["accuracy"] is not None
    assert second["events"] == []


@pytest.mark.parametrize("stage", [*STAGES, *(f"{stage} again" for stage in STAGES)])
def test_below_the_threshold_the_round_is_skipped_and_the_models_stay(
    tmp_path: Path, stage: str
) -> None:
    watched = Watched(fails={(client, stage, TRAIN, "2") for client in range(CLIENTS - 2)})
    first, second = run(tmp_path, watched, "masking.smallest=2")
    assert [event["kind"] for event in second["events"]] == ["skipped"]
    assert second["train_loss"] is None
    assert second["accuracy"]["mean"] == pytest.approx(first["accuracy"]["mean"])


BETWEEN = [UNMASK, *(f"{stage} again" for stage in STAGES)]
"""The stages in which clients of the sum of the choices are lost for that of the updates."""


@pytest.mark.parametrize("stage", BETWEEN)
def test_clients_that_are_lost_between_the_two_sums_uncover_nobody(
    tmp_path: Path, stage: str
) -> None:
    """Two clients choose model 0 and four model 1, of which one each would be missing."""
    watched = Watched(fails={(client, stage, TRAIN, "2") for client in (0, 3)})
    first, second = run(tmp_path, watched, "seed=3", "masking.smallest=2")
    assert first["notes"] == {"clients_by_model": [2, 4], "too_few": []}
    kinds = [event["kind"] for event in second["events"]]
    if stage == f"{UNMASK} again":  # they are in the sum
        assert kinds == []
        assert second["notes"] == first["notes"]
    elif stage == f"{VECTOR} again":
        assert kinds == ["skipped"]
        assert second["train_loss"] is None
    else:
        assert kinds == ["model skipped"]
        assert second["notes"] == {"clients_by_model": [1, 3], "too_few": [0]}


@pytest.mark.parametrize("lost", range(CLIENTS))
def test_a_model_that_might_lose_too_many_is_skipped_whoever_is_lost(
    tmp_path: Path, lost: int
) -> None:
    watched = Watched(fails={(lost, f"{SHARES} again", TRAIN, "2")})
    _, second = run(tmp_path, watched, "seed=3", "masking.smallest=2")
    (event,) = second["events"]
    assert event["kind"] == "model skipped"
    assert event["detail"] == "model 0: 2 clients chose it, and 1 of all were lost since"
    assert second["notes"]["too_few"] == [0]
    assert sum(second["notes"]["clients_by_model"]) == CLIENTS - 1


def test_one_model_is_the_sum_of_as_many_clients_as_must_choose_one(tmp_path: Path) -> None:
    words = ["strategy=fedavg", "strategy.participation=1", "~strategy.unchosen"]
    lost = {(client, VECTOR, TRAIN, "2") for client in (1, 4)}
    first, second = run(tmp_path, Watched(fails=lost), *words, "masking.smallest=5")
    assert first["notes"] == {"clients_by_model": [CLIENTS], "too_few": []}
    (event,) = second["events"]
    assert event["kind"] == "skipped"
    few = "round 2: at least 5 clients must be in a secure sum, got 4 that are left; sample more"
    assert few in event["detail"]
    assert event["detail"].count("round 2") == 1
    assert second["accuracy"]["mean"] == pytest.approx(first["accuracy"]["mean"])


def _lengthen(content: RecordDict) -> None:
    content[RECORD][MASKED] += b"1234"


def _spoil(content: RecordDict) -> None:
    content[RECORD][MASKED] = b"\1\2\3\4" * (len(content[RECORD][MASKED]) // 4)


def _refuse_strangers(content: RecordDict) -> None:
    content[RECORD][REFUSED] = [77]


def _no_point(content: RecordDict) -> None:
    content[RECORD] = ConfigRecord({MASK_KEYS: b"\2" + b"\xff" * 48, CIPHER_KEYS: b"x" * 49})


def _twice(content: RecordDict) -> None:
    content[RECORD][CIPHER_KEYS] = content[RECORD][MASK_KEYS]


def _tell_more(content: RecordDict) -> None:
    content["fitres.metrics"] = ConfigRecord({"choice": 1})


@pytest.mark.parametrize(
    ("stage", "lie", "rule"),
    [
        (SETUP, _no_point, "a public key must be a point of the curve"),
        (SETUP, _twice, "a public key must be one that nobody sent before"),
        (VECTOR, _lengthen, "vector must be"),
        (VECTOR, _refuse_strangers, "refused must be neighbours, each once"),
        (VECTOR, _tell_more, "the reply must be one record masking"),
    ],
)
def test_a_malformed_reply_is_rejected_and_its_client_is_like_a_lost_one(
    tmp_path: Path, stage: str, lie: Callable[[RecordDict], None], rule: str
) -> None:
    watched = Watched(changes={(3, stage, TRAIN, "1"): lie})
    (only,) = run(tmp_path, watched, "rounds=1", "masking.smallest=2")
    assert [*only["rejected"]] == ["3"]
    assert rule in only["rejected"]["3"]
    assert sum(only["notes"]["clients_by_model"]) == CLIENTS - 1


def _garble(which: slice) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        boxes = content[RECORD][BOXES]
        boxes[which] = [bytes(len(each)) for each in boxes[which]]
        content[RECORD][BOXES] = boxes

    return change


def _refuse_all(content: RecordDict) -> None:
    content[RECORD][REFUSED] = [each for each in range(CLIENTS) if each != 3]


def _reveal_others(content: RecordDict) -> None:
    content[RECORD][SEEDS] = [bytes(len(each)) for each in content[RECORD][SEEDS]]


@pytest.mark.parametrize(
    ("stage", "lie", "named", "counted"),
    [
        (SHARES, _garble(slice(None)), ["3"], CLIENTS - 1),
        (SHARES, _garble(slice(1)), ["0", "3"], CLIENTS - 2),  # one victim, which is client 0
        (VECTOR, _refuse_all, ["3"], CLIENTS - 1),
        (UNMASK, _reveal_others, ["3"], CLIENTS),
    ],
)
def test_a_client_that_sends_what_others_cannot_use_is_named_and_the_round_goes_on(
    tmp_path: Path,
    stage: str,
    lie: Callable[[RecordDict], None],
    named: list[str],
    counted: int,
) -> None:
    watched = Watched(changes={(3, stage, TRAIN, "1"): lie})
    (only,) = run(tmp_path, watched, "rounds=1", "masking.smallest=1")
    assert [*only["rejected"]] == named
    assert only["failed"] == {}
    assert only["events"] == []
    assert sum(only["notes"]["clients_by_model"]) == counted


@pytest.mark.parametrize("community", ["several models", "one model"])
def test_a_client_whose_shares_give_no_secret_is_rejected_and_the_sum_formed_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, community: str
) -> None:
    honest = Participant.share

    def share(self: Participant, public: Any, threshold: int) -> dict[int, bytes]:
        if self.client_id != 3:
            return honest(self, public, threshold)
        draw = np.random.default_rng(0)
        with monkeypatch.context() as patched:
            patched.setattr(
                participant,
                "create_shares",
                lambda secret, t, n: [
                    each[:4] + draw.bytes(len(each) - 4) for each in create_shares(secret, t, n)
                ],
            )
            return honest(self, public, threshold)

    monkeypatch.setattr(Participant, "share", share)
    one = ["strategy=fedavg", "strategy.participation=1", "~strategy.unchosen"]
    words = one if community == "one model" else []
    first, second = run(tmp_path, Watched(), *words, "engine.workers=1", "masking.smallest=1")
    for record in (first, second):
        assert [*record["rejected"]] == ["3"]
        assert "the shares of its secret must give it" in record["rejected"]["3"]
        assert record["events"] == []
        assert sum(record["notes"]["clients_by_model"]) == CLIENTS - 1
        assert record["accuracy"] is not None


def test_two_that_refuse_the_shares_of_a_third_stop_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = Participant.mask

    def mask(self: Participant, vector: Any, boxes: Any) -> Any:
        if self.client_id not in (4, 5) or 0 not in boxes:
            return honest(self, vector, boxes)
        others = {each: box for each, box in boxes.items() if each != 0}
        masked, refused = honest(self, vector, others)
        return masked, [*refused, 0]

    monkeypatch.setattr(Participant, "mask", mask)
    first, second = run(tmp_path, Watched(), "masking.smallest=1")
    for record in (first, second):
        assert [*record["rejected"]] == ["0"]
        assert record["events"] == []
        assert sum(record["notes"]["clients_by_model"]) == CLIENTS - 1
    assert "4 shares of client 0 are needed, got 3" in caplog.text
    assert "a sum is formed without [0]" in caplog.text


def test_a_lie_under_the_mask_spoils_the_sum_which_is_then_not_used(tmp_path: Path) -> None:
    watched = Watched(changes={(3, VECTOR, TRAIN, "2"): _spoil})
    first, second = run(tmp_path, watched, "masking.smallest=1")
    (event,) = second["events"]
    assert event["kind"] == "skipped"
    assert "counts of 6 clients must be integers" in event["detail"]
    assert second["accuracy"]["mean"] == pytest.approx(first["accuracy"]["mean"])


def test_a_model_with_too_few_clients_is_not_trained_and_its_sum_never_formed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []

    def noted(total: np.ndarray, *rest: Any) -> SlotSums:
        totals.append(total)
        return slot_sums(total, *rest)

    monkeypatch.setattr(masked_exchange, "slot_sums", noted)
    words = ["strategy.communities=4", "rounds=4", "seed=1"]
    found = run(tmp_path, Watched(), *words, "masking.smallest=3")
    closed = 0
    for total, record in zip(totals, (each for each in found if not each["events"]), strict=True):
        counts = record["notes"]["clients_by_model"]
        assert record["notes"]["too_few"] == [k for k, n in enumerate(counts) if 0 < n < 3]
        for slot in record["notes"]["too_few"]:
            assert np.rint(total[slot, 0]) == counts[slot]
            assert not total[slot, 1:].any()
            closed += 1
    assert closed


def test_report_and_card_of_a_run_know_the_mean_alone(tmp_path: Path) -> None:
    found = run(tmp_path, Watched())
    mean = found[-1]["accuracy"]["mean"]
    text = render(read_records(tmp_path))
    assert f"The mean accuracy over the clients is {mean:.1%} (round 2)" in text
    assert "of each client is hidden by secure aggregation" in text
    card = write_card(load_run(tmp_path), tmp_path, []).read_text()
    assert f"**Accuracy**: {mean:.4f}, standard deviation" in card


def test_an_update_is_kept_for_its_round_only(caplog: pytest.LogCaptureFixture) -> None:
    """A server cannot ask for the update that a client kept in a round that came to no end."""
    context = Context(1, 1, {"partition-id": 0}, RecordDict(), {"overrides": " ".join(WORDS)})
    settings, state = Participant(0), context.state
    settings.set_up()
    others = {each: Participant(each).set_up() for each in (1, 2)}
    settings.share(others, 3)
    state[RECORD] = ConfigRecord({"protocol": settings.to_bytes()})
    state["kept update"] = ConfigRecord({"round": "1", "content": b"", "choice": 0, "models": 2})
    asked = {STAGE: VECTOR, PART: KEPT, OPEN: [0], IDS: [1], BOXES: [b""], CLIENTS_IN_SUM: 3}
    message = Message(RecordDict({RECORD: ConfigRecord(asked)}), 1, TRAIN, group_id="2")
    with pytest.raises(WithheldError, match=r"^ProtocolError, "):
        app(message, context)
    assert "of round 2 must have been kept, got one of round 1" in caplog.text


def test_a_client_answers_no_message_without_masks(caplog: pytest.LogCaptureFixture) -> None:
    words = " ".join(WORDS)
    grid = InProcessGrid(app, nodes=CLIENTS, run_config={"overrides": words}, workers=1)
    try:
        plain = compat.fitins_to_recorddict(FitIns(Parameters([b""], "x"), {"round": 1}), True)
        messages = [Message(plain, 1, TRAIN), Message(RecordDict(plain), 2, EVALUATE)]
        replies = [*grid.send_and_receive(messages)]
        assert len(replies) == len(messages)
        for reply in replies:
            assert reply.has_error()
            assert reply.error.reason.startswith("WithheldError: ProtocolError, ")
        assert caplog.text.count("must be a stage of secure aggregation") == 2
    finally:
        grid.close()
