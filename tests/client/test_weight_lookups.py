"""Gradients of embeddings, of which no row is held for each sample, against autograd."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from sample_references import assert_alone, assert_clipped

from fl_app.client.clipped_gradients import SampleGradients, gradients_of
from fl_app.client.layer_calls import Watched, calls_of

WORDS, SIZE, CLASSES = 7, 3, 4


class Embedded(nn.Module):
    """Vectors of words, which are averaged and scored."""

    def __init__(self, words: nn.Embedding) -> None:
        super().__init__()
        self.words, self.head = words, nn.Linear(SIZE, CLASSES)

    def forward(self, given: Tensor) -> Tensor:
        index = given.nan_to_num(posinf=0).abs().mul(2).long().clamp(max=WORDS - 1)
        found: Tensor = self.words(index).tanh() * given[..., None]
        return self.head(found.flatten(1, -2).mean(1))


def _found(module: nn.Module, given: Tensor) -> SampleGradients:
    with calls_of(Watched(module)) as calls:
        loss = module(given).square().sum()
    return gradients_of(calls, loss)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 99), steps=st.sampled_from([(1,), (9,), (2, 3)]),
       ignored=st.sampled_from([None, 0, -1]))  # fmt: skip
def test_it_is_the_sum_of_the_clipped_gradients(
    seed: int, steps: tuple[int, ...], ignored: int | None
) -> None:
    torch.manual_seed(seed)
    module = Embedded(nn.Embedding(WORDS, SIZE, ignored))
    assert_clipped(module, torch.randn(5, *steps), torch.arange(5) % CLASSES)


def test_no_row_that_a_sample_does_not_use_is_held() -> None:
    module = Embedded(nn.Embedding(WORDS, SIZE))
    assert module.words.weight not in _found(module, torch.randn(5, 9)).parts


def test_a_sample_that_overflows_changes_no_other() -> None:
    torch.manual_seed(0)
    assert_alone(Embedded(nn.Embedding(WORDS, SIZE)), torch.randn(5, 9), torch.arange(5) % CLASSES)


@pytest.mark.parametrize("other", [{"sparse": True}, {"max_norm": 1.0}])
def test_embeddings_with_special_gradients_are_left_to_opacus(other: dict[str, float]) -> None:
    module = Embedded(nn.Embedding(WORDS, SIZE, **other))  # type: ignore[arg-type]
    with calls_of(Watched(module)) as calls:
        module(torch.randn(5, 9))
    assert type(calls[0]).__name__ == "Call"
