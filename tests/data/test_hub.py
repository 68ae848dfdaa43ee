"""Data of the hub: through a stand-in for flwr-datasets, and through itself where it is there."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fl_app.data.datasets import DataError
from fl_app.wiring import made

femnist = partial(made, "data=femnist", seed=0)
hub_images = partial(made, "data=hub_images", seed=0)
hub_table = partial(made, "data=hub_table", seed=0)
hub_text = partial(made, "data=hub_text", seed=0)
by_column = partial(made, "population=by_column", seed=0)


class _Split:
    """What flwr-datasets gives back, as far as it is used."""

    def __init__(self, columns: dict[str, list], names: dict[str, Sequence[str]]) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features: dict[str, Any] = dict.fromkeys(columns, SimpleNamespace())
        self.features |= {name: SimpleNamespace(names=each) for name, each in names.items()}
        self.names = names

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self):
        for row in range(len(self)):
            yield {name: column[row] for name, column in self.columns.items()}

    def __getitem__(self, name: str) -> list:
        return self.columns[name]

    def select(self, order) -> "_Split":
        return _Split({n: [c[i] for i in order] for n, c in self.columns.items()}, self.names)


def _digits(count: int) -> _Split:
    columns = {
        "image": [np.full((28, 28), i % 250, np.uint8) for i in range(count)],
        "character": [i % 250 % 62 for i in range(count)],
        "writer_id": [f"w{i % 5}" for i in range(count)],
    }
    return _Split(columns, {"character": [f"c{i}" for i in range(62)]})


def _pretend(monkeypatch: pytest.MonkeyPatch, load) -> None:
    class FederatedDataset:
        def __init__(self, *, dataset: str, subset: str, partitioners: dict, shuffle: bool) -> None:
            self.dataset = dataset

        def load_split(self, split: str) -> _Split:
            return load(self.dataset, split)

    module = ModuleType("flwr_datasets")
    module.FederatedDataset = FederatedDataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flwr_datasets", module)


def test_femnist_comes_by_name_with_its_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    _pretend(monkeypatch, lambda name, split: asked.append((name, split)) or _digits(200))
    data = femnist(samples=100)
    assert asked == [("flwrlabs/femnist", "train")]
    assert (data.shape, data.classes, data.class_names[61]) == ((1, 28, 28), 62, "c61")
    assert len(data.train_labels) + len(data.test_labels) == 100
    assert (data.train_images[:, 0, 0, 0] % 62 == data.train_labels).all()
    people = by_column(data, clients=5)
    assert {len(people.client(client).test_labels) for client in range(5)} <= {3, 4, 5}
    with pytest.raises(DataError, match="has no 'digit'; it has image, character, writer_id; name"):
        femnist(label="digit")


def test_images_are_resized_and_have_a_split_for_test(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, split: str) -> _Split:
        shapes = [(4, 6), (8, 8)] if split == "train" else [(3, 3)]
        pictures = [Image.new("P", shape) for shape in shapes]
        return _Split({"img": pictures, "label": ["a", "b", "a"][: len(pictures)]}, {})

    _pretend(monkeypatch, load)
    data = hub_images(size=5, channels=1)
    assert (data.train_images.shape, data.test_images.shape) == ((2, 1, 5, 5), (1, 1, 5, 5))
    assert (data.class_names, data.test_labels.tolist()) == (("a", "b"), [0])
    with pytest.raises(DataError, match=r"mostly .* in row \d of uoft-cs/cifar10; give data.size"):
        hub_images()


def test_a_table_and_texts_come_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"age": [30, None, 50], "job": ["a", "b", "a"], "income": [0, 1, 1]}
    _pretend(monkeypatch, lambda name, split: _Split(columns, {"income": ["low", "high"]}))
    data = hub_table(missing="mean", test_share=0)
    assert data.train_images.tolist() == [[30, 1, 0], [40, 0, 1], [50, 1, 0]]
    assert (data.class_names, data.train_labels.tolist()) == (("low", "high"), [0, 1, 1])
    with pytest.raises(DataError, match=r"row 1, column 'age' of scikit-learn/adult.* given"):
        hub_table()
    texts = {"text": ["x y", [7, 8]], "label": [1, 0]}
    _pretend(monkeypatch, lambda name, split: _Split(texts, {"label": ["no", "yes"]}))
    data = hub_text(length=2)
    assert data.train_images.tolist() == [[4, 5], [2, 3]]
    assert data.train_labels.tolist() == [1, 0]


def test_without_the_package_or_the_network_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    for load in (femnist, hub_table, hub_text):
        with pytest.raises(DataError, match="install the extra hub of fl-app"):
            load()

    def fails(name: str, split: str) -> _Split:
        raise ConnectionError("no route")

    _pretend(monkeypatch, fails)
    with pytest.raises(DataError, match=r"flwrlabs/femnist could not be .* HF_HOME .*no route"):
        femnist()


def test_a_copy_on_the_disk_comes_through_the_package_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    pytest.importorskip("flwr_datasets", reason="the extra hub is not installed")
    root = tmp_path / "data"
    root.mkdir()
    for split, count in (("train", 40), ("test", 8)):
        lines = [f"word{i % 2} x,{('no', 'yes')[i % 2]},{i % 4},{i}" for i in range(count)]
        text = "\n".join(["text,label,who,age", *lines])
        (root / f"{split}.csv").write_text(text)
    data = hub_text(name=str(root), client="who", length=3)
    assert (data.shape, data.class_names) == ((3,), ("no", "yes"))
    assert (len(data.train_labels), len(data.test_labels)) == (40, 8)
    assert by_column(data, clients=4).samples(0) == 10
    table = hub_table(name=str(root), label="label", test_split="test", exclude=["text", "who"])
    assert table.train_images[:3].tolist() == [[0], [1], [2]]
