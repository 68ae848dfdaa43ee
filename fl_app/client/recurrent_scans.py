"""Backward passes through the steps of recurrent cells, which give the gradients of their gates.

Torch's own kernels give the hidden states of all steps. From these one product gives all gates, and
one scan over the steps their gradients; those of weights are sums of products over the steps.
"""

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from fl_app.client.dense_products import large_product

Parts = tuple[tuple[int, ...], ...]
"""What adds to the gates together, and what apart: 0 the inputs, 1 the hidden states before."""
TOGETHER: Parts = ((0, 1),)


class Scan(Protocol):
    """What the backward pass of one kind of cell needs."""

    @property
    def parts(self) -> Parts:
        """What adds to the gates, by their gradients."""

    def back(self, told: Tensor, cells: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients of the gates, for each of `parts`, and of the first states.

        `told` (t, n, h) are those of the hidden states, and `cells` those of the cell states, that
        come from outside.
        """


@dataclass(frozen=True)
class Plain:
    """Cells without states but the hidden one, for a step of which gradients are factors of it.

    `factors` (t, n, gates, h) leads from the gradient of a hidden state to those of the gates, as
    far as they come from the hidden state before, and `to_new` (t, n, h) to that of the last gate
    as far as it comes from the input, if this is another. `past` (t, n, h) leads to the hidden
    state before past the gates.
    """

    weight: Tensor
    factors: Tensor
    to_new: Tensor | None = None
    past: Tensor | None = None

    @classmethod
    def of_rnn(cls, weight: Tensor, after: Tensor, *, relu: bool) -> Self:
        """Return that of cells h = tanh(gate) or relu(gate), with `after` (t, n, h) = h."""
        slopes = (after > 0).to(after.dtype) if relu else 1 - after.square()
        return cls(weight, slopes[:, :, None])

    @classmethod
    def of_gru(cls, weight: Tensor, given: Tensor, hidden: Tensor, before: Tensor) -> Self:
        """Return that of cells h = (1 - z) n + z h', n = tanh(i_n + r h_n), for h' = `before`.

        `given` and `hidden` (t, n, gates, h) are what inputs and h' add to the gates.
        """
        r, z = (given[:, :, :2] + hidden[:, :, :2]).sigmoid_().unbind(2)
        new = torch.addcmul(given[:, :, 2], r, hidden[:, :, 2]).tanh_()
        left, factors = 1 - z, torch.empty_like(given)
        to_new = torch.addcmul(left, left * new, new, value=-1)
        to_r, to_z = to_new * hidden[:, :, 2] * r, (before - new) * z
        torch.addcmul(to_r, to_r, r, value=-1, out=factors[:, :, 0])
        torch.addcmul(to_z, to_z, z, value=-1, out=factors[:, :, 1])
        torch.mul(to_new, r, out=factors[:, :, 2])
        return cls(weight, factors, to_new=to_new, past=z)

    @property
    def parts(self) -> Parts:
        """What adds to the gates, by their gradients."""
        return TOGETHER if self.to_new is None else ((0,), (1,))

    def back(self, told: Tensor, cells: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients of the gates and of the first hidden state."""
        hidden, changed = told[-1], torch.empty_like(self.factors)
        every = []
        for step in reversed(range(len(told))):
            every.append(hidden)
            torch.mul(hidden[:, None], self.factors[step], out=changed[step])
            earlier, row = hidden, changed[step].flatten(1)
            hidden = torch.addmm(told[step - 1], row, self.weight) if step else row @ self.weight
            if self.past is not None:
                hidden.addcmul_(earlier, self.past[step])
        if self.to_new is None:
            return [changed], [hidden]
        of_inputs = changed.clone()
        torch.mul(torch.stack(every[::-1]), self.to_new, out=of_inputs[:, :, 2])
        return [of_inputs, changed], [hidden]


@dataclass
class Lstm:
    """Cells c = f c' + i g, h = o tanh(c): states are h and c.

    `gates` (t, n, 4, h) has factors from the gradient of c to those of the gates i, f and g, and
    from that of h to that of o; `f` (t, n, h) leads from c to c', `inner` from h to c. The
    gradients of the gates take the place of `gates`, so that `back` runs once.
    """

    weight: Tensor
    gates: Tensor | None
    f: Tensor
    inner: Tensor
    parts: Parts = TOGETHER

    @classmethod
    def of(cls, weight: Tensor, gates: Tensor, told: Tensor, first: Tensor) -> tuple[Self, Tensor]:
        """Return it with the cell states (t, n, h) after `first` (n, h); `gates` is overwritten.

        `told` (t, n, h) are the hidden states.
        """
        gates[:, :, :2].sigmoid_()
        gates[:, :, 2].tanh_()
        gates[:, :, 3].sigmoid_()
        i, f, g, o = gates.unbind(2)
        added = i * g
        cells = torch.cat((first[None], torch.empty_like(added)))
        rows = zip(added.unbind(), f.unbind(), cells.unbind()[:-1], cells[1:].unbind(), strict=True)
        for new, kept, before, after in rows:
            torch.addcmul(new, kept, before, out=after)
        kept, to_f = f.clone(), cells[:-1] * f
        torch.addcmul(to_f, to_f, kept, value=-1, out=f)
        torch.addcmul(i, added, g, value=-1, out=g)
        torch.addcmul(added, added, i, value=-1, out=i)
        inner = cells[1:].tanh().mul_(told).neg_().add_(o)
        torch.addcmul(told, told, o, value=-1, out=o)
        return cls(weight, gates, kept, inner), cells[1:]

    def back(self, told: Tensor, cells: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients of the gates and of the first states."""
        gates, self.gates, no = self.gates, None, [None] * len(told)
        assert gates is not None, "a backward pass runs once"
        rows = zip(
            gates[:, :, :3].unbind(), gates[:, :, 3].unbind(), gates.flatten(2).unbind(),
            self.f.unbind(), self.inner.unbind(),
            (None, *told.unbind()[:-1]), no if cells is None else cells.unbind(), strict=True,
        )  # fmt: skip
        hidden, cell = told[-1], torch.zeros_like(told[-1])
        for i_f_g, o, row, f, inner, next_told, more in reversed([*rows]):
            cell = torch.addcmul(cell, hidden, inner)
            cell = cell if more is None else cell + more
            i_f_g.mul_(cell[:, None])
            o.mul_(hidden)
            hidden = large_product(row, self.weight.T, next_told)
            cell = cell * f
        return [gates], [hidden, cell]
