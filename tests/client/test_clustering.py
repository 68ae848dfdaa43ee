"""The centroid model of a client."""

import torch

from fl_app.client.centroid_model import CentroidModel


def test_forward_by_hand() -> None:
    model = CentroidModel(2, 2)
    model.centroids.data = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    images = torch.tensor([[0.0, 0.0], [3.0, 0.0]]).reshape(2, 1, 1, 2)
    torch.testing.assert_close(model(images), torch.tensor([[0.0, -25.0], [-9.0, -16.0]]))


def test_forward_tells_centroids_one_apart_far_from_the_origin() -> None:
    model = CentroidModel(2, 2)
    model.centroids.data = torch.tensor([[1e4, 1e4], [1e4 + 1, 1e4]])
    owner = torch.arange(60) % 2
    images = model.centroids.data[owner].reshape(60, 1, 1, 2)
    found = model(images)
    torch.testing.assert_close(found[range(60), owner], torch.zeros(60), atol=1e-3, rtol=0)
    assert found.argmax(dim=1).tolist() == owner.tolist()
