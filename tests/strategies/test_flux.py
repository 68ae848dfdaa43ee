"""FLUX: when descriptors are sent, which communities they give, and what false ones can do."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.common import FitRes

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))  # where user_networks is

from fl_app.client.latents import CLASS_LATENTS, LATENTS
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run
from fl_app.records.history import KEPT, UNDONE, read_rounds
from fl_app.strategies.fallback import LOOKS
from fl_app.strategies.flux import Flux
from fl_app.testing.toy import builder, context, honest, join, play, reply, roster
from fl_app.types import Vector
from fl_app.use.assign import by_certainty, by_descriptor
from fl_app.use.commands import assign
from fl_app.use.run import load_run
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import dataset

SMALL = (
    "population.clients=8", "population.train_samples=150",
    "population.test_samples=20", "network=mlp", "client.epochs=1", "client.learning_rate=0.1",
    "records.figures=false", "records.report=false", "tracking=none",
)  # fmt: skip
Client = Callable[[int, Vector, int], FitRes]


def _method(**changes: object) -> Flux:
    given = {"participation": 1.0, "cluster_round": 1, "descriptor": "data", "directions": 1}
    built = builder("flux", **(given | {"radius": 0.2} | changes))(context())
    assert isinstance(built, Flux)
    return built


def _telling(strategy: Flux, means: dict[int, float]) -> Client:
    """Return clients whose only direction has this mean, and the deviation 1."""

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = honest(client_id, start, server_round)
        asked = next(q for q in strategy.cohort.asked.values() if q.client_id == client_id)
        if LATENTS in asked.reports:
            told = np.array([means[client_id], 1.0], "<f4")
            answer.metrics[f"report.{LATENTS}"] = told.tobytes()
        return answer

    return client


def _asked(strategy: Flux) -> set[int]:
    return {each.client_id for each in strategy.cohort.asked.values() if LATENTS in each.reports}


def test_all_clients_send_descriptors_once_after_the_rounds_of_one_model() -> None:
    strategy, known = _method(cluster_round=2, participation=0.5), roster(8)
    for server_round, asked in ((1, 0), (2, 0), (3, 8), (4, 0)):
        play(strategy, known, range(server_round, server_round + 1))
        assert len(_asked(strategy)) == asked
        assert len(strategy.cohort.asked) == (8 if asked else 4)
    assert strategy.rejections.by_client == {}


MEANS = {client: float(client % 2) for client in range(12)}
"""Descriptors of two communities, whatever the clients' groups are."""


def _alike(strategy: Flux) -> Client:
    """Return clients of one group, with noise that tells them apart."""
    telling = _telling(strategy, MEANS | {12: 0.0})

    def client(client_id: int, start: Vector, server_round: int) -> FitRes:
        answer = telling(client_id, start, server_round)
        noise = np.random.default_rng(client_id + 100).normal(0, 1.0, len(start))
        noisy = reply((0.5 * start + noise).astype(np.float32))
        answer.parameters = noisy.parameters
        return answer

    return client


def test_communities_that_do_not_serve_their_clients_are_undone() -> None:
    strategy, known = _method(fallback=True), roster(12)
    found = dict[int, list[str]]()
    for now in range(1, 2 + LOOKS[0] + 1):
        play(strategy, known, range(now, now + 1), client=_alike(strategy))
        found[now] = [event.kind for event in strategy.events]
    assert strategy.rejections.by_client == {}
    assert {now: kinds for now, kinds in found.items() if kinds} == {
        2: ["clustered"], 2 + LOOKS[0]: [UNDONE],
    }  # fmt: skip
    assert len(strategy.state.communities.models) == 1
    join(known, 12)
    play(strategy, known, range(8, 10), client=_alike(strategy))
    assert strategy.state.communities.members == dict.fromkeys(range(13), 0)
    assert strategy.descriptors() is not None


def test_a_newcomer_during_the_trial_neither_trains_nor_judges_the_common_model() -> None:
    strategy, known = _method(fallback=True), roster(12)
    play(strategy, known, range(1, 4), client=_alike(strategy))
    join(known, 12)
    play(strategy, known, range(4, 5), client=_alike(strategy))
    assert 12 in strategy.state.communities.members
    assert 12 not in strategy.state.gains
    assert strategy.state.looks == dict.fromkeys(range(12), 2)


def test_groups_that_exist_are_kept_and_judged_again_after_a_refresh() -> None:
    strategy, known = _method(fallback=True, refresh=LOOKS[0] + 2), roster(12)
    groups = {client: float(client % 3) for client in range(12)}
    found = list[str]()
    for now in range(1, 2 * LOOKS[0] + 6):
        play(strategy, known, range(now, now + 1), client=_telling(strategy, groups))
        found += [event.kind for event in strategy.events]
    assert found == ["clustered", KEPT, "reclustered", KEPT]


