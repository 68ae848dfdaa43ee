"""Weights that layers compute from their parameters, against autograd sample by sample."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn import functional
from torch.nn.utils.parametrizations import orthogonal, weight_norm

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_exact, found_of

from fl_app.client import derived_rules, own_layer_gradients
from fl_app.client.derived_rules import Rule

SIZE, RANK, SAMPLES = 6, 2, 4
STEPS = [(), (3,)]


@pytest.fixture(autouse=True)
def _no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every matrix as large."""
    monkeypatch.setattr(own_layer_gradients, "SMALL", 0)


class Computed(nn.Module):
    """A dense layer that computes its weight (j, i)."""

    def __init__(self, weight: Callable[["Computed"], Tensor]) -> None:
        super().__init__()
        self.weight = weight
        self.w, self.v = (nn.Parameter(torch.randn(SIZE, SIZE + 1)) for _ in range(2))
        self.left = nn.Parameter(torch.randn(SIZE, RANK))
        self.right = nn.Parameter(torch.randn(RANK, SIZE + 1))
        self.row, self.column = (nn.Parameter(torch.rand(SIZE + k, 1) + 1) for k in (1, 0))
        self.flat = nn.Parameter(torch.randn(1, SIZE + 1))
        self.number, self.b = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.randn(SIZE))
        self.register_buffer("mask", torch.rand(SIZE, SIZE + 1).gt(0.5).float())

    def forward(self, values: Tensor) -> Tensor:
        return functional.linear(values, self.weight(self), self.b).tanh()


