"""A mixture of networks: answers, responsibilities and loss by hand, and what a client tells."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_app.client.initial_network import drawn
from fl_app.client.learner import TrainingJob
from fl_app.client.mixture import (
    Mixture,
    MixtureLearner,
    mixture,
    responsibilities,
    weighted_loss,
)
from fl_app.config import load
from fl_app.learner_reports import Report, request
from fl_app.params import FlatModule
from fl_app.wiring import made

LN = np.log


class _Says(nn.Module):
    """Answers the same probabilities to everything."""

    def __init__(self, *probabilities: float) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, inputs: Tensor) -> Tensor:
        return self.answer.expand(len(inputs), -1)


def test_the_answer_is_the_mean_of_the_probabilities() -> None:
    both = Mixture([_Says(0.9, 0.1), _Says(0.2, 0.8)])
    torch.testing.assert_close(both(torch.zeros(1, 3)).exp(), torch.tensor([[0.55, 0.45]]))
    both.weights[:] = torch.tensor([1.0, 0.0])
    torch.testing.assert_close(both(torch.zeros(1, 3)).exp(), torch.tensor([[0.9, 0.1]]))


def test_responsibilities_by_hand() -> None:
    # probabilities 0.8 and 0.2 of the label, weights 1/4 and 3/4: 0.2 to 0.15
    losses = -torch.tensor([[0.8, 0.2]]).log()
    found = responsibilities(losses, torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(found, torch.tensor([[4 / 7, 3 / 7]]))
    # the class is twice as common in the first component: 0.1 to 0.15
    priors = torch.tensor([[0.5, 0.25]]).log()
    found = responsibilities(losses, torch.tensor([0.25, 0.75]), priors)
    torch.testing.assert_close(found, torch.tensor([[0.4 / 1.0, 0.6 / 1.0]]))
    alone = responsibilities(losses, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(alone, torch.tensor([[0.0, 1.0]]), atol=1e-6, rtol=0)


def test_the_loss_by_hand() -> None:
    answers = torch.tensor([[[0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5], [0.25, 0.75]]]).log()
    # responsibilities of both samples, and their labels 0 and 1
    given = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 1.0]])
    expected = (0.5 * LN(2) + 0.5 * LN(4) + LN(4 / 3)) / 2
    assert float(weighted_loss(answers, given)) == pytest.approx(expected)


def _trained(**task: object) -> tuple[Mixture, object, object]:
    torch.manual_seed(0)
    built = mixture((2,), 2, of="fl_app.client.networks.mlp", settings={"hidden": []}, components=2)
    assert isinstance(built, Mixture)
    flat = FlatModule(built)
    learner = MixtureLearner(flat, load([]).client, classes=2)
    start = flat.vector()
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    labels = torch.tensor([0, 1, 1])
    asked = {
        "weights": Report(length=2, low=0, high=1),
        "class_weights": Report(length=4, low=0, high=1),
    }
    job = TrainingJob(
        start, images, labels, torch.Generator().manual_seed(0), {**request(asked), **task}
    )
    return built, learner.train(job), start


def test_a_client_tells_its_weights_and_leaves_those_of_the_model() -> None:
    built, done, start = _trained()
    told = done.reports["weights"]
    assert told.sum() == pytest.approx(1)
    per_class = done.reports["class_weights"].reshape(2, 2)
    np.testing.assert_allclose(per_class.sum(axis=1), told, rtol=1e-6)
    # one sample of three has the class 0
    np.testing.assert_allclose(per_class.sum(axis=0), [1 / 3, 2 / 3], rtol=1e-6)
    torch.testing.assert_close(built.weights, torch.tensor([0.5, 0.5]))
    assert np.abs(done.model - start).max() > 0


def test_priors_move_a_class_to_the_component_in_which_it_is_rare() -> None:
    _, plain, _ = _trained()
    common = np.log(np.array([[0.9, 0.1], [0.1, 0.9]])).astype("<f4").tobytes()
    _, done, _ = _trained(priors=common)
    before, after = (each.reports["class_weights"].reshape(2, 2) for each in (plain, done))
    assert after[0, 0] < before[0, 0]
    assert after[0, 1] > before[0, 1]


def test_each_component_has_its_own_first_weights() -> None:
    built = made("network=mixture", (8,), 3, components=2)
    first, second = (next(each.parameters()) for each in built.components)
    assert (first != second).all()
    with pytest.raises(ValueError, match=r"network\.of must be the dotted path"):
        made("network=mixture", (8,), 3, components=2, of="fl_app.nowhere")


@pytest.mark.parametrize("name", ["lazy", "Everything"])
def test_a_component_may_take_its_sizes_from_a_sample_and_read_tensors(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)  # where user_networks is
    options = {"of": f"user_networks.{name}", "settings": {}, "components": 2}
    built = drawn(mixture, (1, 8, 8), 3, options, tokens=False, seed=0)
    assert built.eval()(torch.ones(2, 1, 8, 8)).shape == (2, 3)
    first, second = (FlatModule(each).vector() for each in built.components)
    assert (first != second).any()


def test_the_components_together_are_not_too_large() -> None:
    said = "at most 536,870,912 parameters, got 1,005,002,000 in 1000 components; lower network.com"
    options = {"of": "fl_app.client.networks.mlp", "settings": {"hidden": [1000, 1000]}}
    with pytest.raises(ValueError, match=said):
        mixture((1,), 2, **options, components=1000)


def test_settings_of_another_component_are_told_with_the_overrides_that_change_them() -> None:
    said = "give ~network.settings.hidden +network.settings.width=<value>"
    options = {"of": "fl_app.client.networks.small_cnn", "settings": {"hidden": [4]}}
    with pytest.raises(ValueError, match=re.escape(said)):
        mixture((1, 8, 8), 10, **options, components=2)
