"""State that training changes, but that is neither sent nor saved, is found; other state is not."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm
from torchvision import models

sys.path.insert(0, str(Path(__file__).parent))  # where state_networks is
import state_networks as user

from fl_app.client.sgd import SgdLearner
from fl_app.hidden_state import StateTrial
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
