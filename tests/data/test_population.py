"""Populations: one contract for all, then each by hand."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app.compatibility import problems
from fl_app.composition import choices
from fl_app.config import ConfigError, load
from fl_app.data import partition, population, shift
from fl_app.data.datasets import DataError, Dataset
from fl_app.rng import generator
from fl_app.wiring import made

digits = partial(made, "data=digits")
mnist = partial(made, "data=mnist")
fashion_mnist = partial(made, "data=fashion_mnist")
image_folder = partial(made, "data=image_folder")

SETTINGS = {"dirichlet": {"alpha": 0.3, "groups": 2}}
PLANTED = ("iid", "label_swap", "rotation", "dirichlet", "quantity_skew")


def _build(name: str, *, seed: int = 0, **options: object) -> population.Population:
    given = {"clients": 12} | SETTINGS.get(name, {}) | options
    return made(f"population={name}", digits(seed=0), seed=seed, **given)


@pytest.mark.parametrize("name", [name for name in choices("population") if name != "by_column"])
def test_every_population_keeps_the_contract(name: str) -> None:
    people, same, other = _build(name), _build(name), _build(name, seed=1)
    assert people.clients == len(people.groups) == 12
    for part in (people.train, people.test):
        together = np.concatenate(list(part))
        assert name == "own" or len(np.unique(together)) == len(together)
    for ours, theirs in zip(people.train, same.train, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    drawn = any(list(a) != list(b) for a, b in zip(people.train, other.train, strict=True))
    assert drawn == (name != "own")
    data = people.client(5)
    assert data.train_images.shape == (len(people.train[5]), 1, 8, 8)
    assert data.train_images.dtype == torch.float32
    assert data.test_labels.dtype == torch.int64


@pytest.mark.parametrize("name", PLANTED)
def test_client_i_belongs_to_group_i_modulo_groups_and_has_samples(name: str) -> None:
    people = _build(name)
    np.testing.assert_array_equal(people.groups, np.arange(12) % people.count)
    for part in (people.train, people.test):
        assert min(map(len, part)) >= 1


@pytest.mark.parametrize("name", choices("population"))
def test_a_client_of_another_group_has_other_data_or_the_drift_is_refused(name: str) -> None:
    drift = ["population.dynamics.drifters=2", "population.dynamics.drift_rounds=[2]"]
    words = [f"population={name}", "population.clients=12", *drift]
    words += [f"population.{key}={value}" for key, value in SETTINGS.get(name, {}).items()]
    people = None if name == "by_column" else _build(name)
    if people is None or len(set(people.groups.tolist())) == 1:
        with pytest.raises(ConfigError, match=r"moves clients to the next planted group|name the"):
            load(words, also=problems)
        return
    load(words, also=problems)
    count = people.count
    start, moved, again, back = (people.client(3, drifts=n) for n in (0, 1, 1, count))
    assert not _same(start, moved)
    assert _same(moved, again)
    assert _same(start, back)


def _same(one: population.ClientData, other: population.ClientData) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True)
    )


def test_without_a_transform_a_drift_draws_from_the_samples_of_the_new_group() -> None:
    people = _build("dirichlet", alpha=0.05, groups=3)
    for parts, take in ((people.train, digits(seed=0).train), (people.test, digits(seed=0).test)):
        theirs = np.concatenate([parts[other] for other in (1, 4, 7, 10)])
        found = people._samples_in(1, 3, parts, "train split")
        assert len(found) == len(set(found.tolist())) == len(parts[3])
        assert set(found.tolist()) <= set(theirs.tolist())
        wanted = np.bincount(take(theirs)[1], minlength=10) / len(theirs)
        drawn = np.bincount(take(found)[1], minlength=10) / len(found)
        assert np.abs(wanted - drawn).max() < 0.15
    assert people._samples_in(1, 3, people.train, "") != pytest.approx(
        people._samples_in(1, 6, people.train, "")
    )
    few = population.Population(
        people.dataset, [np.arange(5), np.array([7])], [np.array([0]), np.array([1])], np.arange(2)
    )
    assert few.client(0, drifts=1).train_labels.tolist() == [people.dataset.train_labels[7]]
    unknown = population.Population(people.dataset, people.train, people.test, np.full(12, -1))
    assert _same(unknown.client(0, drifts=1), unknown.client(0))


def _tiny() -> Dataset:
    images = np.zeros((10, 1, 2, 2), np.uint8)
    images[:, 0, 0, 0] = 255
    labels = np.arange(10)
    return Dataset("tiny", 10, images, labels, images, labels)


@pytest.mark.parametrize("name", ["iid", "label_swap", "rotation"])
def test_with_replacement_any_number_of_clients_has_the_samples_asked_for(name: str) -> None:
    given = {"clients": 100_000, "train_samples": 7, "test_samples": 3, "draw": "replacement"}
    people, other = _build(name, **given), _build(name, seed=1, **given)
    assert people.clients == 100_000
    assert people.samples(99_999) == 7
    data = people.client(99_999)
    assert (len(data.train_labels), len(data.test_labels)) == (7, 3)
    assert people.train[5].tolist() == people.train[5].tolist()
    assert people.train[5].tolist() != people.train[6].tolist()
    assert people.train[5].tolist() != other.train[5].tolist()
    with pytest.raises(ValueError, match=r"0\.\.99999, got 100000; give each node"):
        people.client(100_000)


def test_drawing_with_replacement_asks_for_the_number_of_samples() -> None:
    with pytest.raises(ValueError, match=r"population.train_samples and .test_samples, got null"):
        _build("iid", draw="replacement", train_samples=5)


def test_label_swap_exchanges_the_two_labels_of_the_group() -> None:
    people = made("population=label_swap", _tiny(), seed=0, clients=1, groups=1)
    data = people.client(0)
    for kind, labels in (("train", data.train_labels), ("test", data.test_labels)):
        true = getattr(people, kind)[0]
        expected = [{0: 1, 1: 0}.get(int(label), int(label)) for label in true]
        assert labels.tolist() == expected


def test_rotation_turns_by_quarters_exactly() -> None:
    people = made("population=rotation", _tiny(), seed=0, clients=4, groups=4)
    corners = [tuple(np.argwhere(people.client(c).test_images[0, 0].numpy())[0]) for c in range(4)]
    assert corners == [(0, 0), (1, 0), (1, 1), (0, 1)]


def test_each_third_client_has_noise_of_its_own_on_its_images() -> None:
    given = {"seed": 0, "clients": 6, "every": 3, "deviation": 2.0}
    people, data = made("population=noise", digits(seed=0), **given), digits(seed=0)
    assert people.groups.tolist() == [0, 0, 1, 0, 0, 1]
    added = []
    for client in range(6):
        clean, _ = data.train(people.train[client])
        found = people.client(client).train_images
        added.append(found - clean)
        torch.testing.assert_close(found, people.client(client).train_images)
    assert [bool(each.any()) for each in added] == [False, False, True] * 2
    assert float(added[2].std()) == pytest.approx(2.0, rel=0.05)
    assert not torch.equal(added[2][:50], added[5][:50])


def test_rotation_by_other_angles_keeps_the_shape_and_fills_with_background() -> None:
    images = torch.full((1, 1, 9, 9), 2.0)
    images[..., 3:6, 3:6] = 5.0
    turned = shift.rotate(images, 45.0)
    assert turned.shape == images.shape
    assert turned[0, 0, 4, 4] == 5.0
    assert turned[0, 0, 0, 0] == 2.0
    assert turned.amin() >= 2.0
    assert turned.amax() <= 5.0


def test_nodes_with_data_of_their_own_hold_all_of_it_and_no_group_is_known() -> None:
    people = made("population=own", _tiny(), seed=0, clients=2)
    assert people.client(1).train_labels.tolist() == list(range(10))
    assert people.groups.tolist() == [-1, -1]


def test_dirichlet_groups_share_a_skewed_distribution() -> None:
    people = _build("dirichlet", alpha=0.1)
    counts = np.array([np.bincount(people.client(c).train_labels, minlength=10) for c in range(12)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    within = np.abs(shares[0] - shares[2]).sum()
    across = np.abs(shares[0] - shares[1]).sum()
    assert within < across


def test_quantity_skew_is_skewed_and_leaves_nobody_empty() -> None:
    sizes = [len(part) for part in _build("quantity_skew", alpha=0.1).train]
    assert min(sizes) >= 1
    assert max(sizes) > 5 * np.median(sizes)


def test_a_class_that_runs_out_is_replaced_and_sizes_hold() -> None:
    labels = np.array([0, 0, 1, 1, 1, 1])
    wish = np.array([[1.0, 0.0], [1.0, 0.0]])
    parts = partition.by_distribution(labels, wish, generator(0, purpose="t"), samples=3)
    assert [len(part) for part in parts] == [3, 3]
    assert sorted(np.concatenate(parts)) == list(range(6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _build("iid", clients=5000), "5000 clients of 1 samples need 5000 samples"),
        (lambda: _build("iid", train_samples=500), "lower population.clients"),
        (
            lambda: _build("label_swap", groups=6),
            "at most half of the 10 classes, got 6.*; lower it",
        ),
        (lambda: _build("iid").client(12), r"must be in 0..11, got 12"),
    ],
)
def test_what_does_not_fit_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_absent_data_say_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"its files there or point data\.root"):
        mnist(root=str(tmp_path), download=False, seed=0)
    with pytest.raises(DataError, match=r"expected .*train/<class>/<image>"):
        image_folder(root=str(tmp_path), seed=0)


def test_image_folder_reads_what_is_there(tmp_path: Path) -> None:
    from PIL import Image

    for split in ("train", "test"):
        for label, colour in (("blue", (0, 0, 255)), ("red", (255, 0, 0))):
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            Image.new("RGB", (5, 4), colour).save(folder / "0.png")
    data = image_folder(root=str(tmp_path), size=4, standardise=False, seed=0)
    images, labels = data.train(np.array([0, 1]))
    assert data.shape == (3, 4, 4)
    assert labels.tolist() == [0, 1]
    assert images[1, :, 0, 0].tolist() == [1.0, 0.0, 0.0]


def _picture(path: Path, width: int) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, 4), (9, 9, 9)).save(path)


def test_images_of_several_sizes_need_a_size(tmp_path: Path) -> None:
    for split in ("train", "test"):
        _picture(tmp_path / split / "a" / "0.png", 4)
        _picture(tmp_path / split / "a" / "1.png", 5)
    with pytest.raises(DataError, match=r"got .*give data\.size"):
        image_folder(root=str(tmp_path), seed=0)
    assert image_folder(root=str(tmp_path), size=4, seed=0).shape == (3, 4, 4)


def test_training_and_test_must_have_the_same_classes(tmp_path: Path) -> None:
    _picture(tmp_path / "train" / "a" / "0.png", 4)
    _picture(tmp_path / "test" / "b" / "0.png", 4)
    with pytest.raises(DataError, match="give both the same folders"):
        image_folder(root=str(tmp_path), seed=0)


def test_real_fashion_mnist_is_read(real_data: Path) -> None:
    data = fashion_mnist(root=str(real_data), download=False, seed=0)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10
    assert data.test_images.shape == (10000, 1, 28, 28)


def test_real_mnist_is_standardised(real_data: Path) -> None:
    data = mnist(root=str(real_data), download=False, seed=0)
    assert np.bincount(data.train_labels)[:2].tolist() == [5923, 6742]
    assert data.test_images.shape == (10000, 1, 28, 28)
    mean, deviation = data.moments
    assert float(mean[0]) == pytest.approx(0.1307, abs=1e-4)
    assert float(deviation[0]) == pytest.approx(0.3081, abs=1e-4)
