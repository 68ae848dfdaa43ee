"""Label skew together with rotation."""

from functools import partial

import numpy as np

from fl_app.wiring import made

digits = partial(made, "data=digits")
dirichlet = partial(made, "population=dirichlet")
dirichlet_rotation = partial(made, "population=dirichlet_rotation")


SETTING = {"clients": 10, "alpha": 1.0, "train_samples": 60, "test_samples": 20}


def test_rotations_are_drawn_each_as_often_and_labels_are_those_of_dirichlet() -> None:
    data = digits(seed=0)
    people = dirichlet_rotation(data, seed=0, groups=4, **SETTING)
    assert sorted(np.bincount(people.groups)) == [2, 2, 3, 3]
    assert not np.array_equal(people.groups, np.arange(10) % 4)
    skewed = dirichlet(data, seed=0, **SETTING)
    for client, group in enumerate(people.groups.tolist()):
        turned, upright = people.client(client), skewed.client(client)
        assert np.array_equal(turned.train_labels, upright.train_labels)
        expected = np.rot90(upright.test_images, group, (2, 3))
        assert np.array_equal(turned.test_images, expected)


def test_drift_turns_a_client_to_the_next_rotation() -> None:
    people = dirichlet_rotation(digits(seed=0), seed=1, groups=4, **SETTING)
    before, after = people.client(3), people.client(3, drifts=1)
    assert np.array_equal(after.train_images, np.rot90(before.train_images, 1, (2, 3)))


def test_another_seed_draws_other_rotations() -> None:
    data = digits(seed=0)
    first, second = (dirichlet_rotation(data, seed=s, groups=4, **SETTING) for s in (0, 1))
    assert not np.array_equal(first.groups, second.groups)
