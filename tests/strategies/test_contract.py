"""One contract for every strategy: the same cases, whatever the method."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.common import Code, FitRes, Parameters, Status

sys.path.insert(0, str(Path(__file__).parent))
from toy import SIZE, honest, play, reply, roster, setting

from fl_app.strategies.base import CommunityStrategy, Setting
from fl_app.strategies.fedavg import FedAvg, FedMedian
from fl_app.strategies.flic import Flic
from fl_app.strategies.replies import TooFewRepliesError


def _flic(given: Setting) -> Flic:
    return Flic(given, participation=0.5, cluster_round=5)


STRATEGIES = {
    "fedavg": lambda given: FedAvg(given, participation=0.5),
    "fedmedian": lambda given: FedMedian(given, participation=0.5),
    "flic": _flic,
    "flic median": lambda given: Flic(given, participation=0.5, cluster_round=5, rule="median"),
}


@pytest.fixture(params=list(STRATEGIES))
def build(request: pytest.FixtureRequest):
    return STRATEGIES[request.param]


def _models(strategy: CommunityStrategy) -> np.ndarray:
    return strategy.communities.models


def test_runs_are_repeatable_and_do_not_depend_on_reply_order(build) -> None:
    first, second = build(setting()), build(setting())
    play(first, roster(12), range(1, 9))
    play(second, roster(12), range(1, 9), reverse=True)
    np.testing.assert_array_equal(_models(first), _models(second))
    assert first.communities.members == second.communities.members


def test_another_seed_samples_other_clients(build) -> None:
    first, second = build(setting()), build(setting(seed=1))
    play(first, roster(12), range(1, 2))
    play(second, roster(12), range(1, 2))
    assert first.cohort != second.cohort


@pytest.mark.parametrize("stop", [3, 5, 7])
def test_restored_strategy_goes_on_as_if_nothing_had_happened(build, stop: int) -> None:
    whole = build(setting())
    play(whole, roster(12), range(1, 9))
    before, after = build(setting()), build(setting())
    play(before, roster(12), range(1, stop + 1))
    after.restore(*before.checkpoint())
    play(after, roster(12), range(stop + 1, 9))
    np.testing.assert_array_equal(_models(whole), _models(after))
    assert whole.communities.members == after.communities.members


def test_no_more_clients_are_measured_than_asked_for_and_others_each_time(build) -> None:
    known = roster(12)

    def examined(most: int | None) -> list[set[int]]:
        strategy = build(setting(evaluate_at_most=most, evaluate_every=1))
        parameters = strategy.initialize_parameters(known)
        found = []
        for server_round in (1, 2):
            instructions = strategy.configure_evaluate(server_round, parameters, known)
            found.append({known.client_id(proxy) for proxy, _ in instructions})
        return found

    assert examined(None) == examined(12) == [set(range(12))] * 2
    first, second = examined(5)
    assert len(first) == len(second) == 5
    assert first != second
    assert examined(5) == [first, second]


def test_a_single_client_is_a_federation(build) -> None:
    strategy = build(setting())
    play(strategy, roster(1), range(1, 9))
    assert np.isfinite(_models(strategy)).all()
    assert len(_models(strategy)) == 1


def test_a_client_that_vanishes_is_not_asked_again(build) -> None:
    strategy, known = build(setting()), roster(12)
    play(strategy, known, range(1, 7))
    known.unregister(known.proxies()[3])
    for server_round in range(7, 11):
        play(strategy, known, range(server_round, server_round + 1))
        assert 3 not in strategy.cohort


def _raw(tensors: list[bytes]) -> FitRes:
    return FitRes(Status(Code.OK, ""), Parameters(tensors, "numpy.ndarray"), 10, {"loss": 0.5})


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _with(value: float) -> np.ndarray:
    model = np.zeros(SIZE, np.float32)
    model[2] = value
    return model


BAD = {
    "nan": (lambda: reply(_with(np.nan)), "1 parameters are not finite"),
    "infinity": (lambda: reply(_with(np.inf)), "1 parameters are not finite"),
    "shape": (lambda: reply(np.zeros(SIZE + 1, np.float32)), f"expected {SIZE} parameters, got 7"),
    "rank": (lambda: _raw([_npy(np.zeros((2, 3), np.float32))]), "flat float32 vector"),
    "dtype": (lambda: _raw([_npy(np.zeros(SIZE))]), "float64"),
    "garbage": (lambda: _raw([b"not an array"]), "magic"),
    "nothing": (lambda: _raw([]), "expected one flat array, got 0"),
    "loss": (lambda: reply(_with(0.0), loss=float("nan")), "training loss is nan"),
    "samples": (lambda: reply(_with(0.0), samples=0), "num_examples must be positive, got 0"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_a_bad_reply_is_named_and_never_reaches_a_sum(build, case: str) -> None:
    make, message = BAD[case]
    with_bad, without = build(setting()), build(setting())
    known = roster(12)
    target: list[int] = []

    def client(client_id: int, start: np.ndarray, server_round: int) -> FitRes:
        target[:] = target or [client_id]
        return make() if client_id == target[0] else honest(client_id, start, server_round)

    play(with_bad, known, range(1, 2), client=client)
    assert list(with_bad.rejected) == target
    assert message in with_bad.rejected[target[0]]
    instructions = without.configure_fit(1, without.initialize_parameters(known), known)
    good = [
        (proxy, honest(known.client_id(proxy), np.zeros(SIZE, np.float32), 1))
        for proxy, _ in instructions
        if known.client_id(proxy) != target[0]
    ]
    without.aggregate_fit(1, good, [])
    np.testing.assert_array_equal(_models(with_bad), _models(without))


def test_too_few_valid_replies_stop_the_round_and_change_nothing(build) -> None:
    strategy = build(setting(min_success=4))
    play(strategy, roster(12), range(1, 3))
    before = _models(strategy).copy()
    with pytest.raises(TooFewRepliesError, match=r"brought 0 valid replies of 6 asked.*is 4"):
        play(strategy, roster(12), range(3, 4), client=lambda *_: _raw([]))
    np.testing.assert_array_equal(_models(strategy), before)
