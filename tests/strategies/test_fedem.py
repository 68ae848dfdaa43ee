"""FedEM and FedRC: mixtures of clients, what a false weight can do, and the shares of classes."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.common import FitRes

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.params import to_bytes
from fl_app.strategies.fedem import FedEm, summing_to_one
from fl_app.strategies.fedrc import FedRc
from fl_app.strategies.serving import served
from fl_app.strategies.state import Communities
from fl_app.testing.toy import MIXTURE, builder, context, honest, play, roster
from fl_app.types import Between, Vector

Client = Callable[[int, Vector, int], FitRes]


def _method(
    name: str, rounds: int, report: str, told: list[list[float]], **options: object
) -> FedEm:
    """Return a method after some rounds in which client c told `told[c]`."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        answer.num_examples = 10
        if any(report in each.reports for each in built.cohort.asked.values()):
            answer.metrics[f"report.{report}"] = np.array(told[client_id], "<f4").tobytes()
        return answer

    built = builder(name, participation=1.0, **options)(context())
    assert isinstance(built, FedEm)
    play(built, roster(len(told)), range(1, rounds + 1), client=client)
    assert built.rejections.by_client == {}
    return built


def test_a_client_gets_all_components_and_its_own_weights() -> None:
    method = _method("fedem", 2, "weights", [[0.25, 0.75], [1, 0]])
    models, rows = method.attribute([0, 1, 9])
    assert rows == [(0,), (1,), (2,)]
    part = MIXTURE.parts["weights"]
    # client 9 has never trained
    np.testing.assert_allclose(models[:, part], [[0.25, 0.75], [1, 0], [0.5, 0.5]])
    components = models[:, : part.start]
    np.testing.assert_allclose(components, np.repeat(components[:1], 3, axis=0), rtol=1e-6)
    view = method.view(2)
    assert view is not None
    assert view.labels.tolist() == [1, 0]
    np.testing.assert_allclose(view.similarity, [[0.625, 0.25], [0.25, 1]])
    assert method.outcome(2).assignment == {0: 1, 1: 0}


def test_the_weights_of_a_client_are_what_is_saved_of_its_model() -> None:
    method = _method("fedem", 1, "weights", [[0.25, 0.75], [1, 0]])
    found = served(method, [0, 1], 1)
    assert found.models == {}
    assert found.mixtures[found.clients[0][0]] == {"community_0": 0.25, "community_1": 0.75}
    assert found.mixtures[found.clients[1][0]] == {"community_0": 1.0}


def test_weights_that_a_client_claims_are_scaled() -> None:
    method = _method("fedem", 1, "weights", [[1, 1], [0, 0], [0.5, 0.125]])
    np.testing.assert_allclose(method.weights_of([0, 1, 2]), [[0.5, 0.5], [0.5, 0.5], [0.8, 0.2]])
    np.testing.assert_allclose(summing_to_one(np.array([[3.0, 1.0]])), [[0.75, 0.25]])


def test_shares_of_classes_by_hand() -> None:
    # two components of three classes: client 0 is wholly in the first one, client 1 half in each
    told = [[0.5, 0.5, 0, 0, 0, 0], [0.25, 0.25, 0, 0.25, 0, 0.25]]
    method = _method("fedrc", 1, "class_weights", told)
    assert isinstance(method, FedRc)
    np.testing.assert_allclose(method.weights_of([0, 1]), [[1, 0], [0.5, 0.5]])
    close = {"atol": 1e-7}
    np.testing.assert_allclose(method.priors(), [[0.5, 0.5, 0], [0.5, 0, 0.5]], **close)
    assert (method.priors() > 0).all()


