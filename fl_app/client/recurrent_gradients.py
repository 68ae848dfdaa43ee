"""A forward pass of `nn.LSTM`, `nn.GRU` and `nn.RNN` that records its products with weights.

Torch computes all steps in one kernel, and no hook sees the gates. Here the same kernel runs for
one level and direction at a time, and a backward pass of our own takes the place of torch's. It
gives the gradients of the gates, too, from which those of the weights follow for each sample.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import _VF, Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from fl_app.client.dense_products import large_product
from fl_app.client.recurrent_scans import Lstm, Plain, Scan
from fl_app.client.weight_products import Product, WeightRows, record

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
Hidden = Tensor | tuple[Tensor, ...]


def recurs(layer: nn.Module) -> bool:
    """Whether `recur` computes what a layer does; not with projections of hidden states."""
    return type(layer) in (nn.LSTM, nn.GRU, nn.RNN) and not layer.proj_size


def recur(
    layer: nn.RNNBase,
    products: list[Product],
    input: Tensor | PackedSequence,
    hx: Hidden | None = None,
) -> tuple[Tensor | PackedSequence, Hidden]:
    """Return what the layer returns for these arguments, and add its products to `products`."""
    steps, lengths = _steps(layer, input)
    states, last = _states(layer, steps, hx), list[Sequence[Tensor]]()
    for level in range(layer.num_layers):
        sides = []
        for side in range(1 + layer.bidirectional):
            now = [each[len(last)] for each in states]
            way = _Way(layer, products, f"_l{level}{'_reverse' * side}", lengths)
            told, *ends = way.run(_turned(steps, lengths) if side else steps, now)
            sides.append(_turned(told, lengths) if side else told)
            last.append(ends)
        steps = torch.cat(sides, 2) if layer.bidirectional else sides[0]
        if level + 1 < layer.num_layers and layer.dropout and layer.training:
            steps = _dropped(steps, input, layer.dropout)
    stacked = tuple(torch.stack(each) for each in zip(*last, strict=True))
    hidden = stacked if len(stacked) > 1 else stacked[0]
    if isinstance(input, PackedSequence):
        return _packed(steps, input), hidden
    return steps.transpose(0, 1) if layer.batch_first else steps, hidden


class _Way:
    """One direction of one level of a layer."""

    def __init__(
        self, layer: nn.RNNBase, products: list[Product], name: str, lengths: Tensor | None
    ) -> None:
        self.layer, self.products, self.lengths = layer, products, lengths
        self.pairs: list[tuple[nn.Parameter, nn.Parameter | None]] = [
            (getattr(layer, f"weight_{each}{name}"), getattr(layer, f"bias_{each}{name}", None))
            for each in ("ih", "hh")
        ]

    def run(self, given: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """Return the hidden states of all steps (t, n, h), and the last of each of the states."""
        given = given.contiguous()
        with torch.no_grad():
            told, *ends = self._kernel(given, states)
            before = torch.cat((states[0][None], told[:-1]))
            scan, cells = self._scan(given, before, told, states)
            if self.lengths is not None:
                at = self.lengths - 1, torch.arange(len(self.lengths), device=told.device)
                ends = [each[at] for each in (told, cells) if each is not None]
        size = *told.shape[:2], GATES[self.layer.mode] * told.shape[2]
        taps = [told.new_zeros(()).expand(size).requires_grad_() for _ in scan.parts]
        for tap, part in zip(taps, scan.parts, strict=True):
            inputs = [(WeightRows(self.pairs[row][0]), (given, before)[row]) for row in part]
            biases = [bias for _, bias in (self.pairs[row] for row in part) if bias is not None]
            record(self.products, tap, inputs, [WeightRows(bias) for bias in biases])
        first = self.pairs[0][0].detach()
        found: Any = _Steps.apply(scan, self.lengths, first, (told, *ends), given, *taps, *states)
        return list(found)

    def _kernel(self, given: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        first: Any = tuple(each[None].contiguous() for each in states)
        kernel = getattr(_VF, self.layer.mode.lower())
        options = (self.layer.bias, 1, 0.0, self.layer.training, False, False)
        first = first if len(first) > 1 else first[0]
        (weight, bias), (next_weight, next_bias) = self.pairs
        parameters = [each for each in (weight, next_weight, bias, next_bias) if each is not None]
        told, *ends = kernel(given, first, parameters, *options)
        return [told, *(each[0] for each in ends)]

    def _scan(
        self, given: Tensor, before: Tensor, told: Tensor, states: Sequence[Tensor]
    ) -> tuple[Scan, Tensor | None]:
        """Return what the backward pass needs, and the cell states (t, n, h) if there are any."""
        weight = self.pairs[1][0].detach()
        if self.layer.mode.startswith("RNN"):
            return Plain.of_rnn(weight, told, relu=self.layer.mode == "RNN_RELU"), None
        size = (*told.shape[:2], -1, told.shape[2])
        if self.layer.mode == "LSTM":
            (weight_in, bias), (_, more) = self.pairs
            both = torch.cat((given, before), 2).flatten(0, 1)
            gates = large_product(both, torch.cat((weight_in, weight), 1))
            gates = gates if bias is None or more is None else gates.add_(bias + more)
            return Lstm.of(weight, gates.view(size), told, states[1])
        gates, others = (
            functional.linear(each, *pair).view(size)
            for each, pair in zip((given, before), self.pairs, strict=True)
        )
        return Plain.of_gru(weight, gates, others, before), None


class _Steps(torch.autograd.Function):
    """The hidden states of all steps, with the backward pass of a scan.

    Its inputs stand for all that the states depend on: the layer's inputs (t, n, i), what these and
    the hidden states before add to the gates, together or apart (t, n, gates * h), and the first
    states (n, h).
    """

    @staticmethod
    def forward(ctx: Any, scan: Scan, lengths: Tensor | None, weight: Tensor,
                found: tuple[Tensor, ...], *_: Tensor) -> tuple[Tensor, ...]:  # fmt: skip
        ctx.scan, ctx.lengths, ctx.weight, ctx.size = scan, lengths, weight, found[0].shape
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, told: Tensor | None, *last: Tensor | None) -> tuple[Tensor | None, ...]:
        at: Any = -1
        if ctx.lengths is not None:
            at = ctx.lengths - 1, torch.arange(len(ctx.lengths), device=ctx.lengths.device)
        told, cells = ctx.weight.new_zeros(ctx.size) if told is None else told, None
        if last[0] is not None:
            told = told.clone()
            told[at] += last[0]
        if len(last) > 1 and last[1] is not None:
            cells = torch.zeros_like(told)
            cells[at] = last[1]
        taps, states = ctx.scan.back(told, cells)
        flat = [each.flatten(2) for each in taps]
        given = flat[0] @ ctx.weight if ctx.needs_input_grad[4] else None
        return None, None, None, None, given, *flat, *states


def _steps(layer: nn.RNNBase, given: Tensor | PackedSequence) -> tuple[Tensor, Tensor | None]:
    """Return the inputs (t, n, i), and the lengths of the sequences if they are packed."""
    if isinstance(given, PackedSequence):
        steps, lengths = pad_packed_sequence(given)
        return steps, lengths.to(steps.device)
    if given.dim() != 3:
        raise ValueError(
            "privacy=sample_dp needs a recurrent layer over one sequence for each sample, got an "
            f"input of shape {tuple(given.shape)}; give it as (samples, steps, features)"
        )
    return given.transpose(0, 1) if layer.batch_first else given, None


def _states(layer: nn.RNNBase, steps: Tensor, given: Hidden | None) -> list[Tensor]:
    """Return the first states of all levels and directions, each (levels, n, h)."""
    if given is None:
        levels = layer.num_layers * (1 + layer.bidirectional)
        zeros = steps.new_zeros(levels, steps.shape[1], layer.hidden_size)
        return [zeros] * (1 + (layer.mode == "LSTM"))
    return [given] if isinstance(given, Tensor) else [*given]


def _turned(steps: Tensor, lengths: Tensor | None) -> Tensor:
    """Return sequences (t, n, ...) from their end to their start."""
    if lengths is None:
        return steps.flip(0)
    place = torch.arange(len(steps), device=steps.device)[:, None]
    turned = torch.where(place < lengths, lengths - 1 - place, place)
    return steps.gather(0, turned[:, :, None].expand_as(steps))


def _packed(steps: Tensor, like: PackedSequence) -> PackedSequence:
    """Return padded sequences (t, n, ...) packed in the order of others."""
    lengths = pad_packed_sequence(like)[1]
    order = like.sorted_indices
    if order is not None:
        steps, lengths = steps.index_select(1, order), lengths[order.cpu()]
    return PackedSequence(pack_padded_sequence(steps, lengths).data, *like[1:])


def _dropped(steps: Tensor, like: Tensor | PackedSequence, rate: float) -> Tensor:
    """Return steps after dropout, which draws in the order of torch."""
    if not isinstance(like, PackedSequence):
        return functional.dropout(steps, rate)
    packed = _packed(steps, like)
    dropped = PackedSequence(functional.dropout(packed.data, rate), *packed[1:])
    return pad_packed_sequence(dropped)[0]
