"""Recurrent layers that record their products, against the layers of torch and plain autograd."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import CLASSES, SAMPLES, SHAPE, assert_alone, assert_clipped, images_of_rows

from fl_app.client import dense_products, weight_products
from fl_app.client.layer_calls import Watched, calls_of, is_separable, traced_layers

HIDDEN = 6
KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


class Recurrent(nn.Module):
    """A recurrent layer over the rows of an image, between two others.

    `states`: the first states come from the image, `packed`: rows end early, `last`: the answer
    comes from the last states alone, `both`: from these and all others.
    """

    def __init__(self, kind: str, *, states: bool = False, packed: str = "", read: str = "steps",
                 **given: Any) -> None:  # fmt: skip
        super().__init__()
        self.first, self.steps = nn.Linear(12, 8), KINDS[kind](8, HIDDEN, **given)
        self.states, self.packed, self.read = states, packed, read
        self.start, self.head = nn.Linear(12, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        self.start.requires_grad_(states)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.mean(1)
        given: Any = self.first(rows)
        if self.packed:
            given = self._pack(given, rows)
        elif not self.steps.batch_first:
            given = given.transpose(0, 1)
        found, last = self.steps(given, self._states(rows))
        if self.packed:
            assert isinstance(found, PackedSequence)
            found = pad_packed_sequence(found, batch_first=True)[0]
        elif not self.steps.batch_first:
            found = found.transpose(0, 1)
        every = torch.cat(last) if isinstance(last, tuple) else last  # (states, n, h)
        parts = []
        if self.read != "last":
            parts.append(found.unflatten(2, (-1, HIDDEN)).sum(2).square().sum(1) / 12)
        if self.read != "steps":
            parts.append(every.sin().mean(0))
        return self.head(torch.stack(parts).sum(0))

    def _pack(self, given: Tensor, rows: Tensor) -> PackedSequence:
        lengths = 3 + (rows[:, 0, 0].abs() * 1e3).long() % 9
        if self.packed == "given in order":  # one length for all
            lengths = torch.full_like(lengths, 7)
        sort = self.packed != "given in order"
        return pack_padded_sequence(given, lengths, batch_first=True, enforce_sorted=not sort)

    def _states(self, rows: Tensor) -> Any:
        if not self.states:
            return None
        levels = self.steps.num_layers * (1 + self.steps.bidirectional)
        first = torch.stack([self.start(rows[:, level]).tanh() for level in range(levels)])
        return (first, first.flip(2)) if isinstance(self.steps, nn.LSTM) else first


CASES: dict[str, dict[str, Any]] = {
    "one": {"batch_first": True},
    "steps first": {"batch_first": False, "bias": False},
    "several": {"num_layers": 2, "bidirectional": True, "batch_first": True, "read": "both"},
    "last": {"num_layers": 2, "read": "last"},
    "states": {"states": True, "num_layers": 2, "bidirectional": True, "read": "both"},
    "packed": {"packed": "by length", "num_layers": 2, "bidirectional": True, "read": "both"},
    "packed states": {"packed": "by length", "states": True, "read": "last"},
    "packed in order": {"packed": "given in order"},
}
PAIRS = [(kind, {}, name) for kind in KINDS for name in CASES]
PAIRS += [("RNN", {"nonlinearity": "relu"}, "one"), ("RNN", {"nonlinearity": "relu"}, "several")]


@pytest.mark.parametrize(("kind", "more", "name"), PAIRS)
def test_it_computes_what_torch_does_and_the_gradients_of_samples(
    kind: str, more: dict[str, Any], name: str
) -> None:
    torch.manual_seed(0)
    module = Recurrent(kind, **CASES[name], **more)
    images, labels = images_of_rows()
    with calls_of(Watched(module)):
        found = module(images)
    torch.testing.assert_close(found, module(images), rtol=1e-5, atol=1e-5)
    assert_clipped(module, images, labels)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_sample_that_overflows_changes_no_other(kind: str) -> None:
    torch.manual_seed(0)
    assert_alone(Recurrent(kind, num_layers=2, bidirectional=True, read="both"), *images_of_rows())


@pytest.mark.parametrize("packed", ["", "by length"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_dropout_draws_what_torch_draws(kind: str, packed: str) -> None:
    module = Recurrent(
        kind, packed=packed, num_layers=3, bidirectional=True, dropout=0.4, batch_first=True
    )
    module.head = nn.Sequential(nn.Dropout(0.5), module.head)
    images, _ = images_of_rows()
    torch.manual_seed(3)
    expected = module(images)
    torch.manual_seed(3)
    with calls_of(Watched(module)):
        torch.testing.assert_close(module(images), expected, rtol=1e-5, atol=1e-5)
    assert "forward" not in vars(module.steps)


@pytest.mark.parametrize("frozen", [("weight_hh", "bias_ih"), ("weight_ih", "weight_hh")])
@pytest.mark.parametrize("kind", list(KINDS))
def test_frozen_weights_have_no_gradients(kind: str, frozen: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    module = Recurrent(kind)
    for name in frozen:
        getattr(module.steps, f"{name}_l0").requires_grad_(False)
    assert_clipped(module, *images_of_rows())


def test_a_layer_can_be_called_twice() -> None:
    torch.manual_seed(0)
    module = Recurrent("GRU", read="both")
    module.first = nn.Sequential(module.first, Again(module.steps))
    assert_clipped(module, *images_of_rows())


class Again(nn.Module):
    """Steps of a recurrent layer as inputs of the same layer."""

    def __init__(self, steps: nn.Module) -> None:
        super().__init__()
        self.steps, self.wider = steps, nn.Linear(HIDDEN, 8)

    def forward(self, given: Tensor) -> Tensor:
        wider: Tensor = self.wider(self.steps(given.transpose(0, 1))[0].transpose(0, 1))
        return wider


def test_large_matrices_are_multiplied_as_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_products, "PRODUCT", 1)
    monkeypatch.setattr(weight_products, "LARGE", 1)
    torch.manual_seed(0)
    module = Recurrent("LSTM", read="both", num_layers=2, bidirectional=True)
    images = torch.randn(SAMPLES, *SHAPE) * torch.arange(1, SAMPLES + 1)[:, None, None, None]
    assert_clipped(module, images, torch.arange(SAMPLES) % CLASSES)


def test_a_forward_of_a_users_own_is_not_replaced() -> None:
    layer = nn.GRU(3, 4)
    layer.forward = lambda given: given
    assert not traced_layers(nn.Sequential(layer))


def test_a_recurrent_layer_with_projections_is_not_traced() -> None:
    layer = nn.LSTM(3, 4)
    assert traced_layers(nn.Sequential(layer)) == [layer]
    assert is_separable(layer)
    assert not traced_layers(nn.Sequential(nn.LSTM(3, 4, proj_size=2)))


def test_steps_without_samples_are_refused() -> None:
    layer = nn.GRU(3, 4)
    with (
        calls_of(Watched(layer)),
        pytest.raises(ValueError, match=r"got an input of shape \(5, 3\)"),
    ):
        layer(torch.zeros(5, 3))
