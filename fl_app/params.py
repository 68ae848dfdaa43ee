"""One model as one flat float32 vector, and that vector as bytes.

The vector holds the trainable parameters first, then the float buffers (batch-norm
statistics): the buffers are averaged like the rest, but only the trainable head counts as
a direction. Integer buffers (step counters) stay where they are.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import torch
from numpy.lib import format as npy
from torch import nn

from fl_app.types import Vector


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the pieces of a flat vector, trainable ones first.

    `trainable` is the number of leading pieces that are trainable parameters.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Length d of the vector."""
        return sum(self.sizes)

    def check(self, vector: Vector) -> None:
        """Raise ValueError unless `vector` is of length d."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"the model has {self.size} parameters, got a vector of shape "
                f"{vector.shape}; server and client must be configured with the same network"
            )

    @property
    def direction(self) -> slice:
        """The part of the vector that similarity looks at."""
        return slice(0, sum(self.sizes[: self.trainable]))


class FlatModule:
    """A module whose parameters and float buffers are views of one flat tensor.

    Loading a model or reading it back is then a single copy, whatever its depth. Only the
    kernels of convolutions lie apart, in the memory format that convolutions are fast in.
    """

    def __init__(self, module: nn.Module, *, device: torch.device | None = None) -> None:
        self.module = module.to(device)
        parameters = list(self.module.named_parameters())
        buffers = [b for b in self.module.named_buffers() if b[1].is_floating_point()]
        pieces = parameters + buffers
        self.layout = Layout(
            tuple(name for name, _ in pieces),
            tuple(tuple(tensor.shape) for _, tensor in pieces),
            len(parameters),
        )
        self.flat = torch.cat([t.detach().reshape(-1).float() for _, t in pieces])
        self._kernels: list[tuple[torch.Tensor, torch.Tensor]] = []
        for (name, tensor), view in zip(pieces, self._views(), strict=True):
            if isinstance(tensor, nn.Parameter) and tensor.dim() == 4:
                tensor.data = view.clone(memory_format=torch.channels_last)
                self._kernels.append((tensor.data, view))
            elif isinstance(tensor, nn.Parameter):
                tensor.data = view
            else:
                owner, _, leaf = name.rpartition(".")
                self.module.get_submodule(owner)._buffers[leaf] = view

    def _views(self) -> Iterator[torch.Tensor]:
        parts = torch.split(self.flat, list(self.layout.sizes))
        return (part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True))

    def load(self, vector: Vector) -> None:
        """Set the model to `vector` (d,)."""
        self.layout.check(vector)
        if self.flat.device.type == "cpu":
            self.flat.numpy()[:] = vector
        else:
            self.flat.copy_(torch.from_numpy(np.array(vector)))
        for kernel, view in self._kernels:
            kernel.copy_(view)

    def view(self) -> Vector:
        """Return the model as a vector (d,) that the next `load` or training may overwrite."""
        for kernel, view in self._kernels:
            view.copy_(kernel)
        return self.flat.cpu().numpy()

    def vector(self) -> Vector:
        """Return a copy of the model as a vector (d,)."""
        return self.view().copy()


@lru_cache(maxsize=8)
def _header(size: int) -> bytes:
    """Return the NPY header of a float32 vector (size,): the same for every process."""
    stream = io.BytesIO()
    form = {"descr": "<f4", "fortran_order": False, "shape": (size,)}
    npy.write_array_header_1_0(stream, form)
    return stream.getvalue()


HEADER = len(_header(0))
"""Bytes before the numbers; NumPy pads the header so that every length fits."""


def wire_size(size: int) -> int:
    """Return the number of bytes of a model of `size` parameters."""
    return HEADER + 4 * size


def to_bytes(vector: Vector) -> bytes:
    """Return `vector` (d,) in NPY format, as `numpy.save` writes it, in one copy."""
    return b"".join((_header(len(vector)), np.ascontiguousarray(vector, "<f4").data))


def from_bytes(data: bytes) -> Vector:
    """Return the float32 vector (d,) in `data`, read-only and without a copy.

    The header is compared and not parsed: the length of `data` says which one it must be.
    Raises ValueError when it is another one.
    """
    size, rest = divmod(len(data) - HEADER, 4)
    if size < 0 or rest or not data.startswith(_header(size)):
        raise ValueError(
            f"expected one flat float32 vector in NPY format, got {len(data)} other bytes; "
            "send what numpy.save writes for it"
        )
    return np.frombuffer(data, np.float32, count=size, offset=HEADER)


def square_norm(vector: Vector) -> float:
    """Return the sum of squares of `vector` (d,): infinite or NaN where it or an entry is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(vector, vector))


def is_finite(vector: Vector) -> bool:
    """Whether no entry of `vector` (d,) is NaN or infinite."""
    # A finite square sum proves it in one pass; it may overflow for finite entries.
    return bool(np.isfinite(square_norm(vector)) or np.isfinite(vector).all())
