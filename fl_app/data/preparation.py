"""How raw samples become the inputs of a network: stored with a run, so that it can be repeated."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from logging import getLogger
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from hydra.utils import get_object
from torch import Tensor

from fl_app.data.checks import DataError, checked_inputs

log = getLogger(__name__)
Moments = tuple[np.ndarray, np.ndarray]


class Preparation(ABC):
    """Maps raw samples to inputs (N, ...); a frozen dataclass of JSON values.

    It is stored by its dotted path, so that a user's class can be used too.
    """

    reads: ClassVar[str]
    """What raw samples are: "images", "arrays" or "tables"."""

    @abstractmethod
    def arrays(self, given: Any) -> np.ndarray:
        """Return raw samples as a data set holds them; raises DataError for another form."""

    def __call__(self, given: Any) -> Tensor:
        """Return raw samples as a network takes them (N, ...)."""
        return as_inputs(self.arrays(given), self.scale)

    @property
    def scale(self) -> Moments | None:
        """Mean and deviation per channel (C,) of pixels, if they are standardised."""
        return None

    @property
    def statistics(self) -> Sequence[str]:
        """Settings by which an input depends on the other training samples."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Return the JSON values from which `preparation` builds this again."""
        kind = type(self)
        return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **asdict(self)}  # type: ignore[call-overload]


def preparation(described: Mapping[str, Any]) -> Preparation:
    """Return what `describe` described."""
    values = {name: value for name, value in described.items() if name != "_target_"}
    built: Preparation = get_object(described["_target_"])(**values)
    return built


def as_inputs(arrays: np.ndarray, scale: Moments | None) -> Tensor:
    """Return the inputs of a data set (N, ...) as a network takes them.

    Bytes are pixels (N, C, H, W) and become float32 in [0, 1], standardised if `scale` is given;
    other integers become int64, other numbers float32.
    """
    if arrays.dtype.kind in "ui" and arrays.dtype != np.uint8:
        return torch.from_numpy(arrays.astype(np.int64))
    values: np.ndarray = arrays.astype(np.float32)
    if arrays.dtype == np.uint8:
        values /= 255
    if scale is not None:
        mean, deviation = scale
        values = (values - mean[:, None, None]) / deviation[:, None, None]
    return torch.from_numpy(values)


@dataclass(frozen=True)
class Pixels(Preparation):
    """Images: bytes (N, C, H, W) or a single one, pictures, or the paths of files."""

    shape: Sequence[int]
    mean: Sequence[float] | None
    deviation: Sequence[float] | None

    reads = "images"

    @property
    def scale(self) -> Moments | None:
        if self.mean is None or self.deviation is None:
            return None
        return np.array(self.mean, np.float32), np.array(self.deviation, np.float32)

    def arrays(self, given: Any) -> np.ndarray:
        if isinstance(given, np.ndarray | Tensor):
            return self._bytes(np.asarray(given))
        several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        if not several:
            raise DataError("images must be at least one, got none; give one")
        return np.concatenate([self._one(each) for each in several])

    def _one(self, given: Any) -> np.ndarray:
        from fl_app.data.images import MODES, pixels, read

        if isinstance(given, np.ndarray | Tensor):
            return self._bytes(np.asarray(given))
        channels, *size = self.shape
        picture = isinstance(given, str | Path) or hasattr(given, "getexif")
        if channels not in MODES or len(size) != 2 or not picture:
            others = "pictures, files or " if channels in MODES and len(size) == 2 else ""
            raise DataError(
                f"images must be {others}arrays of bytes {tuple(self.shape)} for this run, got "
                f"{type(given).__name__}; convert them"
            )
        if isinstance(given, str | Path):
            return read(Path(given), size, channels)[None]  # type: ignore[arg-type]
        return pixels(given, size, channels, "an image")[None]  # type: ignore[arg-type]

    def _bytes(self, array: np.ndarray) -> np.ndarray:
        """Return bytes (N, C, H, W), of one image or several, with or without its only channel."""
        form = tuple(self.shape)
        known = [form, form[1:]] if form[0] == 1 else [form]
        for each in known:
            if array.shape == each or array.shape[1:] == each:
                if array.dtype != np.uint8:
                    break
                return array.reshape(-1, *form)
        raise DataError(
            f"images must be bytes 0..255 of shape {form} or (samples, ...) of it, got "
            f"{array.dtype} of shape {array.shape}; convert them"
        )


@dataclass(frozen=True)
class Numbers(Preparation):
    """Numbers or tokens (N, ...), as they are; `whole`: they are tokens."""

    shape: Sequence[int]
    whole: bool

    reads = "arrays"

    def arrays(self, given: Any) -> np.ndarray:
        array = np.asarray(given)
        array = array[None] if array.shape == tuple(self.shape) else array
        if array.shape[1:] != tuple(self.shape):
            raise DataError(
                f"samples must be an array of shape (samples, {', '.join(map(str, self.shape))}), "
                f"got {array.shape}; give one entry per sample"
            )
        array = checked_inputs(array, "the given samples")
        if not self.whole and array.dtype == np.uint8 and array.max(initial=0) > 1:
            log.warning(
                "the given samples are bytes 0..%d, and the run was trained on decimal numbers, "
                "which it takes as they are: prepare the samples as its data were", array.max(),
            )  # fmt: skip
        if self.whole and (array.dtype.kind not in "ui" or array.dtype == np.uint8):
            whole = array.astype(np.int64)
            if not np.array_equal(whole, array):
                raise DataError(f"tokens must be integers, got {array.dtype}; round them")
            return whole
        return array if self.whole else array.astype(np.float32)


def usual(shape: Sequence[int], kind: np.dtype[Any], scale: Moments | None) -> Preparation:
    """Return how inputs without a description are prepared: as they are, or as pixels."""
    if kind == np.uint8:
        mean, deviation = (each.tolist() for each in scale) if scale else (None, None)
        return Pixels(list(shape), mean, deviation)
    return Numbers(list(shape), kind.kind in "ui")
