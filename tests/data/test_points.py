"""Points: blobs and populations by clusters."""

from functools import partial

import numpy as np
import pytest

from fl_app.data.datasets import Dataset
from fl_app.wiring import made

digits = partial(made, "data=digits")
blobs = partial(made, "data=blobs")
non_iid = partial(made, "population=non_iid")
half_iid = partial(made, "population=half_iid")


def test_blobs_are_as_the_paper_has_them_and_keyed_by_the_seed() -> None:
    found, same, other = blobs(seed=0), blobs(seed=0), blobs(seed=1)
    points, labels = found.train_images.reshape(-1, 2), found.train_labels
    assert points.shape == (10_100, 2)
    assert np.bincount(labels).tolist() == [2000] * 5 + [100]
    for centre in range(5):
        np.testing.assert_allclose(points[labels == centre].std(axis=0), 0.2, atol=0.02)
        assert np.abs(points[labels == centre].mean(axis=0)).max() < 1.02
    assert np.abs(points[labels == 5]).max() <= 1
    np.testing.assert_array_equal(found.train_images, same.train_images)
    assert not np.array_equal(found.train_images, other.train_images)
    np.testing.assert_array_equal(blobs(seed=7, draw=0).train_images, found.train_images)
    taken, _ = found.train(np.array([3]))
    assert taken.numpy().ravel().tolist() == points[3].tolist()


@pytest.mark.parametrize("build", [half_iid, non_iid])
def test_clients_by_clusters_share_all_samples_out_and_can_be_repeated(build) -> None:
    data = digits(seed=0)
    found, same, other = (build(data, seed=seed, clients=12) for seed in (0, 0, 1))
    for part, count in ((found.train, 1438), (found.test, 359)):
        assert sorted(np.concatenate(list(part)).tolist()) == list(range(count))
    for ours, theirs in zip(found.train, same.train, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert any(list(a) != list(b) for a, b in zip(found.train, other.train, strict=True))
    assert found.groups.tolist() == [-1] * 12
    few = build(data, seed=0, clients=12, train_samples=20, test_samples=5)
    assert (sum(map(len, few.train)), sum(map(len, few.test))) == (240, 60)


def _spread(people) -> float:
    """Return the mean squared distance of clients' points to their own mean."""
    images = people.dataset.train_images
    parts = [images[each].reshape(len(each), -1).astype(float) for each in people.train]
    return float(np.mean([((part - part.mean(axis=0)) ** 2).sum(axis=1).mean() for part in parts]))


def test_clusters_are_tight_and_half_iid_lies_between() -> None:
    data = digits(seed=0)
    tight, half = (_spread(build(data, seed=0, clients=12)) for build in (non_iid, half_iid))
    whole = data.train_images.reshape(1438, -1).astype(float)
    loose = ((whole - whole.mean(axis=0)) ** 2).sum(axis=1).mean()
    assert tight < 0.7 * loose
    assert tight < half < loose


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_clusters_one_apart_are_dealt_whole_far_from_the_origin(offset: float) -> None:
    draw = np.random.default_rng(0)
    owner = np.arange(120) % 2
    table = offset + owner[:, None] * [1.0, 0.0] + draw.normal(0, 0.05, (120, 2))
    points = table.astype(np.float32)[:, None, None, :]
    data = Dataset("far", 2, points, owner, points, owner)
    people = non_iid(data, seed=0, clients=2)
    for indices in (people.train, people.test):
        held = [set(owner[indices[client]].tolist()) for client in range(2)]
        assert sorted(held, key=sorted) == [{0}, {1}]


def test_more_clusters_than_points_are_refused() -> None:
    with pytest.raises(ValueError, match="need at least 800 points, the data set has 1438"):
        half_iid(digits(seed=0), seed=0, clients=800)


def test_clusters_of_points_that_are_the_same_are_refused() -> None:
    points = np.repeat(np.arange(3, dtype=np.float32), 20)[:, None, None, None]
    labels = np.zeros(60, int)
    data = Dataset("same", 1, points, labels, points[:3], labels[:3])
    assert sorted(len(each) for each in non_iid(data, seed=0, clients=3).train) == [20, 20, 20]
    with pytest.raises(ValueError, match="4 clusters need at least 4 different points, the data"):
        non_iid(data, seed=0, clients=4)
    assert all(len(each) for each in half_iid(data, seed=0, clients=4).train)
