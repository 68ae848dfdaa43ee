"""The principal vectors that a client tells, by hand and against a singular value decomposition."""

import numpy as np
import pytest
import torch

from fl_app.client.subspaces import principal_vectors, subspaces


def test_the_longest_direction_is_the_first() -> None:
    samples = torch.tensor([[0.0, 3.0, 0.0], [2.0, 0.0, 0.0], [0.0, -3.0, 0.0]])
    found = np.abs(principal_vectors(samples, 3))
    np.testing.assert_allclose(found, [[0, 1, 0], [1, 0, 0], [0, 0, 0]], atol=1e-6)


def test_no_samples_and_no_light_have_no_direction() -> None:
    assert not principal_vectors(torch.zeros(0, 4), 2).any()
    assert not principal_vectors(torch.zeros(5, 4), 2).any()
    assert principal_vectors(torch.ones(5, 4), 6).shape == (6, 4)


@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (6, 6)])
def test_they_are_singular_vectors(shape: tuple[int, int]) -> None:
    samples = torch.from_numpy(np.random.default_rng(0).normal(size=shape)).float()
    direct = np.linalg.svd(samples.numpy().astype(float))[2][:3]
    # up to their signs
    products = np.abs(principal_vectors(samples, 3) @ direct.T)
    np.testing.assert_allclose(products, np.eye(3), atol=1e-5)


def test_each_class_has_its_own_and_only_what_is_asked_is_told() -> None:
    images = torch.tensor([[[2.0, 0.0]], [[0.0, 1.0]], [[3.0, 0.0]]])
    labels = torch.tensor([0, 2, 0])
    asked = {"subspace": 2, "class_subspaces": 6}
    told = subspaces(images, labels, asked, classes=3)
    np.testing.assert_allclose(np.abs(told["subspace"]), [1, 0], atol=1e-6)
    np.testing.assert_allclose(np.abs(told["class_subspaces"]), [1, 0, 0, 0, 0, 1], atol=1e-6)
    assert subspaces(images, labels, {"class_losses": 3}, classes=3) == {}
