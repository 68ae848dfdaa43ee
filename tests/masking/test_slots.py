"""What a client puts into its slot, and what the server reads of all slots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_app.masking.quantisation import dequantise, levels
from fl_app.masking.slots import (
    HEAD,
    ChosenSlots,
    Limits,
    SlotSums,
    WrongSumError,
    chosen,
    emptied,
    mean_accuracy,
    placed,
    scored,
    slot_sums,
    trained,
)
from fl_app.types import Integers

LIMITS = Limits(update=8.0, samples=1000.0, loss=100.0)
DRAW = np.random.default_rng(0)


def _read(vectors: list[Integers], slots: int, clients: int) -> SlotSums:
    total = dequantise(sum(vectors, np.zeros(len(vectors[0]), np.uint32)), clients)
    return slot_sums(total.reshape(slots, -1), len(vectors), LIMITS, clients)


def test_sums_are_the_weighted_means_of_the_clients_of_a_slot() -> None:
    """Weights 100 and 300 in slot 1: `(100 * 2 + 300 * -2) / 400 = -1`, loss `(1 + 3 * 3) / 4`."""
    first = trained(np.array([2, 0], np.float32), 100.0, 1.0, LIMITS, 3, draw=DRAW)
    second = trained(np.array([-2, 4], np.float32), 300.0, 3.0, LIMITS, 3, draw=DRAW)
    other = trained(np.array([0.5, 0.5], np.float32), 10.0, 2.0, LIMITS, 3, draw=DRAW)
    found = _read([placed(first, 1, 3), placed(second, 1, 3), placed(other, 2, 3)], 3, 3)
    assert found.counts.tolist() == [0, 2, 1]
    assert found.weights == pytest.approx([0, 400, 10], abs=1e-5)
    assert found.losses == pytest.approx([0, 2.5, 2.0], abs=1e-5)
    assert found.updates[0].tolist() == [0, 0]
    assert found.updates[1] == pytest.approx([-1, 3], abs=1e-6)
    assert found.updates[2] == pytest.approx([0.5, 0.5], abs=1e-5)
    assert found.clients == 3
    assert found.loss == pytest.approx((400 * 2.5 + 10 * 2) / 410, abs=1e-5)


def test_the_mean_keeps_a_change_that_is_below_half_a_level_for_every_client() -> None:
    """Weight 20 of 1000 and 8 times 1 / H, with H = 214,748 of 10,000 clients: 0.00186 a level."""
    clients, small = 10_000, np.full(50, 5e-4, np.float32)
    draw, vectors = np.random.default_rng(0), []
    for _ in range(clients):
        vectors.append(trained(small, 20.0, 1.0, LIMITS, clients, draw=draw))
    found = _read(vectors, 1, clients)
    # 0.00186 sqrt(0.27 * 0.73 / 10,000) is the deviation of one entry
    assert found.updates == pytest.approx(np.full((1, 50), 5e-4), abs=5e-5)
    assert found.updates.mean() == pytest.approx(5e-4, rel=0.02)


def test_weights_below_half_a_level_count_in_the_mean_and_as_weights() -> None:
    """2,000 clients have a weight of 0.4 levels each, and loss and change at their limit."""
    clients, draw = 2_000, np.random.default_rng(0)
    weight = 0.4 * LIMITS.samples / levels(clients)
    change = np.full(50, 8, np.float32)
    vectors = [trained(change, weight, 100.0, LIMITS, clients, draw=draw) for _ in range(clients)]
    found = _read(vectors, 1, clients)
    # sqrt(0.4 * 0.6 * 2,000) / 800 = 0.027 is the deviation of each sum
    assert found.weights == pytest.approx([clients * weight], rel=0.15)
    assert found.losses == pytest.approx([100], rel=0.2)
    assert found.updates.mean() == pytest.approx(8, rel=0.15)


class _Up(np.random.Generator):
    """Rounds every change up, and the weight down."""

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.array([1.0] * HEAD + [0.0] * (size - HEAD))


def test_changes_at_their_limit_are_no_wrong_sum_however_they_are_rounded() -> None:
    """A weight of 0.4 levels is rounded to 0, and each change as large to 1."""
    draw, samples = _Up(np.random.PCG64(0)), 1000.0
    weight = 0.4 * samples / levels(100)
    far = [
        trained(np.full(2, 8, np.float32), weight, 1.0, LIMITS, 100, draw=draw) for _ in range(100)
    ]
    assert far[0][HEAD:].tolist() == [1, 1]
    assert _read(far, 1, 100).weights.tolist() == [0]


def test_what_exceeds_a_limit_is_cut() -> None:
    far = trained(np.array([50, -50], np.float32), 1e7, 1e4, LIMITS, 1, draw=DRAW)
    found = _read([placed(far, 0, 1)], 1, 1)
    assert found.updates.tolist() == [[8, -8]]
    assert found.losses == pytest.approx([100])
    assert found.weights == pytest.approx([1000])


@pytest.mark.parametrize(
    ("update", "weight", "loss"),
    [([np.nan], 1.0, 0.0), ([np.inf], 1.0, 0.0), ([0], 1.0, np.nan), ([0], 0.0, 0.0)],
)
def test_what_is_not_finite_never_gets_under_a_mask(
    update: list[float], weight: float, loss: float
) -> None:
    with pytest.raises(ValueError, match="must be finite and the weight positive"):
        trained(np.array(update, np.float32), weight, loss, LIMITS, 3, draw=DRAW)


def test_of_a_slot_with_too_few_clients_only_the_count_is_left() -> None:
    alone = emptied(trained(np.array([1, 2], np.float32), 50.0, 1.0, LIMITS, 4, draw=DRAW))
    others = trained(np.array([1, 2], np.float32), 50.0, 1.0, LIMITS, 4, draw=DRAW)
    found = _read([placed(alone, 0, 3), *[placed(others, 2, 3)] * 3], 3, 4)
    assert found.counts.tolist() == [1, 0, 3]
    assert found.too_few == [0]
    assert found.weights[0] == 0
    assert found.updates[:2].tolist() == [[0, 0], [0, 0]]
    assert found.loss == pytest.approx(1.0, abs=1e-4)
    assert np.flatnonzero(placed(chosen(4), 1, 3)).tolist() == [1]


def test_a_slot_stays_open_only_if_all_who_were_lost_may_have_chosen_it() -> None:
    chosen_by = ChosenSlots(np.array([2, 0, 5, 3]), smallest=2)
    assert chosen_by.clients == 10
    assert chosen_by.open(10) == [0, 2, 3]
    assert chosen_by.open(9) == [2, 3]
    assert chosen_by.open(7) == [2]
    assert chosen_by.open(6) == []
    assert chosen_by.least([0, 2, 3]) == 10
    assert chosen_by.least([2, 3]) == 9
    assert chosen_by.least([2]) == 7


def test_no_slot_is_summed_with_fewer_clients_than_must_have_chosen_it() -> None:
    """Some are lost before the slots are opened, others after it."""
    outcomes = set()

    @given(
        choices=st.lists(st.integers(0, 3), min_size=3, max_size=14),
        early=st.sets(st.integers(0, 13)),
        late=st.sets(st.integers(0, 13)),
        smallest=st.integers(1, 5),
    )
    def lose(choices: list[int], early: set[int], late: set[int], smallest: int) -> None:
        chosen_by = ChosenSlots(np.bincount(choices, minlength=4), smallest)
        left = [slot for client, slot in enumerate(choices) if client not in early]
        summed = [slot for client, slot in enumerate(choices) if client not in early | late]
        opened = chosen_by.open(len(left))
        enough = bool(opened) and len(summed) >= chosen_by.least(opened)
        outcomes.add(enough)
        if enough:
            counts = np.bincount(summed, minlength=4)
            chosen_by.check(counts)
            assert (counts[opened] >= smallest).all()

    lose()
    assert outcomes == {True, False}


def test_a_client_that_fills_another_slot_than_it_chose_spoils_the_sum() -> None:
    chosen_by = ChosenSlots(np.array([2, 4]), smallest=2)
    with pytest.raises(WrongSumError, match=r"got \[1, 5\] after \[2, 4\]"):
        chosen_by.check(np.array([1, 5]))


@given(
    choices=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    extra=st.integers(0, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_of_any_choices_are_those_of_the_plain_updates(
    choices: list[int], extra: int, seed: int
) -> None:
    draw, clients = np.random.default_rng(seed), len(choices) + extra
    updates = draw.uniform(-8, 8, (len(choices), 3)).astype(np.float32)
    weights = draw.integers(1, 1001, len(choices)).astype(float)
    losses = draw.uniform(0, 100, len(choices))
    found = _read(
        [
            placed(trained(u, w, loss, LIMITS, clients, draw=DRAW), choice, 4)
            for u, w, loss, choice in zip(
                updates, weights.tolist(), losses.tolist(), choices, strict=True
            )
        ],
        4,
        clients,
    )
    for slot in range(4):
        mine = np.flatnonzero(np.array(choices) == slot)
        assert found.counts[slot] == len(mine)
        if not len(mine):
            assert not found.updates[slot].any()
            assert not found.losses[slot]
        else:
            # each entry is rounded by less than 1 / H, and H = (2^31 - 1) / clients
            error = 2 * len(mine) * clients / 2**31 * LIMITS.samples / weights[mine].sum()
            plain = np.average(updates[mine], axis=0, weights=weights[mine])
            assert found.updates[slot] == pytest.approx(plain, abs=16 * error + 1e-5)
            loss = np.average(losses[mine], weights=weights[mine])
            assert found.losses[slot] == pytest.approx(loss, abs=200 * error + 1e-5)


def _total(counts: list[float], weights: list[float], sums: list[float]) -> np.ndarray:
    total = np.zeros((len(counts), HEAD + 1))
    total[:, 0], total[:, 1], total[:, HEAD] = counts, weights, sums
    return total


@pytest.mark.parametrize(
    ("counts", "weights", "sums", "rule"),
    [
        ([2, 2], [1, 1], [0, 0], "counts of 3 clients must be integers with this sum"),
        ([4, -1], [1, 0], [0, 0], "counts of 3 clients must be integers with this sum"),
        ([1.5, 1.5], [1, 1], [0, 0], "counts of 3 clients must be integers with this sum"),
        ([3, 0], [3.5, 0], [0, 0], "weights must be in 0..counts"),
        ([3, 0], [-0.1, 0], [0, 0], "weights must be in 0..counts"),
        ([2, 1], [1, 1], [1.1, 0], "no sum may exceed the weight of its slot"),
        ([3, 0], [1, 0], [0, 0.1], "no sum may exceed the weight of its slot"),
    ],
)
def test_a_sum_that_no_honest_clients_have_is_found(
    counts: list[float], weights: list[float], sums: list[float], rule: str
) -> None:
    with pytest.raises(WrongSumError, match=f"{rule}.*; a client did not .* masks hide which one"):
        slot_sums(_total(counts, weights, sums), 3, LIMITS, 3)


def test_a_slot_is_that_of_a_model() -> None:
    content = np.array([7, 8], np.uint32)
    assert placed(content, 1, 3).tolist() == [0, 0, 7, 8, 0, 0]
    with pytest.raises(ValueError, match=r"slot must be in 0..2, got 3"):
        placed(content, 3, 3)


def test_mean_and_deviation_of_the_accuracy() -> None:
    """0.5, 0.5 and 1.0: mean 2/3, deviation sqrt((0.25 + 0.25 + 1) / 3 - 4/9) = 0.2357."""
    vectors = [scored(accuracy, 3) for accuracy in (0.5, 0.5, 1.0)]
    total = dequantise(sum(vectors, np.zeros(3, np.uint32)), 3)
    assert mean_accuracy(total, 3) == pytest.approx((2 / 3, 0.235702), abs=1e-5)
    with pytest.raises(WrongSumError, match="counts of 2 clients"):
        mean_accuracy(total, 2)
    total[1] += 2
    with pytest.raises(WrongSumError, match=r"accuracies must be in 0..1"):
        mean_accuracy(total, 3)
