"""Arrays of any shape from NumPy files."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app.data.datasets import DataError
from fl_app.wiring import made

arrays = partial(made, "data=arrays", seed=0)
by_column = partial(made, "population=by_column", seed=0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    np.save(tmp_path / "inputs.npy", np.arange(240.0).reshape(40, 3, 2))
    np.save(tmp_path / "labels.npy", np.arange(40) % 4)
    np.save(tmp_path / "who.npy", np.array(["b", "a"])[np.arange(40) % 2])
    return tmp_path


def test_inputs_keep_their_shape_and_rows_their_labels_and_clients(root: Path) -> None:
    data = arrays(root=str(root), clients="who.npy")
    assert (data.shape, data.classes, data.inferred) == ((3, 2), 4, ("data.classes",))
    rows = data.train_images[:, 0, 0] / 6
    np.testing.assert_array_equal(rows % 4, data.train_labels)
    held = by_column(data, clients=2).client(0)
    assert (len(held.train_labels), len(held.test_labels)) == (16, 4)
    assert (held.train_images[:, 0, 0] / 6 % 2 == 1).all()


def test_labels_that_count_from_one_are_warned_of(root: Path, caplog) -> None:
    arrays(root=str(root))
    assert caplog.messages == []
    np.save(root / "labels.npy", np.arange(40) % 4 + 1)
    assert arrays(root=str(root)).classes == 5
    assert caplog.messages[0].startswith("labels must begin at 0, the least one is 1: ")
    caplog.clear()
    arrays(root=str(root), classes=9)
    assert caplog.messages == []


@pytest.mark.parametrize(("step", "warned"), [(1, False), (10, True)])
def test_labels_with_gaps_are_warned_of(
    root: Path, step: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    np.save(root / "labels.npy", np.arange(40) % 3 * step)
    arrays(root=str(root))
    assert ["3 different ones up to 20: the" in each for each in caplog.messages] == [True] * warned
    caplog.clear()
    arrays(root=str(root), classes=21)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("labels", "target", "classes", "dtype"),
    [
        (np.linspace(0, 1, 40), "regression", 1, torch.float32),
        (np.zeros((40, 3)), "regression", 3, torch.float32),
        (np.ones((40, 2), bool), "multilabel", 2, torch.int64),
        (np.full((40, 3), 6), "tokens", 7, torch.int64),
    ],
)
def test_labels_are_what_the_target_says(
    root: Path, labels: np.ndarray, target: str, classes: int, dtype: torch.dtype
) -> None:
    np.save(root / "labels.npy", labels)
    data = arrays(root=str(root), target=target)
    assert data.classes == classes
    assert data.train(np.array([0]))[1].dtype == dtype


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("who", np.full(40, 0.5), r"who.npy must have a whole number or a name .*got float64"),
        ("who", np.full(40, np.nan), r"who.npy must have a whole number or a name for each row"),
        ("who", np.ones((40, 2), int), r"who.npy must have .*, got int64 of shape \(40, 2\)"),
        ("labels", np.zeros(9, int), r"labels.npy must have one entry per row of .*inputs.npy, 40"),
        ("labels", np.linspace(0, 1, 40), r"integers of shape .* target='regression'"),
        ("labels", np.arange(40) - 1, r"labels.npy must be 0..38 for 39 .*got -1 for sample 0"),
        ("labels", np.array(["a"] * 40), r"must be integers .*got <U1"),
        ("inputs", np.zeros(40), r"inputs.npy must be numbers of shape \(samples, ...\), got"),
        ("inputs", np.full((40, 2), np.nan), r"inputs.npy must be finite .* those of sample 0"),
        ("inputs", np.float64(3), r"inputs.npy must be one array of at least one dimension"),
        ("inputs", b"text", r"inputs.npy must be a .npy or .npz file of numbers that can be read"),
        ("inputs", None, r"no array at .*inputs.npy; put the file there"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_or_the_sample(
    root: Path, name: str, values: object, message: str
) -> None:
    path = root / f"{name}.npy"
    if values is None:
        path.unlink()
    elif isinstance(values, bytes):
        path.write_bytes(values)
    else:
        np.save(path, values)
    with pytest.raises(DataError, match=message):
        arrays(root=str(root), clients="who.npy", test_share=0)


@pytest.mark.parametrize(
    ("who", "names"),
    [
        (np.arange(40) % 2 * 1.0, ("0", "1")),
        (np.array(["ä".encode(), b"b"])[np.arange(40) % 2], ("b", "ä")),
        (np.arange(40) % 2 == 0, ("False", "True")),
    ],
)
def test_clients_have_names_or_whole_numbers(
    root: Path, who: np.ndarray, names: tuple[str, ...]
) -> None:
    np.save(root / "who.npy", who)
    assert arrays(root=str(root), clients="who.npy").owners.names == names
