"""Noise that is drawn when rows of an embedding are read has the law of noise at each step."""

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fl_app.client import pending_noise
from fl_app.client.accountant import Release
from fl_app.client.learner import TrainingJob
from fl_app.client.pending_noise import pending
from fl_app.client.private_training import Bounded, train_privately
from fl_app.params import FlatModule
from fl_app.system_numbers import SystemNumbers

WORDS, SIZE, LENGTH, CLASSES, SAMPLES = 2000, 64, 20, 3, 20
RATE, STEPS = 0.5, 9
SETTINGS: Any = SimpleNamespace(
    learning_rate=RATE, momentum=0.0, weight_decay=0.0, proximal=0.0, epochs=1
)
COMPILED = type("Compiled", (nn.Sequential,), {"__module__": "torch._dynamo.eval_frame"})
"""Stands for a network of `torch.compile`, which takes seconds to import."""
ALWAYS_READ = slice(1, 1 + 10 * LENGTH)


class Texts(nn.Module):
    """Scores of the mean vector of words; `seen` has what each step reads, in order."""

    def __init__(self, *, tied: bool = False, twice: bool = False, kept: bool = False) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, SIZE), nn.Linear(SIZE, CLASSES)
        self.tied, self.twice = tied, twice
        nn.init.zeros_(self.words.weight)
        self.keeps, self.kept = kept, torch.zeros(0)
        self.seen: list[Tensor] = []

    def forward(self, given: Tensor) -> Tensor:
        vectors = self.words(given)
        if self.twice:
            vectors = vectors + self.words(given.flip(1))
        if self.keeps and not len(self.kept):
            self.kept = self.words.weight.data
        if self.keeps:
            self.seen.append(self.kept.clone())
        elif self.tied:
            self.seen.append(functional.linear(torch.eye(SIZE), self.words.weight).detach().T)
        else:
            self.seen.append(vectors.detach().flatten(0, 1))
        scores: Tensor = self.head(vectors.mean(1))
        return scores


def _trained(
    module: nn.Module, *, clip: float, deviation: float, system: bool = False, **other: float
) -> Tensor:
    """Return the embedding after STEPS, each with noise of `deviation` on the mean gradient."""
    flat = FlatModule(module)
    module(torch.zeros(1, LENGTH, dtype=torch.int64))
    module.seen.clear()  # type: ignore[union-attr, operator]
    given = 1 + torch.arange(SAMPLES * LENGTH).view(SAMPLES, LENGTH) % (10 * LENGTH)
    job = TrainingJob(
        flat.vector(), given, torch.arange(SAMPLES) // 7, torch.Generator().manual_seed(1),
        noise=SystemNumbers() if system else torch.Generator().manual_seed(2),
    )  # fmt: skip
    release = Release(noise_multiplier=deviation * SAMPLES / clip, rate=1.0, steps=STEPS)
    settings: Any = SimpleNamespace(**{**vars(SETTINGS), **other})
    train_privately(flat, settings, Bounded(release, clip=clip), job)
    return module.words.weight.detach().clone()  # type: ignore[union-attr, operator, return-value]


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize("options", [{}, {"tied": True}, {"twice": True}])
def test_each_row_has_the_noise_of_all_steps(options: dict[str, bool], *, system: bool) -> None:
    """With 9 steps at rate 0.5 and a deviation of 0.2: sqrt(9) * 0.5 * 0.2 = 0.3."""
    found = _trained(Texts(**options), clip=1e-6, deviation=0.2, system=system)
    never = found[ALWAYS_READ.stop :]
    for rows, error in ((found[ALWAYS_READ], 0.03), (never, 0.01)):  # 12,800 and 115,000 numbers
        assert float(rows.std()) == pytest.approx(0.3, rel=error)
        assert float(rows.mean()) == pytest.approx(0, abs=0.3 * error)
        assert float(rows.pow(4).mean()) / 0.3**4 == pytest.approx(3, rel=4 * error)  # Gaussian


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"kept": True}])
def test_what_a_step_reads_has_the_noise_of_the_steps_before(options: dict[str, bool]) -> None:
    module = Texts(**options)
    _trained(module, clip=1e-6, deviation=0.2)
    found = [float(each.std()) for each in module.seen]
    assert found == pytest.approx([0.1 * step**0.5 for step in range(STEPS)], rel=0.03)
    steps = torch.stack([after - before for before, after in pairwise(module.seen)])
    between = torch.corrcoef(steps.flatten(1)).fill_diagonal_(0).abs().max()
    assert float(between) < 0.03  # no noise of a step is in another one


@pytest.mark.parametrize("options", [{}, {"tied": True}, {"twice": True}])
def test_without_noise_the_model_is_that_of_noise_at_each_step(
    options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for large in (pending_noise.LARGE, WORDS * SIZE + 1):
        monkeypatch.setattr(pending_noise, "LARGE", large)
        torch.manual_seed(0)
        found.append(_trained(Texts(**options), clip=10.0, deviation=0.0))
    assert found[0].abs().max() > 1e-4
    assert torch.allclose(*found, rtol=0, atol=1e-8)


@pytest.mark.parametrize(("tied", "rows"), [(False, [3, 3, WORDS]), (True, [WORDS] * 3)])
def test_noise_is_drawn_for_rows_that_are_read_and_in_the_end(
    *, tied: bool, rows: list[int]
) -> None:
    module, drawn = Texts(tied=tied), list[int]()
    with pending(
        FlatModule(module), SETTINGS, lambda noise: drawn.append(len(noise.normal_()))
    ) as late:
        for _ in range(3):
            module(torch.tensor([[1, 5, 5], [5, 9, 1]]))
            module(torch.tensor([[9, 9, 1]]))
            late[module.words.weight].step()
    assert drawn == rows


@pytest.mark.parametrize("other", ["momentum", "weight_decay", "proximal"])
def test_where_earlier_noise_changes_a_step_it_is_drawn_at_each(other: str) -> None:
    settings: Any = SimpleNamespace(**{**vars(SETTINGS), other: 0.1})
    with pending(FlatModule(Texts()), settings, Tensor.normal_) as late:
        assert not late
    with pending(FlatModule(Texts()), SETTINGS, Tensor.normal_) as late:
        assert len(late) == 1


def _frozen() -> nn.Module:
    made = Texts()
    made.words.requires_grad_(False)
    return made


def _inside_a_layer_of_ones_own() -> nn.Module:
    made = Texts()
    made.register_parameter("scale", nn.Parameter(torch.ones(1)))
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Embedding(WORDS, 8),
        _frozen,
        _inside_a_layer_of_ones_own,
        lambda: COMPILED(Texts()),
        lambda: nn.Sequential(Texts(), torch.jit.script(nn.ReLU())),
    ],
    ids=["small", "frozen", "inside", "compiled", "scripted"],
)
def test_small_weights_and_those_whose_uses_are_not_seen_have_noise_at_each_step(
    make: Callable[[], nn.Module],
) -> None:
    with pending(FlatModule(make()), SETTINGS, Tensor.normal_) as late:
        assert not late


def test_a_weight_is_an_ordinary_parameter_after_a_failure() -> None:
    module = Texts()
    with pending(FlatModule(module), SETTINGS, Tensor.normal_):
        assert type(module.words.weight) is not nn.Parameter
    assert type(module.words.weight) is nn.Parameter
    with pytest.raises(IndexError), pending(FlatModule(module), SETTINGS, Tensor.normal_):
        module(torch.full((1, LENGTH), WORDS))
    assert type(module.words.weight) is nn.Parameter
