"""Properties of a network in training, found by training-mode passes over random inputs.

Privacy needs two properties that a list of layer types cannot give for a user's own layers:
whether the output for a sample depends on the other samples of its batch, and which tensors a
forward pass writes into. No client data are used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fl_app.rng import global_torch_seed

BATCH = 3
TRIALS = 4
"""Number of random draws of weights, inputs and dropout; one draw alone can miss a dependence."""
VOCABULARIES = (1024, 64, 8, 3, 2)
"""Numbers of tokens that are tried, as a network takes no token beyond its embedding."""
Shape = tuple[int, ...]
Held = dict[str, Tensor]


def changed(module: nn.Module, shape: Shape, *, tokens: bool) -> tuple[str, ...]:
    """Return the names of buffers and frozen parameters that two training passes write into.

    `shape` is that of one input: see `random_inputs`. Raises ValueError for a network that fails on
    random inputs.
    """
    batches = random_inputs(module, shape, 2, tokens=tokens)
    module.train()
    before = _held(module)
    for batch in batches:
        _forward(module, batch)
    after = _held(module)
    _restore(module, before)
    names = dict.fromkeys([*before, *after])
    return tuple(
        name
        for name in names
        if name not in before or name not in after or not same(before[name], after[name])
    )


def mixing(module: nn.Module, shape: Shape, *, tokens: bool) -> str | None:
    """Return the name of the submodule that mixes the samples of a batch; None if none does.

    With the same random draws, the output for a sample must be exactly the same for all other
    samples. The parameters are changed a little first, because weights of zero can hide a
    dependence, so the module is unusable afterwards. Raises ValueError for a network that fails on
    random inputs, or whose output for the same batch and the same draws varies.
    """
    found = (_mixing(module, shape, seed, tokens=tokens) for seed in range(TRIALS))
    return next((each for each in found if each is not None), None)


def _mixing(module: nn.Module, shape: Shape, seed: int, *, tokens: bool) -> str | None:
    batch, *others = random_inputs(module, shape, 1 + BATCH, seed, tokens=tokens)
    module.train()
    _stir(module, seed)
    start = _held(module)
    first = _trace(module, batch, seed)
    _restore(module, start)
    again = _trace(module, batch, seed)
    if not same(first[-1].outputs[0], again[-1].outputs[0]):
        raise ValueError(
            "privacy=sample_dp needs a network whose output depends only on its input and torch's "
            "global generator, got one whose output for the same batch varies; remove state "
            "between batches and other generators from its layers"
        )
    for row, other in enumerate(others):
        other[row] = batch[row]
        _restore(module, start)
        found = _guilty(first, _trace(module, other, seed), row)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class _Call:
    """One call of a submodule, with its input and output tensors."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def _guilty(first: list[_Call], second: list[_Call], row: int) -> str | None:
    """Return the first module, in order of completion, whose output for a row differs, or None.

    None is decided by the output of the whole network, because dimension 0 of an inner tensor may
    not be the batch.
    """
    if _same_row(first[-1].outputs, second[-1].outputs, row):
        return None
    for one, other in zip(first, second, strict=False):
        same_input = one.name == other.name and _same_row(one.inputs, other.inputs, row)
        if same_input and one.inputs and not _same_row(one.outputs, other.outputs, row):
            return one.name
    return first[-1].name


def _same_row(some: list[Tensor], others: list[Tensor], row: int) -> bool:
    """Whether the part of one sample is equal in all tensors."""
    return len(some) == len(others) and all(
        a.shape == b.shape and same(_row(a, row), _row(b, row))
        for a, b in zip(some, others, strict=True)
    )


def _row(tensor: Tensor, row: int) -> Tensor:
    """Return the part of one sample: a row, or several rows if a sample has several."""
    apart = tensor.dim() > 0 and len(tensor) > 0 and len(tensor) % BATCH == 0
    return tensor.reshape(BATCH, -1)[row] if apart else tensor


def same(some: Tensor, others: Tensor) -> bool:
    """Whether two tensors have the same values; NaN equals NaN."""
    if some.shape != others.shape or some.dtype != others.dtype:
        return False
    return bool(((some == others) | (some.isnan() & others.isnan())).all())


def _trace(module: nn.Module, inputs: Tensor, seed: int) -> list[_Call]:
    """Return the calls of all submodules in one pass, in the order of completion."""
    calls: list[_Call] = []
    with _recording(module, calls):
        _forward(module, inputs, seed)
    return calls


