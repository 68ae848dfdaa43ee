"""One contract for every network of conf."""

import pytest
import torch

from fl_app.config import choices
from fl_app.wiring import made


@pytest.mark.parametrize("name", choices("network"))
def test_every_network_scores_each_class_of_small_pictures(name: str) -> None:
    network = made(f"network={name}", (3, 32, 32), 10).eval()
    scores = network(torch.zeros(2, 3, 32, 32))
    assert scores.shape == (2, 10)
    assert scores.isfinite().all()
