"""The balanced test set of the server."""

import numpy as np
import pytest
import torch

from fl_app.client.central import balanced
from fl_app.data.datasets import Dataset

CPU = torch.device("cpu")


@pytest.mark.parametrize(("most", "each"), [(None, 2), (1, 1)])
def test_classes_without_a_sample_for_test_are_left_out(most: int | None, each: int) -> None:
    labels = np.array([0, 0, 0, 2, 2])
    images = np.arange(5, dtype=np.float32)[:, None, None, None]
    data = Dataset("mine", 4, images, labels, images, labels)
    shown, targets = balanced(data, CPU, most=most)
    assert targets.tolist() == [0] * each + [2] * each
    assert shown.ravel().tolist() == [*range(each), *range(3, 3 + each)]
