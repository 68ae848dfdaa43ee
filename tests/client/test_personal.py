"""What each client has of its own: a model (Ditto), or the last layers (FedPer, FedRep)."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from fl_app import client_wiring, wiring
from fl_app.client.learner import TrainingJob
from fl_app.client.local import LocalClient
from fl_app.client.personal import Ditto, FedRep, Personal, Shared, head_of
from fl_app.client.recipe import Recipe
from fl_app.client.sgd import SgdLearner
from fl_app.client_app import ContextMemory
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.params import FlatModule

SMALL = ["population.clients=2", "population.groups=1", "population.train_samples=20",
         "population.test_samples=10", "strategy=fedavg", "strategy.participation=1", "rounds=2",
         "client.epochs=1", "network=mlp", "network.hidden=[4]"]  # fmt: skip
HEAD = ("3.weight", "3.bias")


def _clients(*more: str) -> tuple[np.ndarray, list[LocalClient]]:
    config = load([*SMALL, *more])
    memories = [ContextMemory(RecordDict()) for _ in range(2)]
    clients = [client_wiring.client(config, c, memory=m) for c, m in enumerate(memories)]
    return wiring.initial_model(config)[1], clients


def _learner(weight: float, recipe: Recipe) -> SgdLearner:
    """Return a learner of one input and two classes with learning rate 0.1 on all its samples."""
    settings = replace(load(SMALL).client, learning_rate=0.1, batch_size=10)
    module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    nn.init.constant_(module[0].weight, weight)
    built = SgdLearner(FlatModule(module), settings, classes=2)
    built.recipe = recipe
    return built


def test_the_own_model_is_pulled_to_the_received_one_from_where_it_was_left() -> None:
    """No gradient from inputs of zero: `3 - 0.1 * 2 (3 - 1) = 2.6`, then `2.6 - 0.2 * 1.6 = 2.28`.

    The target w is 1 in each of the three entries.
    """
    personal = Ditto(proximal=2.0, epochs=2)
    learner = _learner(1.0, Recipe(personal=personal))
    job = TrainingJob(
        np.ones(3, np.float32), torch.zeros(4, 1), torch.zeros(4).long(), torch.Generator()
    )
    left = {"0.weight": np.full((1, 1), 3.0, np.float32)}
    own = learner.own_model(job, left)
    assert own["0.weight"].tolist() == [[pytest.approx(2.28)]]
    assert own["1.weight"].tolist() == [[1.0], [1.0]]  # of which it had none: as received
    learner.flat.own = {}
    assert learner.train(job).model.tolist() == [1.0, 1.0, 1.0]


def test_the_head_is_trained_before_the_rest() -> None:
    """One step each on x = 1, y = 0 from w = 1 and head (1, 1), where both classes have 1/2.

    The head becomes `1 + 0.1 / 2` and `1 - 0.1 / 2`. Then the rest has the gradient
    `(p - 1) * 1.05 + (1 - p) * 0.95 = -0.1 (1 - p)` with `p = 1 / (1 + exp(-0.1)) = 0.524979`.
    """
    learner = _learner(1.0, Recipe(personal=FedRep(head=[], head_epochs=1)))
    job = TrainingJob(
        np.ones(3, np.float32), torch.ones(1, 1), torch.zeros(1).long(), torch.Generator()
    )
    model = learner.train(job).model
    np.testing.assert_allclose(model, [1 + 0.1 * 0.1 * 0.475021, 1.05, 0.95], rtol=1e-6)
    assert all(each.requires_grad for each in learner.flat.module.parameters())


class _Drawing(nn.Module):
    """Draws a number in each batch, as dropout draws a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[float] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.drawn.append(float(torch.rand(())))
        return inputs


def _drawn(personal: Personal) -> tuple[list[float], list[float]]:
    """Return what a layer and a transform draw for one sample in two epochs of each phase."""
    images = []

    def transform(image: torch.Tensor) -> torch.Tensor:
        images.append(float(torch.rand(())))
        return image

    layer = _Drawing()
    module = nn.Sequential(nn.Linear(1, 1, bias=False), layer, nn.Linear(1, 2, bias=False))
    settings = replace(load(SMALL).client, epochs=2)
    learner = SgdLearner(FlatModule(module), settings, classes=2)
    learner.recipe = Recipe(personal=personal, transform=transform)
    job = TrainingJob(
        np.ones(3, np.float32), torch.ones(1, 1), torch.zeros(1).long(), torch.Generator(),
        layers_seed=7,
    )  # fmt: skip
    learner.train(job)
    return layer.drawn, images


def test_each_phase_has_draws_of_its_own_and_the_first_those_of_training_without_phases() -> None:
    of_one, of_two = _drawn(Shared()), _drawn(FedRep(head=[], head_epochs=2))
    for one, two in zip(of_one, of_two, strict=True):
        assert len({*two}) == 4
        assert two[:2] == one
    assert _drawn(FedRep(head=[], head_epochs=2)) == of_two


def test_the_own_model_has_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds, train = [], SgdLearner._train

    def noted(learner: SgdLearner, job: TrainingJob, *rest: Any, **more: Any) -> float:
        seeds.append(job.layers_seed)
        return train(learner, job, *rest, **more)

    monkeypatch.setattr(SgdLearner, "_train", noted)
    for _ in range(2):
        start, clients = _clients("personal=ditto")
        for client in clients:
            client.fit(start, server_round=1)
    assert len(seeds) == 8
    assert len({*seeds}) == 4


