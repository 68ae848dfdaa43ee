"""The model of federated k-means; apart from its training, which loads SciPy."""

import torch
from torch import Tensor, nn


class CentroidModel(nn.Module):
    """Centroids (k, d) as parameters, and as a buffer how many points weigh each of them (k,).

    Forward gives minus the squared distance (s, k): the nearest centroid is the answer. A
    model travels in float32, whose numbers are 0.001 apart at 1e4, 0.06 at 1e6 and 1 at 1e7:
    clusters that lie nearer to each other than this, beside their distance from the origin,
    need tables that are centred before.
    """

    learner = "fl_app.client.clustering.CentroidLearner"

    def __init__(self, k: int, length: int) -> None:
        super().__init__()
        self.classes = k
        self.centroids = nn.Parameter(torch.randn(k, length))
        self.register_buffer("counts", torch.zeros(k))

    def forward(self, images: Tensor) -> Tensor:
        # around the images' mean: cdist takes inner products, which the offset would drown
        points = images.flatten(1)
        centre = points.mean(dim=0)
        return -torch.cdist(points - centre, self.centroids - centre).square()
