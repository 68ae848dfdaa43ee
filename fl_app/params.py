"""A model as one flat float32 vector, and this vector as bytes.

The vector contains first the trainable parameters, then the float buffers (batch-norm
statistics). The buffers are averaged like the rest, but similarities use only the trainable part.
Everything else is constant during a run: frozen parameters, buffers of integers and booleans, and
float buffers whose first values are no float32 numbers below HUGE (masks, times in float64), of
which a mean would be wrong. Tensors that stay with a client, such as local batch normalisation, are
not sent either, but each client has its own values.
"""

import io
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod

import numpy as np
import torch
from numpy.lib import format as npy
from torch import nn
from torch.nn import functional

from fl_app.module_tensors import (
    as_array,
    check_trainable,
    divided,
    kernel_format,
    registered,
    running_variances,
    unit_vectors,
)
from fl_app.types import Vector

COMMUNITY = "community_"
"""Prefix of the names of the communities' models in a file; the row of the community follows."""


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parts of a flat vector, trainable ones first.

    `trainable` is the number of leading parts that are trainable parameters, and `variances` are
    the names of the parts in which no number may be negative.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    variances: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def size(self) -> int:
        """Length d of the vector."""
        return sum(self.sizes)

    def check(self, vector: Vector) -> None:
        """Raise ValueError unless `vector` has length d."""
        if vector.shape != (self.size,):
            raise ValueError(
                f"the model must have {self.size} parameters, got a vector of shape "
                f"{vector.shape}; server and client need the same network, features and classes"
            )

    @property
    def direction(self) -> slice:
        """The trainable part of the vector, which similarities use."""
        return slice(0, sum(self.sizes[: self.trainable]))

    @cached_property
    def parts(self) -> dict[str, slice]:
        """Where each part lies, by its name."""
        ends = zip(self.names, self.sizes, accumulate(self.sizes), strict=True)
        return {name: slice(end - size, end) for name, size, end in ends}

    @property
    def non_negative(self) -> dict[str, slice]:
        """Where each of the `variances` lies, by its name."""
        return {name: self.parts[name] for name in self.variances}

    def valid(self, vector: Vector) -> Vector:
        """Return the nearest vector (d,) without negative variances, the same if it has none."""
        wrong = [part for part in self.non_negative.values() if (vector[part] < 0).any()]
        found = vector.copy() if wrong else vector
        for part in wrong:
            np.maximum(found[part], 0, out=found[part])
        return found


