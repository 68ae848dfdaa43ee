"""The model of federated k-means; its training is in another module, which loads SciPy."""

import torch
from torch import Tensor, nn


class CentroidModel(nn.Module):
    """Centroids (k, d) as parameters, and the counts of their points (k,) as a buffer.

    Forward returns minus the squared distances (s, k), so the nearest centroid is the prediction.
    Models are sent in float32, whose spacing is 0.001 at 1e4, 0.06 at 1e6 and 1 at 1e7. If the
    clusters are closer to each other than this spacing, centre the tables first.
    """

    learner = "fl_app.client.clustering.CentroidLearner"

    def __init__(self, k: int, length: int) -> None:
        super().__init__()
        self.classes = k
        self.centroids = nn.Parameter(torch.randn(k, length))
        self.register_buffer("counts", torch.zeros(k))

    def forward(self, images: Tensor) -> Tensor:
        # around the mean, since cdist uses inner products and an offset would cost precision
        points = images.flatten(1)
        centre = points.mean(dim=0)
        return -torch.cdist(points - centre, self.centroids - centre).square()
