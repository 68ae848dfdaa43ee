"""Gradients of samples by plain autograd, one sample after another, and a comparison with them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fl_app.client.clipped_gradients import SampleGradients, gradients_of
from fl_app.client.layer_calls import Watched, calls_of

SHAPE, CLASSES, SAMPLES = (1, 12, 12), 4, 5


def images_of_rows() -> tuple[Tensor, Tensor]:
    """Return images, one brighter than the other, and their labels."""
    scale = torch.linspace(0.5, 1.5, SAMPLES)[:, None, None, None]
    return torch.randn(SAMPLES, *SHAPE) * scale, torch.arange(SAMPLES) % CLASSES


def loss_of(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the summed loss."""
    return functional.cross_entropy(module(images), labels, reduction="sum")


def one_by_one(module: nn.Module, images: Tensor, labels: Tensor) -> list[list[Tensor]]:
    """Return the gradients of each sample, in double precision."""
    module.double()
    parameters = [p for p in module.parameters() if p.requires_grad]
    found = [
        list(torch.autograd.grad(loss_of(module, image[None].double(), label[None]), parameters))
        for image, label in zip(images, labels, strict=True)
    ]
    module.float()
    return found


def zeros(module: nn.Module) -> dict[nn.Parameter, Tensor]:
    """Return zeros for each trained parameter."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return {p: torch.zeros_like(p, requires_grad=False) for p in trained}


def clipped_sums(
    found: SampleGradients, module: nn.Module, bound: float
) -> dict[nn.Parameter, Tensor]:
    """Return the sums of gradients, each clipped to a norm of `bound`, by parameter."""
    sums = zeros(module)
    found.add_clipped(sums, bound)
    return sums


def assert_clipped(module: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Assert that norms and clipped sums are those of the samples one by one, to 1e-5."""
    each = one_by_one(module, images, labels)
    norms = torch.tensor([sum(part.square().sum() for part in row) ** 0.5 for row in each])
    bound = float(norms.median())
    factors = (bound / norms).clamp(max=1.0)
    assert 0 < int((factors < 1).sum()) < len(images)
    with calls_of(Watched(module)) as calls:
        loss = loss_of(module, images, labels)
    found = gradients_of(calls, loss)
    torch.testing.assert_close(found.squares.sqrt(), norms.float(), rtol=1e-5, atol=1e-5)
    clipped = clipped_sums(found, module, bound)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    for place, (name, parameter) in enumerate(parameters.items()):
        expected = sum(factor * row[place] for factor, row in zip(factors, each, strict=True))
        assert (clipped[parameter] - expected).norm() <= 1e-5 * expected.norm() + 1e-6, name
        rows = torch.stack([row[place] for row in each]).float()
        torch.testing.assert_close(found.stacked()[parameter], rows, rtol=1e-4, atol=1e-4)


def assert_alone(module: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Assert that a sample that overflows changes no other sample's part of the sum."""
    spoilt = images.clone()
    spoilt[1] = torch.inf
    others = torch.arange(len(images)) != 1
    sums = []
    for some, those in ((spoilt, labels), (images[others], labels[others])):
        with calls_of(Watched(module)) as calls:
            loss = loss_of(module, some, those)
        sums.append(clipped_sums(gradients_of(calls, loss), module, 1.0))
    for parameter, found in sums[0].items():
        torch.testing.assert_close(found, sums[1][parameter], rtol=1e-4, atol=1e-5)


def found_of(layer: nn.Module, given: Tensor) -> tuple[SampleGradients, Watched]:
    module = nn.Sequential(layer)
    watched = Watched(module)
    with calls_of(watched) as calls:
        loss = module(given).square().sum()
    return gradients_of(calls, loss), watched


def assert_exact(layer: nn.Module, given: Tensor) -> Watched:
    """Assert that norms, gradients and weighted sums are those of the samples one by one."""
    parameters = list(layer.parameters())
    each = [
        torch.autograd.grad(layer(one[None]).square().sum(), parameters, allow_unused=True)
        for one in given
    ]
    found, watched = found_of(layer, given)
    stacked, weights = found.stacked(), torch.linspace(0.5, 2, len(given), dtype=given.dtype)
    some = torch.arange(len(given)) != 1
    sums = [zeros(layer), zeros(layer)]
    for told, chosen in zip(sums, (some, some | True), strict=True):
        found.add_weighted(told, weights, chosen)
    squares = torch.zeros(len(given), dtype=given.dtype)
    for place, parameter in enumerate(parameters):
        rows = [row[place] for row in each]
        true = torch.stack([torch.zeros_like(parameter) if r is None else r for r in rows])
        torch.testing.assert_close(stacked.get(parameter, torch.zeros_like(true)), true)
        squares += true.reshape(len(true), -1).square().sum(1)
        for told, factors in zip(sums, (weights * some, weights), strict=True):
            expected = torch.einsum("n,n...->...", factors, true)
            torch.testing.assert_close(told[parameter], expected)
    torch.testing.assert_close(found.squares, squares)
    return watched
