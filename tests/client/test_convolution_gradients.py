"""Gradients of samples of convolutions, against autograd sample by sample."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_alone, assert_exact

from fl_app.client import convolution_gradients
from fl_app.client.convolution_gradients import has_many_places, of_samples

SAMPLES = 4
LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "sequences": (nn.Conv1d(3, 4, 3, padding=1), (3, 9)),
    "images": (nn.Conv2d(3, 4, (3, 2), stride=(1, 2), padding=(0, 1)), (3, 6, 7)),
    "volumes": (nn.Conv3d(2, 4, 2, dilation=2), (2, 4, 5, 6)),
    "groups": (nn.Conv2d(4, 8, 3, groups=2), (4, 6, 6)),
    "depthwise": (nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=4), (4, 6, 6)),
    "same size": (nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)), (2, 6, 7)),
    "valid": (nn.Conv1d(2, 3, 4, padding="valid", bias=False), (2, 8)),
}


@pytest.fixture(params=[1, 10**6], ids=["convolved", "unfolded"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_gradients, "MANY", request.param)


def _last(values: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return values.contiguous(memory_format=formats.get(values.dim(), torch.contiguous_format))


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("samples", [1, SAMPLES])
@pytest.mark.parametrize("name", list(LAYERS))
def test_gradients_of_convolutions_are_exact(name: str, samples: int) -> None:
    torch.manual_seed(0)
    layer, shape = LAYERS[name]
    given = torch.randn(samples, *shape, dtype=torch.double)
    assert_exact(layer.double(), given)
    gradient = torch.randn_like(layer(given))
    first = of_samples(layer, given, gradient)
    again = of_samples(layer, _last(given), _last(gradient))
    assert first.keys() == again.keys()
    for parameter, each in first.items():
        torch.testing.assert_close(again[parameter], each)


@pytest.mark.usefixtures("_way")
def test_a_sample_that_overflows_changes_no_other() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    assert_alone(module, torch.randn(SAMPLES, 3, 6, 6), torch.arange(SAMPLES) % 2)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_parameter_has_no_gradients(frozen: str) -> None:
    layer = nn.Conv2d(3, 4, 3)
    layer.get_parameter(frozen).requires_grad_(False)
    given = torch.randn(SAMPLES, 3, 6, 6)
    found = of_samples(layer, given, torch.ones_like(layer(given)))
    (trained,) = (p for p in layer.parameters() if p.requires_grad)
    true = [torch.autograd.grad(layer(each[None]).sum(), trained)[0] for each in given]
    assert found.keys() == {trained}
    torch.testing.assert_close(found[trained], torch.stack(true), rtol=1e-4, atol=1e-4)


def test_few_places_or_few_numbers_are_unfolded() -> None:
    layer = nn.Conv2d(8, 4, 5)
    assert has_many_places(layer, torch.zeros(1, 4, 10, 10))
    assert not has_many_places(layer, torch.zeros(1, 4, 9, 9))
    assert not has_many_places(nn.Conv2d(3, 4, 5), torch.zeros(1, 4, 20, 20))
    reflected = nn.Conv2d(8, 4, 5, padding=2, padding_mode="reflect")
    assert not has_many_places(reflected, torch.zeros(1, 4, 20, 20))
