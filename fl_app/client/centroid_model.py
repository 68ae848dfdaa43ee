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
        # around the mean, since an offset would cost the inner products precision
        points = images.flatten(1)
        centre = points.mean(dim=0)
        moved, centroids = points - centre, self.centroids - centre
        squares = moved.square().sum(1, keepdim=True) + centroids.square().sum(1)
        # not by cdist, which no exporter to ONNX has
        return -(squares - 2 * moved @ centroids.T).clamp(min=0)