@contextmanager
def _recording(module: nn.Module, calls: list[_Call]) -> Iterator[None]:
    open_calls: list[list[Tensor]] = []

    def enter(_: nn.Module, args: object, kwargs: object) -> None:
        # copies, since a layer may write into its input
        open_calls.append(_tensors((args, kwargs)))

    def leave(which: nn.Module, _: object, output: object) -> None:
        calls.append(_Call(names[which], open_calls.pop(), _tensors(output)))

    names = {each: _named(name, each) for name, each in module.named_modules()}
    handles = [
        handle
        for each in names
        for handle in (
            each.register_forward_pre_hook(enter, prepend=True, with_kwargs=True),
            each.register_forward_hook(leave),
        )
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _named(name: str, module: nn.Module) -> str:
    kind = type(module).__name__
    return f"{name!r} ({kind})" if name else f"the forward pass of {kind}"


def _tensors(values: object) -> list[Tensor]:
    return [leaf.detach().clone() for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _forward(module: nn.Module, inputs: Tensor, seed: int = 0) -> None:
    """Run a forward pass on inputs (BATCH, ...); raises ValueError without one row each."""
    try:
        with global_torch_seed(seed):
            output = module(inputs.clone())
    except Exception as error:  # a user's layer can raise anything
        raise ValueError(
            f"privacy must try the network in training mode on random {inputs.dtype} of shape "
            f"{tuple(inputs.shape)}, got {type(error).__name__}: {error}; use a network for "
            "inputs of this shape"
        ) from error
    if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != len(inputs):
        given = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(
            f"privacy needs a network that returns one row of scores per sample, got {given} for "
            f"{len(inputs)} samples; return a tensor (samples, classes)"
        )


def random_inputs(
    module: nn.Module, shape: Shape, batches: int, seed: int = 0, *, tokens: bool
) -> list[Tensor]:
    """Return batches of random inputs (BATCH, *shape), the same for the same seed.

    They are normal numbers or, for `tokens`, integers that the network takes. Of those no sample
    begins with 0, which is padding, unless there is only one other.
    """
    draw = torch.Generator().manual_seed(seed)
    if not tokens:
        return [torch.randn((BATCH, *shape), generator=draw) for _ in range(batches)]
    count = _vocabulary(module, shape)
    found = [torch.randint(count, (BATCH, *shape), generator=draw) for _ in range(batches)]
    if count > 2:
        for batch in found:
            batch.view(BATCH, -1)[:, 0].clamp_(min=1)
    return found


@torch.no_grad()
def _vocabulary(module: nn.Module, shape: Shape) -> int:
    """Return the largest of VOCABULARIES of which a network takes every token, or the last."""
    module.eval()
    held = _held(module)
    for count in VOCABULARIES[:-1]:
        try:
            with global_torch_seed(0):
                module(torch.full((BATCH, *shape), count - 1))
        except Exception:  # `_forward` tells what is wrong with the network
            continue
        finally:
            _restore(module, held)
        return count
    return VOCABULARIES[-1]


@torch.no_grad()
def _stir(module: nn.Module, seed: int) -> None:
    """Add noise to every trainable parameter: a tenth of its size, or 0.01 if it is zero."""
    draw = torch.Generator().manual_seed(1 + seed)
    for parameter in module.parameters():
        if parameter.requires_grad:
            size = float(parameter.detach().float().square().mean().sqrt()) or 0.1
            noise = torch.randn(parameter.shape, generator=draw)
            parameter.add_((0.1 * size * noise).to(parameter.dtype))


def _held(module: nn.Module) -> Held:
    """Return a copy of buffers and frozen parameters, which no optimiser changes."""
    frozen = [each for each in module.named_parameters() if not each[1].requires_grad]
    return {name: t.detach().clone() for name, t in [*module.named_buffers(), *frozen]}


@torch.no_grad()
def _restore(module: nn.Module, held: Held) -> None:
    """Restore buffers and frozen parameters, including those that were replaced or removed."""
    for name, value in held.items():
        owner, _, leaf = name.rpartition(".")
        place = module.get_submodule(owner)
        current = place._parameters.get(leaf, place._buffers.get(leaf))
        if current is not None and current.shape == value.shape and current.dtype == value.dtype:
            current.copy_(value)
        else:
            place._buffers[leaf] = value.clone()
