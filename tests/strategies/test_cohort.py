"""What of an update is bounded: parts that are short beside others, and what no distance shows."""

import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.common import FitRes

sys.path.insert(0, str(Path(__file__).parent))
from methods import builder

from fl_app.params import Layout, from_bytes
from fl_app.strategies.state import load, save
from fl_app.testing.toy import SIZE, TARGETS, context, honest, play, reply, roster

LIAR = 3


def _honest_model(client: int, start: np.ndarray, server_round: int) -> np.ndarray:
    return from_bytes(honest(client, start, server_round).parameters.tensors[0])


@pytest.mark.parametrize(("times", "rejected"), [(1.0, False), (30.0, False), (1e4, True)])
def test_long_buffers_hide_no_long_update_of_what_is_trained(times: float, rejected: bool) -> None:
    """The buffers move by 1e6, as the variances of inputs that are not scaled."""
    layout = Layout(("w", "running_var"), ((2, 2), (2,)), 1)
    strategy = builder("fedavg", participation=1.0)(
        context(
            layout=layout, initial=np.ones(SIZE, np.float32), clip_update=2.0, largest_update=1e3
        )
    )

    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        update = np.repeat([times if who == LIAR else 1.0, 1e6], [4, 2])
        return reply((start + update).astype(np.float32))

    play(strategy, roster(12), range(1, 2), client=client)
    moved = strategy.state.communities.models[0] - 1
    assert {*strategy.rejections.by_client} == ({LIAR} if rejected else set())
    assert moved[:4].max() <= (11 + min(times, 2.0)) / 12 + 1e-3
    np.testing.assert_allclose(moved[4:], 1e6, rtol=1e-3)


@pytest.mark.parametrize("trainable", [1, 2])
@pytest.mark.parametrize("method", ["communities", "communities_wnn", "dcfl"])
def test_far_buffers_or_biases_of_one_client_do_not_move_its_community(
    method: str, trainable: int
) -> None:
    """The trusted distance shows neither, and DCFL's no buffers, so that it is in its group."""

    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        model = _honest_model(who, start, now).copy()
        model[4:] += 100 if who == LIAR else 0
        return reply(model)

    layout = Layout(("w", "b"), ((2, 2), (2,)), trainable)
    given = context(layout=layout, clip_update=2.0, largest_update=1e3)
    strategy = builder(method, participation=1.0)(given)
    play(strategy, roster(12), range(1, 8), client=client)
    models, offers = strategy.attribute([0, 6, 9])  # its group
    assert {*strategy.rejections.by_client} <= {LIAR}
    for (row,) in offers:
        np.testing.assert_allclose(models[row, 4:], TARGETS[0, 4:], atol=2)


@pytest.mark.parametrize(
    ("method", "settings", "contrast"),
    [
        ("communities", {"similarity": "cosine"}, False),
        ("communities", {}, True),
        ("dcfl", {}, True),
    ],
)
def test_a_long_model_in_the_direction_of_its_group_does_not_decide_it(
    method: str, settings: dict[str, str], contrast: bool
) -> None:
    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        return reply(_honest_model(who, start, now) * np.float32(9 if who == LIAR else 1))

    given = context(contrast=contrast, clip_update=2.0, largest_update=1e3)
    strategy = builder(method, participation=1.0, **settings)(given)
    play(strategy, roster(12), range(1, 8), client=client)
    models, offers = strategy.attribute([0, 6, 9])  # its group
    for (row,) in offers:
        np.testing.assert_allclose(models[row], TARGETS[0], atol=2)


def test_what_is_trained_is_shortened_beside_long_buffers_where_no_distance_shows_a_length() -> (
    None
):
    layout = Layout(("w", "running_var"), ((2, 2), (2,)), 1)
    first = np.ones(SIZE, np.float32)
    given = context(layout=layout, initial=first, clip_update=2.0, largest_update=1e3)
    strategy = builder("communities", participation=1.0, similarity="cosine")(given)

    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        update = np.repeat([30.0 if who == LIAR else 1.0, 1e6], [4, 2])
        return reply((start + update).astype(np.float32))

    play(strategy, roster(12), range(1, 2), client=client)
    models, ((row,),) = strategy.attribute([0])
    assert models[row, :4].max() <= 1 + 13 / 12 + 1e-3


@pytest.mark.parametrize("method", ["communities", "communities_1nn", "dcfl"])
def test_a_long_update_that_is_in_its_group_does_not_decide_it(method: str) -> None:
    """It is nearer to its own group than to the others, which are far apart."""

    def client(who: int, start: np.ndarray, now: int) -> FitRes:
        model = _honest_model(who, start, now).copy()
        model[1] += 3 if who == LIAR and now in (3, 4) else 0
        return reply(model)

    strategy = builder(method, participation=1.0)(context(clip_update=2.0))
    play(strategy, roster(12), range(1, 5), client=client)
    members = strategy.state.communities.members
    models, offers = strategy.attribute([0, 6, 9])
    assert members[LIAR] == members[0]
    for (row,) in offers:
        np.testing.assert_allclose(models[row], TARGETS[0], atol=0.8)
    arrays, values = save(strategy.state)
    again = builder(method, participation=1.0)(context(clip_update=2.0))
    load(again.state, arrays, values)
    assert again.state.shares == strategy.state.shares
    assert {*strategy.state.shares} == {LIAR}