@pytest.mark.parametrize("weighting", ["samples", "capped", "uniform"])
def test_shares_of_classes_do_not_depend_on_who_trained_together(weighting: str) -> None:
    samples = [100, 100, 1000, 1000]
    told = [[0.5, 0, 0, 0.5, 0, 0]] * 2 + [[0, 0.5, 0, 0, 0.5, 0]] * 2

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        answer.num_examples = samples[client_id]
        answer.metrics["report.class_weights"] = np.array(told[client_id], "<f4").tobytes()
        return answer

    def priors(*cohorts: list[int]) -> Between:
        made = builder("fedrc", participation=1.0, weighting=weighting)(context(sample_cap=3.0))
        assert isinstance(made, FedRc)
        for number, cohort in enumerate(cohorts, 1):
            made.sampler.draw = lambda *_, now=cohort: list(now)  # type: ignore[method-assign]
            known = roster(4)
            known.samples = lambda client: samples[client]  # type: ignore[method-assign]
            play(made, known, range(number, number + 1), client=client)
        assert made.rejections.by_client == {}
        return made.priors()

    # the lower median of all is 100 samples, so that a cap of 3 counts 300 of 1,000
    first = {"samples": 1 / 11, "capped": 1 / 4, "uniform": 1 / 2}[weighting]
    together = priors([0, 1, 2, 3])
    np.testing.assert_allclose(together, [[first, 1 - first, 0]] * 2, atol=1e-7)
    np.testing.assert_allclose(priors([0, 1], [2, 3]), together)
    np.testing.assert_allclose(priors([2], [0, 3], [1]), together)


def test_shares_of_classes_are_sent_from_the_second_round_on() -> None:
    method = builder("fedrc", participation=1.0)(context())
    known = roster(3)
    first = method.initialize_parameters(known)
    assert all("priors" not in ins.config for _, ins in method.configure_fit(1, first, known))
    play(method, known, range(1, 2))
    (_, ins), *_ = method.configure_fit(2, first, known)
    sent = np.frombuffer(ins.config["priors"], "<f4").reshape(2, 3)
    np.testing.assert_allclose(np.exp(sent).sum(axis=1), 1, rtol=1e-5)


def test_what_has_no_mixture_is_refused() -> None:
    told = "must have one kind of model, got .*; use network=mixture, or a strategy such as flic"
    with pytest.raises(ConfigError, match=told):
        load(["strategy=fedem"], also=problems)
    with pytest.raises(ConfigError, match=r"privacy must be none with fl_app\.strategies\.fedrc"):
        load(["strategy=fedrc", "network=mixture", "privacy=local_dp"], also=problems)


@pytest.mark.parametrize("name", ["fedem", "fedrc"])
def test_the_common_model_has_the_whole_weight_on_the_component_of_most(name: str) -> None:
    method, known = builder(name, participation=1.0, fallback=True)(context(rounds=9)), roster(3)
    assert isinstance(method, FedEm)
    part = MIXTURE.parts["weights"]
    report = "weights" if name == "fedem" else "class_weights"
    told = np.array([0.25, 0.75] if name == "fedem" else [0.25, 0, 0, 0.75, 0, 0], "<f4")

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        if report in next(iter(method.cohort.asked.values())).reports:
            answer.metrics[f"report.{report}"] = told.tobytes()
        trained = np.array(start + 1.0, np.float32)
        trained[part] = start[part]  # a client does not change the weights
        answer.parameters.tensors[0] = to_bytes(trained)
        return answer

    play(method, known, range(1, 4), client=client)
    components = method.state.communities.models[0, : part.start].copy()
    assert method.state.common is not None
    np.testing.assert_array_equal(method.state.common[part], [0, 1])
    first = method.initialize_parameters(known)
    asked_now = method.configure_fit(4, first, known)
    assert all("priors" not in ins.config for _, ins in asked_now)
    play(method, known, range(4, 5), client=client)
    np.testing.assert_array_equal(method.state.common[part], [0, 1])
    np.testing.assert_allclose(method.state.common[: part.start], components + 1, rtol=1e-6)
    np.testing.assert_array_equal(method.state.communities.models[0, : part.start], components)


def test_weight_on_one_component_alone_is_nothing_to_judge() -> None:
    told = [[0.001, 0.999], [0, 1]]
    method = _method("fedem", 9, "weights", told, fallback=True)
    assert not method.state.judged
    assert _method("fedem", 9, "weights", [[0.25, 0.75], [0, 1]], fallback=True).state.judged


def test_after_they_were_undone_the_mixtures_are_saved_as_one_model() -> None:
    method = _method("fedem", 1, "weights", [[0.25, 0.75], [1, 0]], fallback=True)
    method.state.one = True
    method.state.communities = Communities(method.state.communities.models[1:], {0: 0, 1: 0})
    found = served(method, [0, 1, 2], 2)
    assert not found.models
    assert not found.mixtures
    assert {*found.clients.values()} == {("community_0",)}