def test_the_head_is_the_last_layer_or_what_matches() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    assert head_of(module, []) == ("2.weight", "2.bias")
    assert head_of(module, ["1.*", "2.weight"]) == (
        "1.weight", "1.bias", "2.weight",
        "1.running_mean", "1.running_var", "1.num_batches_tracked",
    )  # fmt: skip
    module[2].requires_grad_(False)  # the last one that is trained
    assert head_of(module[:1].append(module[2]).insert(0, nn.Linear(2, 2)), []) == (
        "1.weight", "1.bias")  # fmt: skip


@pytest.mark.parametrize("choice", ["fedper", "fedrep"])
def test_only_the_rest_of_the_model_is_sent(choice: str) -> None:
    layout, _ = wiring.initial_model(load([*SMALL, f"personal={choice}"]))
    assert layout.names == ("1.weight", "1.bias")
    start, clients = _clients(f"personal={choice}")
    heads = []
    for client in clients:
        assert len(client.fit(start, server_round=1).model) == layout.size
        assert client.memory is not None
        heads.append(dict(client.memory.read(1)))
        assert tuple(sorted(heads[-1])) == tuple(sorted(HEAD))
    assert not np.array_equal(heads[0]["3.weight"], heads[1]["3.weight"])
    clients[0].score(start, train_data=False, server_round=1)
    np.testing.assert_array_equal(clients[0].learner.flat.local_state()["3.weight"],
                                  heads[0]["3.weight"])  # fmt: skip


def test_an_own_model_changes_nothing_that_is_sent_and_is_scored_in_its_place() -> None:
    start, plain = _clients()
    sent = [client.fit(start, server_round=1).model.copy() for client in plain]
    _, clients = _clients("personal=ditto")
    scores = [each.score(start, train_data=False, server_round=0).loss for each in clients]
    assert scores == [each.score(start, train_data=False, server_round=0).loss for each in plain]
    for client, model in zip(clients, sent, strict=True):
        np.testing.assert_array_equal(client.fit(start, server_round=1).model, model)
    for client, other, before in zip(clients, plain, scores, strict=True):
        assert client.score(start, train_data=False, server_round=1).loss < before
        shared = client.score(start, train_data=True, server_round=1)  # by which models are chosen
        assert shared == other.score(start, train_data=True, server_round=1)
        offered = client.offered_losses([start, sent[0]], server_round=2, task={})
        assert offered.argmin() == 1
    np.testing.assert_array_equal(clients[0].fit(sent[1], server_round=2).model,
                                  plain[0].fit(sent[1], server_round=2).model)  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["personal=ditto", "network=centroids", "strategy=kmeans"], "personal must be none with"),
        (["personal=fedper", "network=mixture", "strategy=fedem"], "personal must be none with"),
        (["personal=fedper", "personal.head=[4.*]"], r"match a trained parameter, got '4\.\*'"),
        (["personal=fedper", "personal.head=['*']"], "must leave a layer that clients share"),
        (["personal=fedrep", "records.central_test=true"], "must be false with personal=fedrep"),
        (["personal=fedper", "strategy=ifca", "strategy.fallback=true"],
         "strategy.fallback must be false with personal=fedper and fl_app.strategies.ifca"),
        (["client.batch_norm=local", "network=mobilenet", "strategy=ifca",
          "strategy.fallback=true"],
         "strategy.fallback must be false with client.batch_norm=local and"),
        (["personal=fedper", "graph.benign=root"], "must be largest with personal=fedper"),
        (["personal=ditto", "client.batch_norm=local"], "must be average with personal=ditto"),
        (["personal=fedrep", "privacy=sample_dp"], "which has no personal other than none"),
        (["personal=ditto", "client.learner=fl_app.client.mixture.MixtureLearner"],
         "personal must be none"),
        (["personal=ditto", "personal.proximal=-1"], "personal.proximal must be"),
        (["personal._target_=fl_app.client.privacy.NoPrivacy"], "must name a subclass of"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load([*SMALL[:-2], *(SMALL[-2:] if "network" not in "".join(overrides) else []),
              *overrides], also=problems)  # fmt: skip


def test_noise_hides_only_what_is_sent() -> None:
    config = load([*SMALL, "personal=fedper", "privacy=local_dp"], also=problems)
    layout, start = wiring.initial_model(config)
    memory = ContextMemory(RecordDict())
    client = client_wiring.client(config, 0, memory=memory)
    assert client.entries is not None
    assert client.entries.slices == (layout.direction,)
    assert len(client.fit(start, server_round=1, task={"sigma": 1.0}).model) == len(start)
    assert np.abs(memory.read(1)["3.weight"]).max() < 10


@pytest.mark.parametrize(
    "words",
    [
        ("personal=fedrep", "personal.head_epochs=1000000000"),
        ("personal=ditto", "personal.epochs=1000000000"),
    ],
)
def test_a_trial_before_the_run_trains_no_part_for_long(words: tuple[str, ...]) -> None:
    load([*SMALL, *words], also=problems)
