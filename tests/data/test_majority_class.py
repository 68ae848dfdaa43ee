"""Clients with a class of their own, and the data set and networks they come with."""

import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app.client.networks import from_torchvision
from fl_app.data.datasets import Dataset
from fl_app.wiring import made

digits = partial(made, "data=digits")
cifar10 = partial(made, "data=cifar10")
majority_class = partial(made, "population=majority_class")
mobilenet = partial(made, "network=mobilenet")


@pytest.fixture
def data() -> Dataset:
    return digits(seed=0)


def test_each_client_has_its_share_and_the_rest_evenly(data: Dataset) -> None:
    people = majority_class(data, seed=0, clients=10, share=0.7, train_samples=100, test_samples=20)
    for client in range(10):
        counts = np.bincount(data.train_labels[people.train[client]], minlength=10)
        assert counts[client] == 70
        others = np.delete(counts, client)
        assert others.sum() == 30
        assert others.max() - others.min() <= 1
        assert np.bincount(data.test_labels[people.test[client]], minlength=10)[client] == 14
    everyone = np.concatenate(people.train)
    assert len(np.unique(everyone)) == len(everyone)


def test_superclasses_are_the_groups(data: Dataset) -> None:
    halves = [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    people = majority_class(data, seed=0, clients=12, share=0.3, superclasses=halves)
    assert people.groups.tolist() == [0, 1] * 6
    assert majority_class(data, seed=0, clients=12, share=0.3).groups.tolist() == [
        *range(10),
        0,
        1,
    ]


def test_as_many_as_can_be_had_is_what_the_rarest_class_allows(data: Dataset) -> None:
    people = majority_class(data, seed=0, clients=10, share=1.0)
    rarest = np.bincount(data.train_labels).min()
    assert [len(mine) for mine in people.train] == [rarest] * 10


def test_what_cannot_be_is_refused(data: Dataset) -> None:
    with pytest.raises(ValueError, match="must name each of the 10 classes"):
        majority_class(data, seed=0, clients=2, share=0.3, superclasses=[[0], [1]])
    with pytest.raises(ValueError, match=r"need 700 samples of class 0, the data set has \d+"):
        majority_class(data, seed=0, clients=2, share=1.0, train_samples=700)


def _write_cifar10(root: Path) -> np.ndarray:
    """Write batches as CIFAR-10's authors do; return the first training image (3, 32, 32)."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    draw = np.random.default_rng(0)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    pixels = {name: draw.integers(0, 256, (4, 3072), dtype=np.uint8) for name in names}
    for name in names:
        batch = {"data": pixels[name], "labels": [0, 1, 2, 9]}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    return pixels["data_batch_1"][0].reshape(3, 32, 32)


def test_cifar10_is_read_as_its_authors_pack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchvision import datasets

    first = _write_cifar10(tmp_path)
    monkeypatch.setattr(datasets.CIFAR10, "_check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    data = cifar10(root=str(tmp_path), download=False, seed=0)
    assert data.shape == (3, 32, 32)
    assert len(data.train_labels) == 20
    np.testing.assert_array_equal(data.train_images[0], first)


def test_mobilenet_is_as_large_as_published_and_takes_small_images() -> None:
    network = mobilenet((3, 32, 32), 10)
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 1 + 2 * 13
    # the paper's 4.2 million, less the 1000-class head and the biases that go with it
    assert sum(p.numel() for p in network.parameters()) == 3_217_226
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert mobilenet((1, 28, 28), 10, width=0.25)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_networks_of_torchvision_come_by_name_and_without_dropout() -> None:
    network = from_torchvision((3, 32, 32), 7, model="mobilenet_v3_small")
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert all(m.p == 0 for m in network.modules() if isinstance(m, torch.nn.Dropout))
    with pytest.raises(ValueError, match="needs images of 3 channels, got 1"):
        from_torchvision((1, 28, 28), 10, model="mobilenet_v2")
