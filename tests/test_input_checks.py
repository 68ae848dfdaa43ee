"""What a network is tried on before a run, and what its error names."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_app.client.networks import mlp, text_classifier
from fl_app.data.datasets import Dataset
from fl_app.input_checks import check_inputs
from fl_app.schema import Target


def _data(tokens: np.ndarray, test: np.ndarray) -> Dataset:
    return Dataset("mine", 2, tokens, np.zeros(len(tokens), int), test, np.zeros(len(test), int))


def _texts() -> nn.Module:
    return text_classifier((4,), 2, vocabulary=50, width=3, hidden=3)


@pytest.mark.parametrize(
    ("part", "token", "told"),
    [
        ("training", -1, r"in -1\.\.3, as sample 7 of the training data .*number the tokens from"),
        ("training", 50, r"in 3\.\.50, as sample 7 of the training data .*needs 51 rows"),
        ("test", -1, r"in -1\.\.3, as sample 7 of the test data of mine"),
        ("test", 50, r"in 3\.\.50, as sample 7 of the test data of mine"),
    ],
)
def test_a_single_token_without_an_embedding_is_named(part: str, token: int, told: str) -> None:
    parts = {"training": np.full((20, 4), 3), "test": np.full((20, 4), 3)}
    parts[part][7, 2] = token
    with pytest.raises(ValueError, match=told):
        check_inputs(
            _texts(), Target(path="mine.net", options={}), _data(parts["training"], parts["test"])
        )


class _Pairs(nn.Module):
    """Scores of a user and an item by an embedding for each."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(50, 2), nn.Embedding(30, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Return scores (s, 2)."""
        found: Tensor = self.users(ids[:, 0]) + self.items(ids[:, 1])
        return found


def test_a_token_without_a_row_in_the_embedding_of_its_field_is_named() -> None:
    ids = np.stack([np.arange(50), np.arange(50) % 30], axis=1)
    target = Target(path="mine.net", options={})
    check_inputs(_Pairs(), target, _data(ids, ids))
    ids[7, 1] = 35  # a user has this number, an item has not
    with pytest.raises(ValueError, match="as sample 7 of the training data of mine"):
        check_inputs(_Pairs(), target, _data(ids, ids[:0]))


def test_tokens_up_to_the_last_embedding_are_taken() -> None:
    tokens = np.arange(100).reshape(25, 4) % 50
    check_inputs(_texts(), Target(path="mine.net", options={}), _data(tokens, tokens[:0]))


@pytest.mark.parametrize(
    ("module", "kind", "remedy"),
    [
        (mlp((4,), 2, hidden=[3]), np.int16, "integers are tokens; convert pixels to uint8"),
        (_texts(), np.uint8, "bytes are pixels; save tokens as int64"),
        (_texts(), np.float32, "let forward take one tensor of this shape, or use other data"),
        (nn.Bilinear(2, 2, 2), np.float32, "let forward take one tensor with all features"),
        (nn.Linear(4, 2).double(), np.float32, "convert them to float64, and its answers to"),
        (nn.Linear(4, 2).bfloat16(), np.float64, "convert them to bfloat16, and its answers"),
    ],
)
def test_the_remedy_is_that_of_the_network_and_of_the_numbers(
    module: nn.Module, kind: type, remedy: str
) -> None:
    inputs = np.ones((3, 4), kind)
    with pytest.raises(ValueError, match=remedy):
        check_inputs(module, Target(path="mine.net", options={}), _data(inputs, inputs))


class _Late(nn.Module):
    """Makes its last layer in forward."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return scores (s, 2)."""
        found: Tensor = nn.Linear(4, 2)(inputs)
        return found


@pytest.mark.parametrize(
    ("module", "warned"), [(_Late(), True), (nn.Sequential(nn.Linear(4, 2), nn.Dropout()), False)]
)
def test_answers_that_vary_in_evaluation_mode_are_told(
    module: nn.Module, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    inputs = np.ones((3, 4), np.float32)
    check_inputs(module, Target(path="mine.net", options={}), _data(inputs, inputs))
    assert ("create its layers in the constructor" in caplog.text) == warned
