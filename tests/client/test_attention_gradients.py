"""Attention that records its products, against the layer of torch and plain autograd."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import CLASSES, assert_alone, assert_clipped, images_of_rows

from fl_app.client.layer_calls import Watched, calls_of, is_separable, traced_layers

HEADS = 2


class Attending(nn.Module):
    """Attention over the rows of an image, of which some or all can be keys, under masks."""

    def __init__(self, keys: int = 12, masks: str = "", causal: bool = False, **given: Any) -> None:
        super().__init__()
        self.called = {each: given.pop(each) for each in ("need_weights", "average_attn_weights")
                       if each in given}  # fmt: skip
        self.keys, self.masks, self.causal = keys, masks, causal
        self.first, self.attend = nn.Linear(12, 8), nn.MultiheadAttention(8, HEADS, **given)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.mean(1)
        query = key = value = self.first(rows)
        if self.keys < 12:
            key = value = query[:, : self.keys]
        if not self.attend._qkv_same_embed_dim:
            key, value = rows[:, : self.keys], rows[:, : self.keys, :4]
        given = [query, key, value]
        if not self.attend.batch_first:
            first = [each.transpose(0, 1) for each in given]
            given = [first[0]] * 3 if query is key else first
        found, weights = self.attend(*given, **self._masks(rows), **self.called)
        found = found if self.attend.batch_first else found.transpose(0, 1)
        if weights is not None:
            found = found * weights.flatten(1).square().sum(1)[:, None, None]
        return self.head(found).mean(1)

    def _masks(self, rows: Tensor) -> dict[str, Any]:
        keys, found = rows[:, : self.keys], {}
        if "keys" in self.masks:
            found["key_padding_mask"] = (keys.mean(2) > 0.2) & (torch.arange(self.keys) > 0)
        if "pairs" in self.masks:
            found["attn_mask"] = torch.ones(12, self.keys).triu(1).bool()
        if "samples" in self.masks:
            each = (rows @ keys.transpose(1, 2) / 12).repeat_interleave(HEADS, 0)
            found["attn_mask"] = each.detach()
        if self.causal:
            found |= {"attn_mask": torch.ones(12, 12).triu(1).bool(), "is_causal": True}
        return found


CASES: dict[str, dict[str, Any]] = {
    "weights": {"batch_first": True},
    "without weights": {"batch_first": True, "need_weights": False},
    "steps first": {"batch_first": False, "need_weights": False},
    "of each head": {"batch_first": False, "average_attn_weights": False},
    "without bias": {"batch_first": True, "bias": False},
    "other keys": {"batch_first": True, "keys": 7, "need_weights": False},
    "other sizes": {"batch_first": False, "keys": 7, "kdim": 12, "vdim": 4},
    "masks": {"batch_first": True, "masks": "keys pairs", "need_weights": False},
    "masked keys": {"batch_first": False, "masks": "keys"},
    "a mask for each": {"batch_first": True, "masks": "samples", "need_weights": False},
    "masks with weights": {"batch_first": True, "masks": "samples"},
    "causal": {"batch_first": True, "causal": True, "need_weights": False},
}


def transformer(**given: Any) -> nn.Module:
    """Return two layers of a transformer over the rows of an image."""
    layer = nn.TransformerEncoderLayer(12, HEADS, 16, dropout=0.0, **given)
    rows = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(12), enable_nested_tensor=False)
    return Rows(rows, steps_first=not layer.self_attn.batch_first)


class Rows(nn.Module):
    """Scores from the rows of an image, after layers that can have the steps first."""

    def __init__(self, inner: nn.Module, *, steps_first: bool) -> None:
        super().__init__()
        self.inner, self.steps_first, self.head = inner, steps_first, nn.Linear(12, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.mean(1)
        told = self.inner(rows.transpose(0, 1)).transpose(0, 1) if self.steps_first else None
        return self.head((self.inner(rows) if told is None else told).mean(1))


@pytest.mark.parametrize("name", list(CASES))
def test_it_computes_what_torch_does_and_the_gradients_of_samples(name: str) -> None:
    torch.manual_seed(0)
    module = Attending(**CASES[name])
    images, labels = images_of_rows()
    with calls_of(Watched(module)):
        found = module(images)
    torch.testing.assert_close(found, module(images), rtol=1e-5, atol=1e-5)
    assert_clipped(module, images, labels)


@pytest.mark.parametrize(
    "given",
    [
        {"batch_first": True},
        {"batch_first": False},
        {"batch_first": True, "norm_first": True, "bias": False},
    ],
)
def test_a_transformer_has_the_gradients_of_samples(given: dict[str, Any]) -> None:
    torch.manual_seed(0)
    assert_clipped(transformer(**given), *images_of_rows())


def test_a_sample_that_overflows_changes_no_other() -> None:
    torch.manual_seed(0)
    assert_alone(transformer(batch_first=True), *images_of_rows())
    assert_alone(Attending(batch_first=True), *images_of_rows())


@pytest.mark.parametrize("weights", [True, False])
def test_dropout_draws_what_torch_draws(weights: bool) -> None:
    module = Attending(batch_first=True, dropout=0.4, need_weights=weights)
    module.head = nn.Sequential(nn.Dropout(0.5), module.head)  # draws in the order of the memory
    images, _ = images_of_rows()
    torch.manual_seed(3)
    expected = module(images)
    torch.manual_seed(3)
    with calls_of(Watched(module)):
        torch.testing.assert_close(module(images), expected, rtol=1e-5, atol=1e-5)
    assert "forward" not in vars(module.attend)


def test_attention_with_keys_of_its_own_is_not_traced() -> None:
    layer = nn.MultiheadAttention(8, HEADS)
    assert traced_layers(nn.Sequential(layer)) == [layer]
    assert is_separable(layer)
    for given in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        assert not traced_layers(nn.Sequential(nn.MultiheadAttention(8, HEADS, **given)))


def test_attention_without_samples_is_refused() -> None:
    layer, rows = nn.MultiheadAttention(8, HEADS), torch.zeros(5, 8)
    with (
        calls_of(Watched(layer)),
        pytest.raises(ValueError, match=r"got a query of shape \(5, 8\)"),
    ):
        layer(rows, rows, rows)
