"""Communities under masks: the server receives noisy sketches, and sums inside of communities."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.compat.common import recorddict_compat as compat
from safetensors.numpy import load_file

from fl_app.client.accountant import spent, whole_update
from fl_app.client.sketch_release import SketchRelease
from fl_app.config import load
from fl_app.masked_client import slots
from fl_app.masking.slots import SlotSums
from fl_app.masking.stages import (
    BOXES,
    CIPHER_KEYS,
    IDS,
    KEYS,
    MASK_KEYS,
    MASKED,
    RECORD,
    REFUSED,
    SEEDS,
    SETUP,
    SHARES,
    SKETCH,
    STAGES,
    UNMASK,
    VECTOR,
)
from fl_app.report.page.run_records import read_records
from fl_app.report.page.write import render
from fl_app.strategies import secure_flic
from fl_app.strategies.secure_flic import SecureFlic
from fl_app.use.card import write_card
from fl_app.use.run import load_run

sys.path.insert(0, str(Path(__file__).parent))
from masked_runs import CLIENTS, WORDS, Watched, run

TRAIN = MessageType.TRAIN
OF_STAGE = {SETUP: {MASK_KEYS, CIPHER_KEYS}, SHARES: {IDS, BOXES}, VECTOR: {MASKED, REFUSED},
            UNMASK: {SEEDS, KEYS}, SKETCH: {SKETCH}}  # fmt: skip
AT, ROUNDS, DIMENSION = 3, 5, 4
GIVEN = ("experiment=secure_flic", *WORDS[1:], f"rounds={ROUNDS}", f"strategy.cluster_round={AT}",
         f"strategy.dimension={DIMENSION}", "strategy.smallest=3",
         f"records.evaluate_every={ROUNDS}")  # fmt: skip
REPEATABLE = ("strategy.randomness=seed", "records.checkpoint_every=1")


def _parity(sketches: np.ndarray, **_: object) -> np.ndarray:
    """Find the planted groups, which the noise of a small budget hides."""
    return np.arange(len(sketches)) % 2


@pytest.fixture
def by_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secure_flic, "sketch_communities", _parity)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watched]:
    """Return the folder of a run that can be repeated, and what its server received."""
    folder, watched = tmp_path_factory.mktemp("undisturbed"), Watched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secure_flic, "sketch_communities", _parity)
        run(folder, watched, *REPEATABLE, given=GIVEN)
    return folder, watched


class Noting(Watched):
    """Knows which client answers, so that a test can tell whose update is masked."""

    now = -1

    def __call__(self, message: Message, context: Context) -> Message:
        self.now = int(context.node_config["partition-id"])
        return super().__call__(message, context)


def _models(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "models.safetensors")


def test_the_server_receives_keys_masked_vectors_and_one_sketch_of_each_client(
    undisturbed: tuple[Path, Watched],
) -> None:
    """No field for a model, a number of samples, a loss or a choice of one client."""
    _, watched = undisturbed
    assert {stage for _, stage, _ in watched.sent} == {"introduction", SKETCH, *STAGES}
    lengths, sketches, others = set[tuple[int, int]](), list[int](), set[int]()
    for client, stage, content in watched.sent:
        if stage == "introduction":
            told = compat.recorddict_to_getpropertiesres(content).properties
            assert (told["samples"], told["group"]) == (0, -1)
            continue
        assert [*content] == [RECORD]
        record = content[RECORD]
        assert {*record} == OF_STAGE[stage]
        if stage == SHARES:  # of the others of its community
            assert client not in record[IDS]
            others.add(len(record[IDS]))
        if stage == VECTOR:
            assert record[REFUSED] == []
        values = [value for name, value in record.items() if name not in (IDS, REFUSED)]
        parts = [each for v in values for each in (v if isinstance(v, list) else [v])]
        assert {type(each) for each in parts} == {bytes}
        if stage == SKETCH:
            sketches.append(client)
            assert len(record[SKETCH]) == 4 * DIMENSION
        if stage == VECTOR:
            lengths.add((client, len(record[MASKED])))
    assert others == {CLIENTS - 1, CLIENTS // 2 - 1}  # before the communities are found, and after
    assert sorted(sketches) == [*range(CLIENTS)]
    by_client = {each: {size for c, size in lengths if c == each} for each in range(CLIENTS)}
    (same,) = {frozenset(each) for each in by_client.values()}
    assert same


def test_no_masked_vector_has_anything_of_its_client_in_it(
    undisturbed: tuple[Path, Watched],
) -> None:
    """A model, weight or loss would make numbers of its size; masked ones are uniform."""
    _, watched = undisturbed
    vectors = [c[RECORD][MASKED] for _, stage, c in watched.sent if stage == VECTOR]
    long = [np.frombuffer(each, "<u4") for each in vectors if len(each) > 1000]
    assert len(long) == CLIENTS * (ROUNDS - 1)
    for each in long:
        numbers = each / 2**32 - 0.5
        assert abs(numbers.mean()) < 6 * (1 / 12) ** 0.5 / len(numbers) ** 0.5
        assert abs(numbers.std() - (1 / 12) ** 0.5) < 0.1
    heads = np.stack([each[:3] for each in long]) / 2**32  # count, weight and loss
    assert np.ptp(heads, axis=0).min() > 0.5
    assert len({each.tobytes() for each in long}) == len(long)


@pytest.mark.usefixtures("by_parity")
def test_a_sum_is_of_the_members_of_one_community(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, whole, learnt = Noting(), slots.trained, SecureFlic.aggregate_sums
    masked: dict[int, tuple[np.ndarray, float]] = {}
    last: list[tuple[int, SlotSums, dict[int, tuple[np.ndarray, float]]]] = []

    def noted(update: np.ndarray, weight: float, *rest: Any, **named: Any) -> np.ndarray:
        masked[watched.now] = update.copy(), weight
        return whole(update, weight, *rest, **named)

    def told(method: SecureFlic, server_round: int, sums: SlotSums) -> Any:
        last.append((server_round, sums, dict(masked)))
        return learnt(method, server_round, sums)

    monkeypatch.setattr(slots, "trained", noted)
    monkeypatch.setattr(SecureFlic, "aggregate_sums", told)
    run(tmp_path, watched, given=GIVEN)
    assert [each[0] for each in last] == [1, 2, 4, 5]
    for server_round, sums, updates in last:
        rows = [range(CLIENTS)] if server_round < AT else [range(0, 6, 2), range(1, 6, 2)]
        assert sums.counts.tolist() == [len(row) for row in rows]
        for row, clients in enumerate(rows):
            weights = np.array([updates[each][1] for each in clients])
            mean = np.average([updates[each][0] for each in clients], axis=0, weights=weights)
            np.testing.assert_allclose(sums.updates[row], mean, atol=1e-5)
            assert sums.weights[row] == pytest.approx(weights.sum(), rel=1e-4)


@pytest.mark.usefixtures("by_parity")
def test_records_report_and_card_tell_the_budget_of_the_sketches(tmp_path: Path) -> None:
    found = run(tmp_path, Watched(), "strategy.epsilon=7", given=GIVEN)
    noise = found[-1]["privacy"]["noise_multiplier"]
    cost = spent([whole_update(noise)], 1e-5)
    assert cost == pytest.approx(7, rel=0.01)
    assert [each["privacy"]["epsilon"]["max"] for each in found] == [0, 0, cost, cost, cost]
    assert [len(each["privacy"]["released"]) for each in found] == [0, 0, CLIENTS, 0, 0]
    assert [each["kind"] for each in found[AT - 1]["events"]] == ["clustered"]
    assert found[AT - 1]["train_loss"] is None
    assert found[-1]["communities"]["sizes"] == [3, 3]
    assert found[-1]["notes"]["clients_by_model"] == [3, 3]
    assert all(each["accuracy"]["clients"] == {} for each in found if each["accuracy"])
    assert found[AT - 1]["bytes"]["up"] == CLIENTS * 4 * DIMENSION
    card = write_card(load_run(tmp_path), tmp_path, []).read_text()
    assert "epsilon 7 at delta 1e-05 for each client's sketch, spent once" in card
    assert "the models were trained without differential privacy" in card
    assert "epsilon" in render(read_records(tmp_path))


def test_the_planted_groups_are_found_if_there_is_little_noise(tmp_path: Path) -> None:
    words = ["population.train_samples=100", "client.epochs=4", "network.hidden=[16]", "rounds=6",
             "strategy.cluster_round=5", "strategy.dimension=32", "strategy.epsilon=inf",
             "records.evaluate_every=6"]  # fmt: skip
    found = run(tmp_path, Watched(), *words, given=GIVEN)
    assert found[-1]["communities"]["sizes"] == [3, 3]
    assert load_run(tmp_path).summary["communities"]["assignment"] == {
        str(each): each % 2 for each in range(CLIENTS)
    }


@pytest.mark.usefixtures("by_parity")
@pytest.mark.parametrize("stage", STAGES)
def test_a_community_below_the_threshold_keeps_its_model_and_the_other_goes_on(
    tmp_path: Path, stage: str
) -> None:
    watched = Watched(fails={(1, stage, TRAIN, "5")})
    found = run(tmp_path, watched, given=GIVEN)
    (event,) = found[-1]["events"]
    assert event["kind"] == "community skipped"
    assert event["detail"].startswith(("community 1: at least 3 ", "community 1: there is no sum"))
    assert {*found[-1]["failed"]} == {"1"}
    assert found[-1]["notes"]["clients_by_model"] == [3, 0]
    assert found[-1]["train_loss"] is not None


@pytest.mark.usefixtures("by_parity")
@pytest.mark.parametrize("stage", [*STAGES, SKETCH])
def test_a_round_goes_on_without_a_client_that_is_lost(tmp_path: Path, stage: str) -> None:
    at = {SKETCH: "3"}.get(stage, "2")
    found = run(tmp_path, Watched(fails={(5, stage, TRAIN, at)}), given=GIVEN)
    assert {*found[int(at) - 1]["failed"]} == {"5"}
    assert not any(e["kind"] == "skipped" for each in found for e in each["events"])
    # a lost sketch is told again in the next round, in which the client does not train
    joined = ["joined a community"] if stage == SKETCH else []
    assert [e["kind"] for e in found[3]["events"]] == joined
    assert sum(found[4]["notes"]["clients_by_model"]) == CLIENTS
    assert [len(each["privacy"]["released"]) for each in found] == [0, 0, CLIENTS, 0, 0]


def test_below_the_smallest_number_of_sketches_the_round_is_skipped(tmp_path: Path) -> None:
    lost = {(client, SKETCH, TRAIN, "3") for client in range(4)}
    found = run(tmp_path, Watched(fails=lost), "rounds=4", given=GIVEN)
    assert [e["kind"] for e in found[2]["events"]] == ["skipped"]
    assert [e["kind"] for e in found[3]["events"]] == ["clustered"]
    assert sum(len(each["privacy"]["released"]) for each in found) == CLIENTS


def _long_sketch(content: RecordDict) -> None:
    content[RECORD] = ConfigRecord({SKETCH: content[RECORD][SKETCH] + b"1234"})


def _large_sketch(content: RecordDict) -> None:
    content[RECORD] = ConfigRecord({SKETCH: np.full(DIMENSION, 1e6, np.float32).tobytes()})


def _far_sketch(content: RecordDict) -> None:
    """Lie with numbers of which each alone could be noise."""
    release = SketchRelease.of({**load([*GIVEN]).strategy.options})
    assert release is not None
    sketch = np.full(DIMENSION, 0.99 * release.largest, np.float32)
    content[RECORD] = ConfigRecord({SKETCH: sketch.tobytes()})


@pytest.mark.usefixtures("by_parity")
@pytest.mark.parametrize(
    ("lie", "rule"),
    [
        (_long_sketch, "sketch must be 16 bytes"),
        (_large_sketch, "sketch must be numbers of at most"),
        (_far_sketch, "sketch must be of a norm of at most"),
    ],
)
def test_a_malformed_sketch_is_rejected_and_named(tmp_path: Path, lie: Any, rule: str) -> None:
    watched = Watched(changes={(2, SKETCH, TRAIN, "3"): lie})
    found = run(tmp_path, watched, "rounds=4", given=GIVEN)
    assert [*found[2]["rejected"]] == ["2"]
    assert rule in found[2]["rejected"]["2"]


@pytest.mark.usefixtures("by_parity")
@pytest.mark.parametrize("stopped", [2, 4])
def test_a_resumed_run_has_the_same_sketches_and_models(
    undisturbed: tuple[Path, Watched],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped: int,
) -> None:
    folder, whole = undisturbed
    learnt = SecureFlic.aggregate_sums

    def stops(method: SecureFlic, server_round: int, sums: SlotSums) -> Any:
        if server_round == stopped:
            raise KeyboardInterrupt
        return learnt(method, server_round, sums)

    parted = Watched()
    monkeypatch.setattr(SecureFlic, "aggregate_sums", stops)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, parted, *REPEATABLE, given=GIVEN)
    monkeypatch.setattr(SecureFlic, "aggregate_sums", learnt)
    run(tmp_path, parted, *REPEATABLE, "records.resume=true", given=GIVEN)

    def sketches(watched: Watched) -> dict[int, bytes]:
        return {c: content[RECORD][SKETCH] for c, stage, content in watched.sent if stage == SKETCH}

    assert sketches(parted) == sketches(whole)
    ours, theirs = _models(tmp_path), _models(folder)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
