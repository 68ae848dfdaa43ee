"""Noise on the rows of a large embedding, drawn when something reads them.

A step of DP-SGD adds noise to all rows, but a batch reads few. Until a row is read, its noise is a
sum of independent Gaussian numbers, which is one Gaussian number of the summed variance. So what is
read, and the whole weight in the end, has the distribution that it has with noise at each step.
Lim et al., ASPLOS 2024 (LazyDP).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fl_app.client.layer_calls import kind, trained_layers
from fl_app.client.training import Settings
from fl_app.params import FlatModule

LARGE = 1 << 16
"""Entries of a weight from which its noise is drawn late."""
BASE: Any = vars(torch._C.TensorBase)
HELD = ("shape", "dtype", "device", "requires_grad", "grad", "grad_fn", "is_leaf", "is_sparse")
PASSIVE = {Tensor.__len__, Tensor.dim, Tensor.numel, Tensor.size, BASE["grad"].__set__} | {
    BASE[name].__get__ for name in HELD
}
"""Functions that read none of the numbers."""
Draw = Callable[[Tensor], object]
"""Sets a tensor to the noise of one step."""


class PendingNoise:
    """The steps whose noise the rows of a weight (v, e) lack, and the weight's next step.

    `sums` (v, e) is where the gradients of a step are added. What other functions than the lookup
    return can be kept and read later, so after the first one all rows have their noise always.
    """

    def __init__(self, weight: nn.Parameter, rate: float, draw: Draw) -> None:
        self.values, self.sums = weight.detach(), torch.zeros_like(weight, requires_grad=False)
        self.rate, self.draw, self.steps, self.always = rate, draw, 0, False
        self.settled = torch.zeros(len(weight), dtype=torch.int64)
        self.read: list[Tensor] = []

    @torch.no_grad()
    def settle(self, rows: Tensor | None = None) -> None:
        """Add the noise that some rows (r,), each of them once, or all rows lack."""
        late = self.settled if rows is None else self.settled[rows]
        some = torch.nonzero(late < self.steps).flatten()
        rows = some if rows is None else rows[some]
        if len(rows):
            noise = self.values.new_empty(len(rows), self.values.shape[1])
            self.draw(noise)
            noise *= (self.steps - late[some]).to(noise).sqrt()[:, None]
            self.values.index_add_(0, rows, noise, alpha=-self.rate)
            self.settled[rows] = self.steps

    @torch.no_grad()
    def step(self) -> None:
        """Change the rows by the sums of their gradients, with noise that is drawn later."""
        self.steps += 1
        if self.always:
            self.values.add_(self.sums, alpha=-self.rate)
            self.sums.zero_()
            self.settle()
        for rows in self.read:
            self.values.index_add_(0, rows, self.sums[rows], alpha=-self.rate)
            self.sums.index_fill_(0, rows, 0.0)
        self.read.clear()

    def before(self, function: Any, given: Any) -> None:
        """Let a function read numbers of the weight, with their noise."""
        if self.always or function in PASSIVE:
            return
        if function is functional.embedding and not torch._C._are_functorch_transforms_active():
            self.read.append(torch.unique(given[0]).long())
            self.settle(self.read[-1])
        else:
            self.always = True
            self.settle()


class _Watched(nn.Parameter):
    """A weight all uses of which are seen. There is a subclass for each."""

    pending: PendingNoise

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what a function of torch does."""
        for each in types:
            if issubclass(each, _Watched):
                each.pending.before(func, args)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@contextmanager
def pending(
    flat: FlatModule, settings: Settings, draw: Draw
) -> Iterator[dict[nn.Parameter, PendingNoise]]:
    """Yield the large embeddings of a module, whose noise is late, and add what is left at the end.

    None with momentum, weight decay or a proximal term, by which earlier noise changes a step.
    """
    rate = settings.learning_rate
    late = {each: PendingNoise(each, rate, draw) for each in _embeddings(flat, settings)}
    for weight, each in late.items():
        weight.__class__ = type("Watched", (_Watched,), {"pending": each})
    try:
        yield late
        for each in late.values():
            each.settle()
    finally:
        for weight in late:
            del type(weight).pending  # type: ignore[attr-defined]  # classes live until collected
            weight.__class__ = nn.Parameter


def _embeddings(flat: FlatModule, settings: Settings) -> list[nn.Parameter]:
    """Return the large weights on the CPU that nothing but layers of lookups has.

    Reads of a further tensor of the same memory, such as one that a network keeps, are not seen.
    """
    if settings.momentum or settings.weight_decay or settings.proximal:
        return []
    if any(_is_compiled(each) for each in flat.module.modules()):
        return []
    layers = trained_layers(flat.module)
    lookups: list[Any] = [each for each in layers if kind(each) is nn.Embedding]
    others = {p for each in layers if each not in lookups for p in each.parameters()}
    return [
        weight
        for weight in dict.fromkeys(each.weight for each in lookups)
        if type(weight) is nn.Parameter
        and weight not in others
        and weight.numel() >= LARGE
        and weight.device.type == "cpu"
        and not _is_shared(weight, flat)
    ]


def _is_shared(weight: Tensor, flat: FlatModule) -> bool:
    """Whether a tensor that is not of the flat module may have the memory of a weight."""
    memory, uses = weight.untyped_storage(), getattr(torch._C, "_storage_Use_Count", None)
    known = sum(each.untyped_storage()._cdata == memory._cdata for each in flat.tensors())
    return uses is None or uses(memory._cdata) > known + 1  # one is `memory`


def _is_compiled(layer: nn.Module) -> bool:
    """Whether it reads weights without the functions of Python, which are what is seen here."""
    return isinstance(layer, torch.jit.ScriptModule) or "dynamo" in type(layer).__module__
