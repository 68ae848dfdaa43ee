"""Attention and recurrent layers inside a layer of a user's own, against autograd."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_exact, found_of

from fl_app.client.layer_calls import Watched, calls_of, traced_layers
from fl_app.client.weight_products import Product

SIZE, STEPS, SAMPLES = 6, 3, 4
Function = Callable[["Own", Tensor], Tensor]


class Own(nn.Module):
    """A layer with a token and an inner layer, and a function of these and of steps."""

    def __init__(self, inner: nn.Module, function: Function) -> None:
        super().__init__()
        self.token, self.inner = nn.Parameter(torch.randn(1, 1, SIZE)), inner
        self.function = function

    def forward(self, given: Tensor) -> Tensor:
        return self.function(self, torch.cat([self.token.expand(len(given), -1, -1), given], 1))


def attention(*, first: bool = False) -> nn.Module:
    return nn.MultiheadAttention(SIZE, 2, batch_first=not first)


def to_itself(own: Own, x: Tensor) -> Tensor:
    return own.inner(x, x, x, need_weights=False)[0]


def with_weights(own: Own, x: Tensor) -> Tensor:
    found, weights = own.inner(x, x, x)
    return found * weights.square().sum(-1, keepdim=True)


def from_a_token(own: Own, x: Tensor) -> Tensor:
    return own.inner(own.token.sin(), x, 2 * x)[0]


def causal(own: Own, x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    return own.inner(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


def padded(own: Own, x: Tensor) -> Tensor:
    keys = (x.detach().sum(-1) < 0) & (torch.arange(x.shape[1]) > 0)
    return own.inner(x, x, x, key_padding_mask=keys)[0]


def steps_first(own: Own, x: Tensor) -> Tensor:
    turned = x.transpose(0, 1)
    return own.inner(turned, turned, turned)[0].transpose(0, 1)


def in_windows(own: Own, x: Tensor) -> Tensor:
    parts = x.reshape(-1, 2, SIZE)
    return own.inner(parts, parts, parts)[0].reshape(x.shape)


def masked_by_the_sample(own: Own, x: Tensor) -> Tensor:
    mask = (x @ x.mT).detach().repeat_interleave(2, 0)
    return own.inner(x, x, x, attn_mask=mask)[0]


def whole(own: Own, x: Tensor) -> Tensor:
    return own.inner(x)


def recurrent(own: Own, x: Tensor) -> Tensor:
    return own.inner(x)[0] * own.token


def from_states(own: Own, x: Tensor) -> Tensor:
    steps, (hidden, cell) = own.inner(x.mT.mT, (own.token, x[:, :1].transpose(0, 1)))
    return steps + hidden.transpose(0, 1) * cell.transpose(0, 1)


def packed(own: Own, x: Tensor) -> Tensor:
    lengths = torch.full((len(x),), x.shape[1])
    return own.inner(pack_padded_sequence(x, lengths, batch_first=True))[1].transpose(0, 1)


APART: dict[str, tuple[Callable[[], nn.Module], Function]] = {
    "attention": (attention, to_itself),
    "with weights": (attention, with_weights),
    "from a token": (attention, from_a_token),
    "causal": (attention, causal),
    "padded": (attention, padded),
    "steps first": (lambda: attention(first=True), steps_first),
    "encoder": (lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(SIZE, 2, 8, dropout=0.0, batch_first=True), 2,
        enable_nested_tensor=False), whole),
    "lstm": (lambda: nn.LSTM(SIZE, SIZE, 2, batch_first=True), recurrent),
    "states": (lambda: nn.LSTM(SIZE, SIZE, batch_first=True), from_states),
    "gru": (lambda: nn.GRU(SIZE, SIZE // 2, batch_first=True, bidirectional=True), recurrent),
    "rnn": (lambda: nn.RNN(SIZE, SIZE, batch_first=True, bias=False), recurrent),
}  # fmt: skip


def _given() -> Tensor:
    return torch.randn(SAMPLES, STEPS, SIZE, dtype=torch.double)


@pytest.mark.parametrize("name", list(APART))
def test_inner_layers_run_for_all_samples_at_once(name: str) -> None:
    torch.manual_seed(0)
    build, function = APART[name]
    own = Own(build(), function).double()
    watched = assert_exact(own, _given())
    assert [each.apart for each in watched.own.values()] == [True]
    assert "forward" not in vars(own.inner)
    traced = traced_layers(nn.Sequential(own))
    parameters = {p for layer in traced for p in layer.parameters()}
    with calls_of(Watched(nn.Sequential(own))) as calls:
        own(_given())
    products = [part for part in calls[0].parts if isinstance(part, Product)]
    recorded = {p for part in products for p in part.trained()}
    assert traced
    assert parameters <= recorded


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("function", [in_windows, masked_by_the_sample])
def test_other_attention_is_differentiated_sample_by_sample(function: Function) -> None:
    torch.manual_seed(0)
    watched = assert_exact(Own(attention(), function).double(), _given())
    assert [each.apart for each in watched.own.values()] == [False]


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_packed_sequences_inside_have_no_gradients_of_samples() -> None:
    own = Own(nn.GRU(SIZE, SIZE, batch_first=True), packed).double()
    with pytest.raises(RuntimeError):
        found_of(own, _given())


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_an_inner_layer_can_be_outside_too() -> None:
    torch.manual_seed(0)
    own = Own(nn.TransformerEncoderLayer(SIZE, 2, 8, dropout=0.0, batch_first=True), whole)
    module = nn.Sequential(own, own.inner).double()
    assert_exact(module, _given())
    assert "forward" not in vars(own.inner.self_attn)


def test_frozen_attention_inside_has_no_products() -> None:
    torch.manual_seed(0)
    own = Own(attention(), to_itself).double()
    own.inner.requires_grad_(False)
    with calls_of(Watched(nn.Sequential(own))) as calls:
        own(_given())
    assert [type(part).__name__ for part in calls[0].parts] == ["Copies"]


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_of_attention_draws_what_torch_draws(need_weights: bool) -> None:
    def attended(own: Own, x: Tensor) -> Tensor:
        return own.inner(x, x, x, need_weights=need_weights)[0]

    torch.manual_seed(0)
    own = Own(nn.MultiheadAttention(SIZE, 2, 0.5, batch_first=True), attended).double()
    given = _given()
    torch.manual_seed(1)
    expected = own(given)
    with calls_of(Watched(nn.Sequential(own))) as calls:
        torch.manual_seed(1)
        torch.testing.assert_close(own(given), expected)
    assert calls[0].parts