class FlatModule:
    """A module whose trainable parameters and float buffers are views of one flat tensor.

    Therefore loading or reading a model is a single copy. Kernels of convolutions are stored
    separately, in the memory format of `kernel_format`, and so are tensors of another precision
    and all tensors on a GPU.
    `constants` maps the name of each other tensor to its value. Every `load` restores it, so that
    scores do not depend on earlier training; threads may share the values. `draws` is whether
    training draws from global generators, as dropout does; None: not known yet.

    `local` names the tensors that stay with a client: `load` sets them to the constants, or to the
    values in `own` if the client has some. `own` can also have values of what is sent, which then
    replace those of the vector. Each `load` gives the parts in `units` length 1, see
    `unit_vectors`. Raises ValueError for a module without trainable parameters to send, or with
    complex ones.
    """

    draws: bool | None = None

    def __init__(
        self,
        module: nn.Module,
        *,
        device: torch.device | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        local: Collection[str] = (),
    ) -> None:
        self.module = module.to(device)
        self.local, self.own = frozenset(local), dict[str, np.ndarray]()
        pieces, others = divided(self.module, self.local)
        self._kernels = kernel_format(self.module)
        self.layout = Layout(
            tuple(pieces),
            tuple(tuple(tensor.shape) for tensor in pieces.values()),
            sum(isinstance(tensor, nn.Parameter) for tensor in pieces.values()),
            tuple(name for name in running_variances(self.module) if name in pieces),
        )
        check_trainable(pieces)
        self._pieces = pieces
        self.units = unit_vectors(self.module) & pieces.keys()
        self.flat = torch.cat([t.detach().reshape(-1).float() for t in pieces.values()])
        self._apart: list[tuple[torch.Tensor, torch.Tensor]] = []
        for tensor, view in zip(pieces.values(), self._views(), strict=True):
            self._move(tensor, view)
        for tensor in others.values():
            if isinstance(tensor, nn.Parameter) and tensor.dim() == 4:
                tensor.data = tensor.data.clone(memory_format=self._kernels)
        self._constants = {name: t.detach() for name, t in others.items()}
        self.constants = constants or {name: t.clone() for name, t in self._constants.items()}
        self._buffers = registered(self.module)
        self._set_constants()
        self._sources = {id(tensor): name for name, tensor in (pieces | others).items()}

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield all tensors of the module, and those that are kept beside it."""
        yield from self.module.parameters()
        yield from self.module.buffers()
        yield self.flat
        yield from self._constants.values()
        for apart in self._apart:
            yield from apart

    def _views(self) -> Iterator[torch.Tensor]:
        parts = torch.split(self.flat, list(self.layout.sizes))
        return (part.view(shape) for part, shape in zip(parts, self.layout.shapes, strict=True))

    def _move(self, tensor: torch.Tensor, view: torch.Tensor) -> None:
        """Make `tensor` the `view` of the flat vector, or store it separately if necessary.

        Kernels of CUDA may read 16 bytes at once, and fail where a tensor does not begin at a
        multiple of them.
        """
        if isinstance(tensor, nn.Parameter) and tensor.dim() == 4:
            tensor.data = tensor.data.clone(memory_format=self._kernels)
        elif tensor.dtype == torch.float32 and view.device.type == "cpu":
            tensor.data = view
            return
        self._apart.append((tensor.data, view))

    def _settle(self) -> None:
        """Restore buffers that the module has replaced instead of changed in place."""
        for owner, leaf, tensor in self._buffers:
            current = owner._buffers[leaf]
            if current is not tensor:
                if current is not None:
                    tensor.copy_(current.detach())
                owner._buffers[leaf] = tensor

    def load(self, vector: Vector) -> None:
        """Set the model to `vector` (d,)."""
        self.layout.check(vector)
        self._settle()
        if self.flat.device.type == "cpu":
            self.flat.numpy()[:] = vector
        else:
            self.flat.copy_(torch.from_numpy(np.array(vector)))
        for tensor, view in self._apart:
            tensor.copy_(view)
        self._set_constants()
        self._set_own()
        for name in self.units:
            functional.normalize(self._pieces[name], dim=0, out=self._pieces[name])

    @torch.no_grad()
    def _set_constants(self) -> None:
        for name, tensor in self._constants.items():
            own = self.own.get(name)
            tensor.copy_(self.constants[name] if own is None else torch.from_numpy(own))

    @torch.no_grad()
    def _set_own(self) -> None:
        for name in self.own.keys() & self._pieces.keys():
            self._pieces[name].copy_(torch.from_numpy(self.own[name]))

    def local_state(self) -> dict[str, np.ndarray]:
        """Return copies of the tensors that stay with the client, by name in the state dict."""
        return self._copies(self.local)

    def whole_state(self) -> dict[str, np.ndarray]:
        """Return copies of all tensors that training changes, by name in the state dict."""
        return self._copies(self.local | self._pieces.keys())

    def _copies(self, names: Collection[str]) -> dict[str, np.ndarray]:
        self._settle()
        both = self._pieces | self._constants
        return {
            name: as_array(both[source])
            for name, source in sorted(self.sources().items())
            if source in names
        }

    def view(self) -> Vector:
        """Return the model as a vector (d,) that is valid until the next `load` or training."""
        self._settle()
        for tensor, view in self._apart:
            view.copy_(tensor)
        return self.flat.cpu().numpy()

    def vector(self) -> Vector:
        """Return a copy of the model as a vector (d,)."""
        return self.view().copy()

    def sources(self) -> dict[str, str]:
        """Return the part or constant for each name of the module's state dict.

        Tied weights are one part with several names; buffers that are not persistent are missing.
        Raises ValueError for an entry that is neither parameter nor buffer.
        """
        found = {}
        for name, tensor in self.module.state_dict(keep_vars=True).items():
            if id(tensor) not in self._sources:
                late = isinstance(tensor, nn.Parameter)
                raise ValueError(
                    "the state dict of the network must contain only parameters and buffers "
                    f"of its constructor, got {name!r}"
                    + (
                        ", which forward creates; create it there"
                        if late
                        else "; register a buffer"
                    )
                )
            found[name] = self._sources[id(tensor)]
        return found


@lru_cache(maxsize=8)
def _header(size: int) -> bytes:
    """Return the NPY header of a float32 vector (size,), the same in every process."""
    stream = io.BytesIO()
    form = {"descr": "<f4", "fortran_order": False, "shape": (size,)}
    npy.write_array_header_1_0(stream, form)
    return stream.getvalue()


HEADER = len(_header(0))
"""Bytes before the numbers; NumPy pads the header to the same size for every length."""


def wire_size(size: int) -> int:
    """Return the number of bytes of a model of `size` parameters."""
    return HEADER + 4 * size


def to_bytes(vector: Vector) -> bytes:
    """Return `vector` (d,) in NPY format, as `numpy.save` writes it, with one copy."""
    return b"".join((_header(len(vector)), np.ascontiguousarray(vector, "<f4").data))


def from_bytes(data: bytes) -> Vector:
    """Return the float32 vector (d,) in `data`, read-only and without a copy.

    The header is not parsed, but compared with the one that the length of `data` requires.
    Raises ValueError for another header.
    """
    size, rest = divmod(len(data) - HEADER, 4)
    if size < 0 or rest or not data.startswith(_header(size)):
        raise ValueError(
            f"data must be one flat float32 vector in NPY format, got {len(data)} other bytes; "
            "send the output of numpy.save"
        )
    return np.frombuffer(data, np.float32, count=size, offset=HEADER)


def square_norm(vector: Vector) -> float:
    """Return the sum of squares of `vector` (d,); infinite on overflow, NaN with a NaN entry."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(vector, vector))


def is_finite(vector: Vector) -> bool:
    """Whether no entry of `vector` (d,) is NaN or infinite."""
    # A finite sum of squares proves it in one pass, but the sum can overflow for finite entries.
    return bool(np.isfinite(square_norm(vector)) or np.isfinite(vector).all())