class Rounded(torch.autograd.Function):
    """Rounds, with a gradient of a user's own; no rule of vmap fits its branch on numbers."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return weight.round(decimals=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0] * (2 if float(slopes[0].abs().sum()) >= 0 else 1)


def standardised(w: Tensor) -> Tensor:
    return (w - w.mean(1, keepdim=True)) / (w.std(1, keepdim=True) + 0.1)


UNHELD: dict[str, Callable[[Computed], Tensor]] = {
    "low rank": lambda m: m.left @ m.right,
    "added low rank": lambda m: m.w.detach() + 0.5 * (m.left @ m.right),
    "trained, too": lambda m: m.w + m.left @ m.right / 3,
    "three factors": lambda m: m.left @ m.right @ m.row @ m.row.detach().T,
    "turned": lambda m: (m.right.T @ m.left.T).permute(1, 0).mT.transpose(1, 0).t().T,
    "linear": lambda m: functional.linear(m.left, m.right.T),
    "difference": lambda m: m.w - 2 * torch.sub(m.v, m.left @ m.right, alpha=3),
    "scaled": lambda m: -(m.mask.mean() * m.w / 3).clone(),
    "scaled rows": lambda m: m.column * m.w,
    "scaled columns": lambda m: m.w * m.row[:, 0],
    "divided rows": lambda m: m.w / m.column,
    "functions of scales": lambda m: m.w * m.flat.exp() / m.column.exp() * m.number.exp(),
    "number": lambda m: m.number * m.w,
    "moved": lambda m: m.w + m.column - m.row.T + m.number,
    "norms of rows": lambda m: torch._weight_norm(m.w, m.column, 0),
    "normalised": lambda m: functional.normalize(m.w, dim=1),
    "direction": lambda m: m.column * m.w / m.w.norm(dim=1, keepdim=True),
    "centred": lambda m: m.w - m.w.mean(1, keepdim=True),
    "standardised": lambda m: standardised(m.w),
    "by its norm": lambda m: m.w / (1 + m.w.norm()),
    "positive": lambda m: functional.softplus(m.w),
    "masked": lambda m: m.mask * m.w,
    "squares": lambda m: m.w * m.w + m.w.tril().exp(),
    "parts": lambda m: torch.cat([m.w[:2], m.w[2:] * 2]),
    "parts of a number": lambda m: torch.cat([m.number * m.w[:2], m.w[2:]]),
    "no rule": lambda m: Rounded.apply(m.w),
}
HELD: dict[str, Callable[[Computed], Tensor]] = {
    "columns normalised": lambda m: torch._weight_norm(m.w, m.row.T, 1) + m.w,
    "adapted direction": lambda m: (
        m.column * functional.normalize(m.w.detach() + m.left @ m.right, dim=1)
    ),
    "weight twice": lambda m: m.w @ m.w.T @ m.v,
    "symmetric": lambda m: (m.w[:, 1:].triu() + m.w[:, 1:].triu(1).T) @ m.v,
    "rows and entries": lambda m: m.w.exp() + m.w.sum(1, keepdim=True),
    "many ways": lambda m: sum(m.w * k + m.left @ m.right for k in range(12)),  # type: ignore[misc]
    "einsum": lambda m: torch.einsum("jr,ri->ji", m.left, m.right) + m.left @ m.right,
    "fixed": lambda m: m.number * m.w.detach() + m.number,
}


def _given(*shape: int) -> Tensor:
    return torch.randn(SAMPLES, *shape, SIZE + 1, dtype=torch.double)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", [*UNHELD, *HELD])
def test_gradients_of_computed_weights_are_exact(name: str, steps: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer = Computed((UNHELD | HELD)[name]).double()
    watched = assert_exact(layer, _given(*steps))
    assert [each.apart for each in watched.own.values()] == [True]


@pytest.mark.parametrize("name", list(UNHELD))
def test_no_matrix_is_held_for_each_sample(name: str) -> None:
    layer = Computed(UNHELD[name])
    found, _ = found_of(layer, torch.randn(SAMPLES, SIZE + 1))
    assert {layer.w, layer.v, layer.left, layer.right}.isdisjoint(found.parts)
    assert {layer.w, layer.left, layer.v}.intersection(found.stacked())


class Bare:
    """A function of torch's record without what is not public."""

    def __init__(self, node: Any) -> None:
        self.node = node

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.node, name)


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", list(UNHELD))
def test_another_release_of_torch_may_save_nothing(
    name: str, steps: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bared(rule: Rule) -> Rule:
        return lambda edge, *rest: rule(GradientEdge(Bare(edge.node), edge.output_nr), *rest)

    rules = {each: bared(rule) for each, rule in derived_rules.RULES.items()}
    monkeypatch.setattr(derived_rules, "RULES", rules)
    torch.manual_seed(0)
    assert_exact(Computed(UNHELD[name]).double(), _given(*steps))


STEP = {
    "scale": lambda w, m: 2 * w,
    "rows": lambda w, m: w * m.column,
    "norm": lambda w, m: functional.normalize(w, dim=1),
    "centre": lambda w, m: w - w.mean(1, keepdim=True),
    "low rank": lambda w, m: w + m.left @ m.right,
    "other": lambda w, m: w * m.mask + m.v,
    "entries": lambda w, m: w.sin(),
    "columns": lambda w, m: w / m.row.T,
    "product": lambda w, m: w @ m.w.T @ m.v,
}  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(names=st.lists(st.sampled_from([*STEP]), min_size=1, max_size=4),
       steps=st.sampled_from(STEPS), seed=st.integers(0, 99))  # fmt: skip
def test_any_chain_is_exact(names: list[str], steps: tuple[int, ...], seed: int) -> None:
    def computed(layer: Computed) -> Tensor:
        weight: Tensor = layer.w
        for name in names:
            weight = STEP[name](weight, layer)
        return weight

    torch.manual_seed(seed)
    assert_exact(Computed(computed).double(), _given(*steps))


@pytest.mark.parametrize("wrapped", [weight_norm, orthogonal])
def test_layers_of_torch_with_a_parametrisation_are_exact(
    wrapped: Callable[[nn.Module], nn.Module],
) -> None:
    torch.manual_seed(0)
    assert_exact(wrapped(nn.Linear(SIZE + 1, SIZE)).double(), _given(3))


@pytest.mark.parametrize("weight", [
    lambda m: 100 * functional.normalize(m.w, dim=1),
    lambda m: torch._weight_norm(m.w, 100 * torch.ones(SIZE, 1).to(m.w), 0),
])  # fmt: skip
def test_norms_are_exact_where_their_parts_cancel_out(
    weight: Callable[[Computed], Tensor],
) -> None:
    torch.manual_seed(0)
    layer = Computed(weight)
    layer.b.requires_grad_(False)  # whose gradient would be most of the norm
    with torch.no_grad():
        layer.w[1:] = layer.w[:1]
    given = layer.w.detach()[:1] * torch.linspace(0.001, 0.01, SAMPLES)[:, None]
    given = given + 1e-4 * torch.randn(SAMPLES, SIZE + 1)
    found, _ = found_of(layer, given)
    exact, _ = found_of(layer.double(), given.double())
    torch.testing.assert_close(found.squares.double(), exact.squares, rtol=1e-4, atol=0)


class Twice(Computed):
    """A layer that uses its weight twice, each time computed anew."""

    def forward(self, values: Tensor) -> Tensor:
        before = functional.linear(values, self.weight(self), self.b)
        other = torch._weight_norm(self.w, 2 * self.column, 0)
        both = functional.linear(values, self.weight(self)) + functional.linear(values, other)
        return before.tanh() + both


@pytest.mark.parametrize("steps", STEPS)
def test_the_gradients_of_a_normalised_weight_that_is_used_twice_are_added(
    steps: tuple[int, ...],
) -> None:
    torch.manual_seed(0)
    layer = Twice(lambda m: torch._weight_norm(m.w, m.column, 0))
    assert_exact(layer.double(), _given(*steps))


def test_a_weight_of_the_same_norms_that_is_used_twice_is_held_for_no_sample() -> None:
    layer = Twice(lambda m: torch._weight_norm(m.w, 2 * m.column, 0))
    found, _ = found_of(layer, torch.randn(SAMPLES, SIZE + 1))
    assert {*found.parts} == {layer.b}


def test_the_bias_of_a_product_has_no_copies() -> None:
    layer = Computed(lambda m: m.w)
    found, _ = found_of(layer, torch.randn(SAMPLES, SIZE + 1))
    assert not found.parts
    assert [product.trained() for product, _ in found.products] == [[layer.w, layer.b]]


class Broadcast(Computed):
    """A layer whose bias has fewer entries than its outputs, or more axes."""

    def forward(self, values: Tensor) -> Tensor:
        first = functional.linear(values, self.w, self.number)
        return first + functional.linear(values, self.v, self.column[:1].T) + self.b


@pytest.mark.parametrize("steps", STEPS)
def test_a_bias_that_is_broadcast_is_exact(steps: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    watched = assert_exact(Broadcast(lambda m: m.w).double(), _given(*steps))
    assert [each.apart for each in watched.own.values()] == [True]


class Changed(Computed):
    """A layer that changes its weight between two products."""

    def forward(self, values: Tensor) -> Tensor:
        weight = 2 * self.w
        before = functional.linear(values, weight)
        return before + functional.linear(values, weight.add_(self.v))


def test_a_weight_that_is_changed_after_its_use_is_another() -> None:
    torch.manual_seed(0)
    watched = assert_exact(Changed(lambda layer: layer.w).double(), _given(3))
    assert [each.apart for each in watched.own.values()] == [True]
