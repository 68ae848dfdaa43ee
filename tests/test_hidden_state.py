"""State that training changes, but that is neither sent nor saved, is found; other state is not."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torchvision import models

sys.path.insert(0, str(Path(__file__).parent))  # where state_networks is
import state_networks as user

from fl_app.client.sgd import SgdLearner
from fl_app.hidden_state import StateTrial, alike
from fl_app.params import FlatModule

SETTINGS = SimpleNamespace(
    epochs=1, batch_size=4, learning_rate=0.1, momentum=0.0, weight_decay=0.0, proximal=0.0,
    precision="fp32", batch_norm="average", learner=None,
)  # fmt: skip


def _fault(network: Callable[[], nn.Module]) -> str | None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        return network()

    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, user.SIZE, generator=draw)
    labels = torch.arange(8) % user.CLASSES
    with torch.random.fork_rng(devices=[]):
        learner = SgdLearner(FlatModule(build()), SETTINGS, classes=user.CLASSES)
        trial = StateTrial(learner, inputs, labels)
        trial.train()
        return trial.fault(build)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (user.Counter, "the attribute steps of Counter, .* neither sent nor saved; remove it, or"),
        (user.Shared, "the attribute batches of the class Shared, .* sent nor saved; remove it"),
        (
            user.Average,
            "the attribute average of Average, .* neither sent nor saved; remove it, or",
        ),
        (user.Listed, "the attribute means of Listed, .* neither sent nor saved; remove it, or"),
        (user.Once, "the attribute shifted of Once, .* neither sent nor saved; remove it, or"),
        (user.Hidden, "something else, .* a saved model does not have; remove it, or"),
        (user.Flagged, r"the buffer initialized of torch.uint8, .* is a constant .*; make it a fl"),
        (user.Smallest, r"the buffer smallest of torch.float32, .* is a constant .*finite initial"),
        (user.Teacher, r"the frozen parameter followed of torch.float32, .* is a constant"),
        (user.Unsaved, "the buffer average, .* is not saved; register it without persistent=False"),
        (lambda: nn.Sequential(user.Counter()), "the attribute steps of layer '0', which"),
    ],
)
def test_what_training_changes_beside_the_model_is_named(
    network: Callable[[], nn.Module], said: str
) -> None:
    found = _fault(network)
    assert found is not None
    assert re.search(f"got {said}", found), found


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize(
    "network",
    [
        user.Cached, user.Attending,
        lambda: user.Recurrent(nn.LSTM), lambda: user.Recurrent(nn.GRU),
        lambda: user.dense(lambda layer: layer),
        lambda: user.dense(weight_norm), lambda: user.dense(spectral_norm),
        lambda: user.dense(parametrizations.weight_norm),
        lambda: user.dense(parametrizations.spectral_norm),
        lambda: nn.Sequential(nn.BatchNorm1d(user.SIZE, momentum=None), nn.Linear(16, 4)),
        lambda: user.seen_by(models.resnet18), lambda: user.seen_by(models.mobilenet_v3_small),
    ],
)  # fmt: skip
def test_caches_and_layers_of_torch_are_no_hidden_state(network: Callable[[], nn.Module]) -> None:
    assert _fault(network) is None


def test_a_generator_of_its_own_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert _fault(user.OwnDraws) is None
    assert "a run cannot be repeated" in caplog.text


NAN = float("nan")


@pytest.mark.parametrize(
    "kind", [float, complex, np.float16, np.float32, np.float64, np.complex64, np.complex128]
)
def test_a_number_of_any_type_is_like_itself_but_for_rounding(kind: Callable[..., object]) -> None:
    assert alike(kind(NAN), kind(NAN))
    assert not alike(kind(NAN), kind(1))
    assert not alike(kind(1), kind(NAN))
    assert alike(kind("inf"), kind("inf"))
    assert not alike(kind("inf"), kind("-inf"))
    assert alike(kind(1), kind(1 + 1e-5))
    assert not alike(kind(1), kind(1.5))


def test_tensors_of_complex_numbers_are_alike_where_both_are_nan() -> None:
    some = torch.tensor([complex(NAN, 1), 2j])
    assert alike(some, some.clone())
    assert not alike(some, torch.tensor([complex(NAN, 2), 2j]))


def test_an_attribute_without_a_value_yet_is_no_hidden_state() -> None:
    assert _fault(user.Unset) is None
