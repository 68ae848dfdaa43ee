"""A folder with the arrays, texts or images of one client in each file or folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_app.data.checks import DataError
from fl_app.data.datasets import Dataset
from fl_app.wiring import made

by_column = partial(made, "population=by_column", seed=0)
SIZES = {"aachen": 5, "berlin": 8}
Write = Callable[[Path, str, int], None]


def _npz(root: Path, name: str, count: int) -> None:
    values = np.full((count, 2, 3), ord(name[0]), np.float32)
    np.savez(root / f"{name}.npz", inputs=values, labels=np.arange(count) % 2)


def _npy(root: Path, name: str, count: int) -> None:
    (root / name).mkdir()
    np.save(root / name / "inputs.npy", np.full((count, 2, 3), ord(name[0]), ">f8", "F"))
    np.save(root / name / "labels.npy", np.arange(count) % 2)


def _text(root: Path, name: str, count: int) -> None:
    rows = [f"{name} {row},{'no' if row % 2 else 'yes'}\n" for row in range(count)]
    (root / f"{name}.csv").write_text("text,label\n" + "".join(rows))


def _image(root: Path, name: str, count: int) -> None:
    for row in range(count):
        folder = root / name / ("no" if row % 2 else "yes")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (ord(name[0]), 0, 0)).save(folder / f"{row}.png")
    (root / name / "maybe").mkdir()


def _data(root: Path, option: str, write: Write, **options: object) -> Dataset:
    for name, count in SIZES.items():
        write(root, name, count)
    data: Dataset = made(f"data={option}", root=str(root), seed=0, **options)
    return data


@pytest.mark.parametrize(
    ("option", "write"),
    [("client_arrays", _npz), ("client_arrays", _npy), ("client_texts", _text),
     ("client_images", _image)],
)  # fmt: skip
def test_a_file_or_folder_is_a_client(tmp_path: Path, option: str, write: Write) -> None:
    scale = {"standardise": False} if option == "client_images" else {}
    data = _data(tmp_path, option, write, **scale)
    people = by_column(data, clients=2)
    assert people.names == tuple(SIZES)
    held = [people.client(client) for client in range(2)]
    assert [(len(h.train_labels), len(h.test_labels)) for h in held] == [(4, 1), (6, 2)]
    # the first value of a sample is one of its client
    firsts = [set(h.train_images.flatten(1)[:, 0].tolist()) for h in held]
    assert len(firsts[0]) == len(firsts[1]) == 1
    assert firsts[0] != firsts[1]
    assert data.classes == 2
    if option != "client_arrays":
        assert data.class_names == ("no", "yes")


def test_the_classes_are_those_of_all_clients(tmp_path: Path) -> None:
    _npz(tmp_path, "aachen", 4)
    np.savez(tmp_path / "b.npz", inputs=np.zeros((2, 2, 3)), labels=[7, 7])
    data = made("data=client_arrays", root=str(tmp_path), seed=0)
    assert (data.classes, data.inferred) == (8, ("data.classes",))


def test_a_vocabulary_in_the_folder_is_no_client(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("berlin\naachen\n")
    data = _data(tmp_path, "client_texts", _text, vocabulary_file="words.txt", length=2)
    assert data.owners is not None
    assert data.owners.names == tuple(SIZES)
    assert set(data.train_images[:, 0].tolist()) == {2, 3}


def _save(name: str, **arrays: object) -> Callable[[Path], None]:
    return lambda root: np.savez(root / name, **arrays)  # type: ignore[arg-type]


X, Y = np.zeros((2, 2, 3), np.float32), np.arange(2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_save("c.npz", inputs=X), r"c.npz must have the array labels, got inputs; save it by"),
        (_save("c.npz", inputs=X, labels=Y[:1]),
         r"labels of .*c.npz must have one entry per row of inputs of .*c.npz, 2, got 1"),
        (_save("c.npz", inputs=X[:, :1], labels=Y),
         r"inputs of .*c.npz must be like .*aachen.npz, .* got float32 of shape \(1, 3\)"),
        (_save("c.npz", inputs=X.astype(int), labels=Y), r"c.npz must be like .* got int64 of"),
        (_save("c.npz", inputs=X * [[np.nan]], labels=Y),
         r"inputs of .*c.npz must be finite float32, but not those of sample 0"),
        (_save("c.npz", inputs=X, labels=-Y), r"labels of .*c.npz must be 0..1 .*got -1"),
        (_save("Aachen.npz", inputs=X, labels=Y), r"different .*got Aachen.npz and aachen.npz"),
        (lambda root: (root / "c.npz").write_bytes(b"PK\3\4"), r"c.npz must be a .npy or .npz"),
        (lambda root: (root / "c").mkdir(), r"no array at .*c.inputs.npy; put"),
        (lambda root: (root / "aachen.npz").unlink(),
         r"expected a file ending in .npz or a folder with inputs.npy and labels.npy for each"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_of_the_client(
    tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    _npz(tmp_path, "aachen", 4)
    change(tmp_path)
    with pytest.raises(DataError, match=message):
        made("data=client_arrays", root=str(tmp_path), seed=0)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "c/x.png",
            r"in the folder of a class, got 1 beside .*such as .*c/x.png; move",
        ),
        ("c/train/a/x.png", r"must contain <class>/<image>, got train in .*c; put its images"),
        ("c/a/x.png", r"mostly 3x4 with 3 channels, got 5x5 .* in .*c/a/x.png; give data.size"),
        ("x.png", None),
    ],
)
def test_an_image_of_a_client_is_in_the_folder_of_a_class(
    tmp_path: Path, place: str, message: str | None
) -> None:
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (5, 5)).save(tmp_path / place)
    with pytest.raises(DataError, match=message or r"beside these folders, such as .*/x.png"):
        _data(tmp_path, "client_images", _image)
