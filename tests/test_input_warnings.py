"""Inputs that a network takes, but hardly learns from."""

import numpy as np
import pytest
import torch

from fl_app.data.datasets import Dataset
from fl_app.input_warnings import warn_of_inputs


def of(inputs: np.ndarray) -> Dataset:
    labels = np.arange(len(inputs)) % 2
    return Dataset("mine", 2, inputs, labels, inputs, labels)


@pytest.mark.parametrize(
    ("ages", "scales", "told"),
    [
        (1.0, True, []),
        (40.0, True, ["give data.standardise=true"]),
        (40.0, False, ["divide them in the data or the network"]),
    ],
)
def test_numbers_of_another_size_are_told(
    ages: float, scales: bool, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.stack([np.full(20, ages), np.linspace(-1, 1, 20)], axis=1)
    warn_of_inputs(torch.nn.Linear(2, 2), of(rows), scales=scales)
    found = [each.message for each in caplog.records]
    assert [each.rpartition(": ")[2] for each in found] == told
    assert all("1 of the 2 numbers of an input of mine" in each for each in found)


@pytest.mark.parametrize(("kind", "rest"), [(np.uint8, (3, 4, 4)), (np.int64, (9,))])
def test_pixels_and_tokens_are_no_such_numbers(
    kind: type, rest: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_inputs(torch.nn.Flatten(), of(np.full((20, *rest), 200, kind)), scales=True)
    assert not caplog.messages


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize(
    ("shape", "channels", "warned"),
    [((8, 9, 3), 8, True), ((3, 8, 8), 3, False), ((8, 9, 3), 3, False), ((3, 8, 3), 3, False)],
)
def test_channels_at_the_end_are_told_where_the_network_has_pixels(
    shape: tuple[int, ...],
    channels: int,
    warned: bool,
    kind: type,
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(channels, 4, 3))
    warn_of_inputs(network, of(np.zeros((20, *shape), kind)), scales=False)
    found = ["have 8 channels of 9x3 pixels for the network" in each for each in caplog.messages]
    assert found == [True] * warned
