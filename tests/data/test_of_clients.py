"""Clients that have samples of their own become a data set that names them."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from fl_app.data.checks import DataError
from fl_app.data.natural import by_column, encoded
from fl_app.data.of_clients import of_clients


class Squares(TorchDataset[tuple[torch.Tensor, int]]):
    """Samples without an end but for their number, as some data sets of torch are."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(place**2)), place % 3


def test_each_client_has_its_own_samples_in_their_order() -> None:
    listed = [(np.ones(2, np.float32), np.int64(2))]
    found = of_clients("mine", 3, {"b": (Squares(4), iter(listed)), "a": (listed, Squares(2))})
    assert found.train_images.tolist() == [[0, 0], [1, 1], [4, 4], [9, 9], [1, 1]]
    assert found.train_labels.tolist() == [0, 1, 2, 0, 2]
    assert found.test_labels.tolist() == [2, 0, 1]
    population = by_column(
        found,
        seed=0,
        clients=2,
        min_samples=1,
        train_samples=None,
        test_samples=None,
        names=None,
    )
    assert population.names == ("b", "a")
    second = population.client(1)
    assert second.train_images.tolist() == [[1, 1]]
    assert second.test_labels.tolist() == [0, 1]


def test_clients_that_numbers_name_are_found_again_by_a_resumed_run() -> None:
    found = of_clients("mine", 3, {7: (Squares(4), Squares(2)), 12: (Squares(3), Squares(2))})
    options = {"clients": 2, "min_samples": 1, "train_samples": None, "test_samples": None}
    first = by_column(found, seed=0, names=None, **options)
    assert first.names == ("7", "12")
    again = by_column(found, seed=0, names=encoded(first.names), **options)
    assert again.names == first.names


def test_clients_without_samples_for_test_have_none() -> None:
    found = of_clients("mine", 3, {"a": (Squares(4), []), "b": (Squares(1), [])})
    assert found.test_images.shape == (0, 2)
    assert found.test_labels.shape == (0,)


def test_a_regression_has_numbers() -> None:
    pairs = [(np.ones(2, np.float32), 0.5)]
    found = of_clients("mine", 1, {"a": (pairs, pairs)}, target="regression")
    assert found.train_labels.ravel().tolist() == [0.5]


@pytest.mark.parametrize("kinds", [(np.int64, np.float64), (np.uint8, np.int64)])
def test_labels_for_test_are_not_cut_to_the_kind_of_those_for_training(
    kinds: tuple[type, type],
) -> None:
    train, test = kinds[0](3), kinds[1](300.5)
    inputs = np.ones(2, np.float32)
    given = {"a": ([(inputs, train)], [(inputs, test)])}
    found = of_clients("mine", 1, given, target="regression")
    assert (found.train_labels.item(), found.test_labels.item()) == (3, test)


@pytest.mark.parametrize(
    ("samples", "told"),
    [
        ([{"img": 1, "label": 2}], "client a must be a pair of inputs and label, got dict; give"),
        ([(1, 2, 3)], "client a must be a pair .*, got tuple of 3; give .* as one array"),
        ([(np.ones(2), 0), (np.ones(3), 0)], "must be arrays or tensors of one shape, got all"),
        ([(torch.ones(2, requires_grad=True), 0)], "must be arrays or tensors of one shape, got"),
    ],
)
def test_samples_that_fit_nowhere_are_told(samples: list[object], told: str) -> None:
    with pytest.raises(DataError, match=told):
        of_clients("mine", 3, {"a": (samples, samples)})


def test_batches_of_a_loader_are_no_samples() -> None:
    samples = TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    loader = DataLoader(samples, batch_size=2)
    with pytest.raises(DataError, match=r"got a DataLoader, which has batches.*loader\.dataset"):
        of_clients("wards", 2, {"a": (loader, samples)})
    single = DataLoader(samples, batch_size=None)
    assert len(of_clients("wards", 2, {"a": (single, samples)}).train_labels) == 4
