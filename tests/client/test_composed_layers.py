"""Cells and bilinear layers composed of products, against those of torch and plain autograd."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_alone, assert_clipped, assert_exact

from fl_app.client import own_layer_gradients
from fl_app.client.clipped_gradients import gradients_of
from fl_app.client.layer_calls import Watched, calls_of, traced_layers

INPUTS, HIDDEN, CLASSES, SAMPLES = 4, 5, 3, 5
CELLS: dict[str, Callable[[], nn.RNNCellBase]] = {
    "GRU": lambda: nn.GRUCell(INPUTS, HIDDEN),
    "LSTM": lambda: nn.LSTMCell(INPUTS, HIDDEN),
    "LSTM without biases": lambda: nn.LSTMCell(INPUTS, HIDDEN, bias=False),
    "tanh": lambda: nn.RNNCell(INPUTS, HIDDEN),
    "relu": lambda: nn.RNNCell(INPUTS, HIDDEN, nonlinearity="relu"),
}


class Steps(nn.Module):
    """The steps of sequences through a cell, whose first states are none or come from a layer."""

    def __init__(self, cell: nn.RNNCellBase, *, states: bool) -> None:
        super().__init__()
        self.cell, self.start = cell, nn.Linear(INPUTS, HIDDEN) if states else None
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, sequences: Tensor) -> Tensor:
        state = None
        if self.start is not None:
            first = self.start(sequences[:, 0])
            state = (first, first.sin()) if isinstance(self.cell, nn.LSTMCell) else first
        for step in sequences.unbind(1):
            state = self.cell(step, hx=state)
        scores: Tensor = self.head(state[0] + state[1] if isinstance(state, tuple) else state)
        return scores


class Alone(Steps):
    """The same, all in one layer with a parameter of its own: a first state for all samples."""

    def __init__(self, cell: nn.RNNCellBase, *, states: bool) -> None:
        super().__init__(cell, states=states)
        self.first = nn.Parameter(torch.randn(1, HIDDEN))

    def forward(self, sequences: Tensor) -> Tensor:
        return super().forward(sequences) + self.first[:, :CLASSES]


class Pairs(nn.Module):
    """Pairs of entries of sequences, or of their means."""

    def __init__(self, *, steps: bool) -> None:
        super().__init__()
        self.steps, self.first = steps, nn.Linear(INPUTS, 3)
        self.pairs = nn.Bilinear(3, INPUTS, CLASSES, bias=steps)

    def forward(self, sequences: Tensor) -> Tensor:
        given = sequences if self.steps else sequences.mean(1)
        found: Tensor = self.pairs(self.first(given), given)
        return found.tanh().mean(1) if self.steps else found


BUILD: dict[str, Callable[[], nn.Module]] = {
    f"{name}{' from states' * states}": lambda cell=cell, states=states: Steps(
        cell(), states=states
    )
    for name, cell in CELLS.items()
    for states in (False, True)
} | {"pairs": lambda: Pairs(steps=False), "pairs of steps": lambda: Pairs(steps=True)}


def _case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    sequences = torch.randn(SAMPLES, 6, INPUTS) * torch.arange(1, SAMPLES + 1)[:, None, None]
    return BUILD[name](), sequences, torch.arange(SAMPLES) % CLASSES


@pytest.mark.parametrize("name", list(BUILD))
def test_it_computes_what_torch_does_and_the_gradients_of_samples(name: str) -> None:
    module, sequences, labels = _case(name)
    expected = module(sequences)
    with calls_of(Watched(module)) as calls:
        found = module(sequences)
    torch.testing.assert_close(found, expected)
    held = {*gradients_of(calls, found.square().sum()).parts}
    assert held.isdisjoint(each for layer in traced_layers(module) for each in layer.parameters())
    assert_clipped(module, sequences, labels)


@pytest.mark.parametrize("name", ["GRU", "LSTM", "pairs of steps"])
def test_a_sample_that_overflows_changes_no_other(name: str) -> None:
    assert_alone(*_case(name))


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("name", list(CELLS))
def test_a_cell_in_a_layer_of_a_users_own_is_exact(
    name: str, states: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_layer_gradients, "SMALL", 0)
    torch.manual_seed(0)
    layer = Alone(CELLS[name](), states=states).double()
    watched = assert_exact(layer, torch.randn(SAMPLES, 3, INPUTS, dtype=torch.double))
    assert [each.apart for each in watched.own.values()] == [True]


def test_a_frozen_weight_has_no_gradient() -> None:
    module, sequences, labels = _case("GRU")
    module.cell.weight_hh.requires_grad_(False)
    module.cell.bias_ih.requires_grad_(False)
    assert_clipped(module, sequences, labels)


def test_a_cell_with_a_weight_that_is_computed_is_not_composed() -> None:
    cell = nn.GRUCell(INPUTS, HIDDEN)
    assert traced_layers(nn.Sequential(cell)) == [cell]
    torch.nn.utils.parametrizations.orthogonal(cell, "weight_hh")
    assert not traced_layers(nn.Sequential(cell))
