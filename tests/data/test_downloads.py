"""A damaged file of a published data set is named, and is not told as absent."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fl_app.data.datasets import DataError
from fl_app.wiring import made

mnist = partial(made, "data=mnist", download=False, seed=0)
cifar10 = partial(made, "data=cifar10", download=False, seed=0)
FILES = {"images-idx3-ubyte": (20, 28, 28), "labels-idx1-ubyte": (20,)}


def _write(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim])
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(head + sizes + values.astype(np.uint8).tobytes())


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        for name, shape in FILES.items():
            _write(folder / f"{part}-{name}", np.arange(np.prod(shape)).reshape(shape) % 10)
    return folder


def _load(raw: Path):
    return mnist(root=str(raw.parent.parent))


def test_whole_files_are_read(raw: Path) -> None:
    assert _load(raw).train_labels.tolist() == [*range(10)] * 2


def test_a_truncated_file_is_named_with_its_bytes(raw: Path) -> None:
    path = raw / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte must have the 15,696 bytes .*695"):
        _load(raw)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>"])
def test_a_file_of_another_kind_is_named(raw: Path, content: bytes) -> None:
    (raw / "train-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(
        DataError, match=r"train-labels-idx1-ubyte must be an IDX file of bytes in 1"
    ):
        _load(raw)


def test_labels_under_the_name_of_images_are_found(raw: Path) -> None:
    labels = (raw / "train-labels-idx1-ubyte").read_bytes()
    (raw / "train-images-idx3-ubyte").write_bytes(labels)
    with pytest.raises(DataError, match=r"starts with 00000803, got 00000801; another file"):
        _load(raw)


def test_ten_labels_for_more_images_are_refused(raw: Path) -> None:
    _write(raw / "train-labels-idx1-ubyte", np.arange(10))
    with pytest.raises(DataError, match=r"training data of mnist .*10 labels for 20 samples"):
        _load(raw)


def test_a_label_beyond_the_classes_is_refused(raw: Path) -> None:
    _write(raw / "t10k-labels-idx1-ubyte", np.full(20, 77))
    with pytest.raises(DataError, match=r"test data of mnist must be 0..9 .*got 77 for sample 0"):
        _load(raw)


def test_a_damaged_batch_of_cifar_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_2").write_bytes(b"short")
    with pytest.raises(DataError, match=r"data_batch_2 must have the MD5 sum d4bba439e000b95fd0a"):
        cifar10(root=str(tmp_path))


def test_a_failed_download_leaves_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", ["file:///nowhere/", "file:///no/"])
    (tmp_path / "old").mkdir()
    with pytest.raises(DataError, match=r"MNIST is not at .* and could not be down") as raised:
        mnist(root=str(tmp_path / "old" / "new"), download=True)
    assert "\n" not in str(raised.value)
    assert [*tmp_path.rglob("*")] == [tmp_path / "old"]
