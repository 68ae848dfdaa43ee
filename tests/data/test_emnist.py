"""EMNIST from a folder of its own files, and what is said where there is none."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fl_app.data.datasets import DataError
from fl_app.wiring import made

emnist = partial(made, "data=emnist")


def _write(folder: Path, name: str, values: np.ndarray) -> None:
    """Write bytes in the IDX form that EMNIST comes in."""
    head = bytes([0, 0, 8, values.ndim])
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    (folder / name).write_bytes(head + sizes + values.astype(np.uint8).tobytes())


def _folder(root: Path, split: str, labels: np.ndarray) -> np.ndarray:
    """Write a split whose images are all the same; return that image as it lies in the file."""
    raw = root / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    image = np.arange(28 * 28).reshape(28, 28) % 256
    for part in ("train", "test"):
        _write(raw, f"emnist-{split}-{part}-images-idx3-ubyte", np.stack([image] * len(labels)))
        _write(raw, f"emnist-{split}-{part}-labels-idx1-ubyte", labels)
    return image


def test_images_are_turned_upright(tmp_path: Path) -> None:
    image = _folder(tmp_path, "digits", np.arange(10))
    data = emnist(root=str(tmp_path), split="digits", download=False, seed=0)
    assert data.shape == (1, 28, 28)
    assert (data.classes, len(data.train_labels), len(data.test_labels)) == (10, 10, 10)
    np.testing.assert_array_equal(data.train_images[0, 0], image.T)


def test_letters_count_from_zero(tmp_path: Path) -> None:
    _folder(tmp_path, "letters", np.arange(1, 27))
    data = emnist(root=str(tmp_path), split="letters", download=False, seed=0)
    assert data.classes == 26
    assert data.train_labels.tolist() == list(range(26))


def test_without_files_it_is_said_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"get gzip\.zip from NIST's page .* emnist-balanced-"):
        emnist(root=str(tmp_path), download=False, seed=0)