@pytest.mark.parametrize("refresh", [2, 4])
def test_refreshes_that_find_the_same_communities_do_not_delay_the_verdict(refresh: int) -> None:
    strategy, known = _method(fallback=True, refresh=refresh), roster(12)
    found = list[str]()
    for now in range(1, 2 + LOOKS[0] + 1):
        play(strategy, known, range(now, now + 1), client=_alike(strategy))
        found += [event.kind for event in strategy.events]
    assert found == ["clustered", *["reclustered"] * (LOOKS[0] // refresh), UNDONE]


def test_a_refresh_that_changes_the_communities_begins_their_trial_anew() -> None:
    strategy, known = _method(fallback=True, refresh=3), roster(4)
    means = {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9, 4: 0.0}
    client = _telling(strategy, means)
    play(strategy, known, range(1, 5), client=client)
    assert strategy.state.split_at == 2
    means |= {0: 1.0, 1: 0.9, 2: 0.0, 3: 0.1}
    join(known, 4)  # makes the former second community the first
    play(strategy, known, range(5, 6), client=client)
    assert strategy.state.described_at == 5
    assert strategy.state.communities.members == {0: 1, 1: 1, 2: 0, 3: 0, 4: 0}
    assert strategy.state.split_at == 2
    means[1] = 0.0
    play(strategy, known, range(6, 9), client=client)
    assert strategy.state.split_at == 8
    means |= dict.fromkeys(means, 0.5)
    play(strategy, known, range(9, 12), client=client)
    assert len(strategy.state.communities.models) == 1
    assert strategy.state.common is None


def test_communities_by_hand_and_a_newcomer_that_joins_the_nearest() -> None:
    strategy, known = _method(), roster(4)
    client = _telling(strategy, {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9, 4: 0.7, 5: -50.0})
    play(strategy, known, range(1, 3), client=client)
    # the scale is 0 to 1, and neighbours are within 0.2
    members = {0: 0, 1: 0, 2: 1, 3: 1}
    assert strategy.state.communities.members == members
    assert [event.kind for event in strategy.events] == ["clustered"]
    before = strategy.state.communities.models.copy()
    join(known, 4)
    join(known, 5)
    sent = dict[int, Vector]()

    def only_the_new(client_id: int, start: Vector, server_round: int) -> FitRes | None:
        sent[client_id] = start
        return client(client_id, start, server_round) if client_id > 3 else None

    play(strategy, known, range(3, 4), client=only_the_new)
    assert strategy.state.communities.members == members | {4: 1, 5: 0}
    np.testing.assert_array_equal(sent[4], strategy.state.reference)
    np.testing.assert_array_equal(strategy.state.communities.models, before)  # not trained by them
    play(strategy, known, range(4, 5), client=client)
    assert _asked(strategy) == set()


def test_the_reference_is_the_one_model_and_the_replies_of_its_round_count() -> None:
    strategy, known = _method(), roster(4)
    client = _telling(strategy, {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9})
    play(strategy, known, range(1, 2), client=client)
    one = strategy.state.communities.models[0].copy()
    play(strategy, known, range(2, 3), client=client)
    np.testing.assert_array_equal(strategy.state.reference, one)
    first, second = strategy.state.communities.models
    assert np.linalg.norm(first - one) > 0.1
    assert np.linalg.norm(first - second) > 0.1


def test_refreshed_descriptors_move_a_client_and_each_community_keeps_its_model() -> None:
    strategy, known = _method(refresh=2), roster(4)
    means = {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9}
    client = _telling(strategy, means)
    play(strategy, known, range(1, 4), client=client)
    before = strategy.state.communities.models.copy()
    assert strategy.state.communities.members == {0: 0, 1: 0, 2: 1, 3: 1}
    strategy.chose({9: 1})  # without descriptors, by its loss
    means[1] = 0.8
    play(strategy, known, range(4, 5), client=client)
    assert _asked(strategy) == {0, 1, 2, 3}
    # the larger one is now the first, and continues the model of the former second
    assert strategy.state.communities.members == {0: 1, 1: 0, 2: 0, 3: 0}
    np.testing.assert_array_equal(strategy.state.communities.models, before[[1, 0]])
    assert [event.kind for event in strategy.events] == ["reclustered"]
    assert strategy.state.evaluated == {}
    play(strategy, known, range(5, 6), client=client)
    assert _asked(strategy) == set()


@pytest.mark.parametrize("told", [1e12, -1e12])
def test_a_far_descriptor_moves_only_its_teller(told: float) -> None:
    strategy = _method()
    means = {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9, 4: 0.05, 5: 0.95, 6: told}
    play(strategy, roster(7), range(1, 3), client=_telling(strategy, means))
    members = strategy.state.communities.members
    assert members == {0: 0, 1: 0, 4: 0, 2: 1, 3: 1, 5: 1, 6: 2}


def test_a_descriptor_between_two_communities_joins_them_as_the_page_says() -> None:
    means = {0: 0.0, 1: 0.1, 2: 1.0, 3: 0.9, 4: 0.5}
    strategy = _method(radius=0.45)
    play(strategy, roster(5), range(1, 3), client=_telling(strategy, means))
    assert set(strategy.state.communities.members.values()) == {0}
    means[4] = 0.1
    honest_one = _method(radius=0.45)
    play(honest_one, roster(5), range(1, 3), client=_telling(honest_one, means))
    assert honest_one.state.communities.members == {0: 0, 1: 0, 4: 0, 2: 1, 3: 1}


def test_auto_waits_for_a_stable_loss_and_at_most_for_most_of_the_rounds() -> None:
    def clustered_in(losses: list[float], rounds: int = 10) -> int | None:
        built = builder("flux", cluster_round="auto", stable_below=0.1)(context(rounds=rounds))
        assert isinstance(built, Flux)
        known = roster(4)
        for server_round in range(1, rounds + 1):

            def client(client_id: int, start: Vector, now: int) -> FitRes:
                answer = honest(client_id, start, now)
                answer.metrics["loss"] = losses[min(now, len(losses)) - 1]
                return answer

            play(built, known, range(server_round, server_round + 1), client=client)
            if built.state.described_at is not None:
                return built.state.described_at
        return None

    # the loss falls by 0.05 in round 2, which is too early, and by 0.02 in round 5
    assert clustered_in([1.0, 0.95, 0.8, 0.6, 0.58]) == 6
    assert clustered_in([1.0 - 0.11 * k for k in range(9)]) == 9
    assert clustered_in([1.0, 1.0, 1.0]) == 4


@pytest.mark.parametrize("population", ["rotation", "label_swap"])
def test_on_digits_the_planted_groups_are_found(
    population: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = [
        "strategy=flux", "strategy.cluster_round=3", f"population={population}",
        "population.groups=2", "rounds=6", "strategy.radius_scale=1.25", *SMALL,
    ]  # fmt: skip
    run(words, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["communities"]["ari"] == 1.0
    assert summary["clients"]["failed"] == summary["clients"]["rejected"] == 0
    assert read_rounds(tmp_path)[2]["phase"] == "federated"
    if population == "rotation":
        _placed_without_labels(tmp_path)
        _placed_by_the_command(tmp_path, capsys)


def _placed_without_labels(folder: Path) -> None:
    finished = load_run(folder)
    scorer = Scorer(finished, config_of(folder, []))
    for client in range(8):
        inputs = scorer.client(client).load(6).test_images
        found = by_descriptor(scorer, inputs)
        assert (found.model,) == finished.clients[client]
        assert found.values.keys() == {"community_0", "community_1"}
    assert by_certainty(scorer, inputs).model in found.values
    assert finished.serving["descriptors"].keys() == {"low", "high", "means"}
    reference, community = (finished.shared(n) for n in ("reference", "community_0"))
    assert any(not np.array_equal(each, community[key]) for key, each in reference.items())
    assert isinstance(inputs, torch.Tensor)


def _placed_by_the_command(folder: Path, capsys: pytest.CaptureFixture) -> None:
    finished = load_run(folder)
    images = dataset(load(["data=digits"]).data, 0).test_images[:60]
    for group, given in enumerate((images, images[:, :, ::-1, ::-1])):
        np.save(folder / "x.npy", given)
        capsys.readouterr()
        assign([str(folder), "--data", str(folder / "x.npy"), "--without-labels"])
        said = capsys.readouterr().out
        community = int(said.partition(",")[0].removeprefix("community_"))
        assert {client % 2 for client in finished.communities[community]} == {group}
        assert ": distance 0." in said


def test_privacy_is_refused_and_a_network_without_a_dense_layer_too() -> None:
    with pytest.raises(ConfigError, match=r"privacy must be none with fl_app\.strategies\.flux"):
        load(["strategy=flux", "privacy=local_dp", *SMALL], also=problems)
    plain = ["network=mcmahan_cnn", "network._target_=user_networks.without_dense"]
    with pytest.raises(ConfigError, match=r"must have a dense layer"):
        load(["strategy=flux", *SMALL, *plain], also=problems)


def test_descriptors_of_classes_need_classes_and_those_of_inputs_do_not() -> None:
    assert set(_method(descriptor="classes").asks) == {LATENTS, CLASS_LATENTS}
    assert set(_method().asks) == {LATENTS}
