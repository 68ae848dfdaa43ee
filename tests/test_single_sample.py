"""Training on a batch of one sample, which fails for networks that compare those of a batch."""

import pytest
import torch
from torch import Tensor, nn

from fl_app.client.sgd import SgdLearner
from fl_app.config import load
from fl_app.params import FlatModule
from fl_app.single_sample import warn_of_one


class Deviation(nn.Module):
    """Divides by the deviation over the batch, which one sample has not."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return inputs (s, 3) in units of their deviation."""
        return inputs / inputs.std(0)


class Two(nn.Module):
    """Takes no single sample."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return inputs (s, 3), s > 1."""
        if len(inputs) < 2:
            raise ValueError("two or more")
        return inputs


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (Deviation(), ["gives numbers that are not finite, so that a client whose last batch"]),
        (Two(), ["gives ValueError: two or more, so that a client whose last batch"]),
        (nn.BatchNorm1d(3), []),
        (nn.Tanh(), []),
    ],
)
def test_a_network_that_compares_samples_is_told(
    layer: nn.Module, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    flat = FlatModule(nn.Sequential(layer, nn.Linear(3, 2)))
    learner = SgdLearner(flat, load([]).client, classes=2)
    draw = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(8, 3, generator=draw), torch.arange(8) % 2
    warn_of_one(learner, flat.vector(), inputs, labels)
    assert len(caplog.messages) == len(told)
    assert all(part in message for part, message in zip(told, caplog.messages, strict=True))
