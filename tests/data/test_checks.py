"""What no network can be trained on is one sentence before the run, for every data set."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

sys.path.insert(0, str(Path(__file__).parent))  # where user_data is
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.data.datasets import DataError, Dataset

ROWS = np.zeros((3, 2), np.float32)


def _dataset(labels: Any, *, inputs: Any = ROWS, classes: int = 2, **options: Any) -> Dataset:
    none = np.asarray(labels)[:0]  # without test data
    none = none if options else none.astype(int).reshape(-1)
    return Dataset("mine", classes, inputs, labels, ROWS[:0], none, **options)


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0.5, 1.0, 0.0], {}, r"data of mine must be integers .* got float64 .*regression"),
        ([0, -1, 1], {}, r"must be 0..1 for 2 classes, got -1 for sample 1 and 0 others"),
        ([0, 77, 77], {"classes": 10}, r"must be 0..9 for 10 classes, got 77 for sample 1 and 1"),
        ([0, 1], {}, r"one label per sample, got 2 labels for 3 samples"),
        ([[0], [1], [0]], {}, r"integers of shape \(samples,\), got int64 of shape \(3, 1\)"),
        ([[0], [1], [0]], {}, r"reshape them to \(3,\)"),
        ([[0, 1], [1, 0], [0, 1]], {}, r"of shape \(3, 2\); .* give labels.argmax\(axis=1\)$"),
        ([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], {}, r"give labels.argmax\(axis=1\)$"),
        ([[0, 1], [1, 1], [0, 0]], {}, r"; give target='multilabel' for"),
        ([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]], {}, r"target='regression' for numbers"),
        ([1.0, 1.0, 0.0], {}, r"got float64 .*; convert .* labels.astype\('int64'\), or .*regr"),
        ([[0.0, 1.0], [1, 1], [0, 0]], {"target": "multilabel"}, r"labels.astype\('int64'\)$"),
        (["a", "b", "a"], {}, r"number the classes from 0$"),
        ([0, 0, 0], {"classes": 0}, "at least 1, got 0"),
        ([0, 1, 0], {"classes": 2.0}, "classes of .* must be a whole number, got 2.0"),
        ([0, np.nan, 1], {}, "leave out the 1 samples whose label is NaN, and number the"),
        ([0, np.nan, 1], {"classes": 1, "target": "regression"}, r"finite .* got nan for sample 1"),
        ([0, 1e39, 1], {"classes": 1, "target": "regression"}, r"finite .* got 1e\+39 for"),
        ([0, 1, 2], {"target": "regression"}, r"2 numbers per sample .*`classes` to how many"),
        ([[0, 1], [1, 2], [0, 0]], {"target": "multilabel"}, r"0..1 .*got \[1 2\] for sample 1"),
        ([[0], [1], [0]], {"target": "multilabel"}, r"0 or 1 for each of the 2 classes"),
        ([[0, 1], [1, -100], [-1, 0]], {"target": "tokens"}, r"0..1 .*got \[-1  0\] for sample 2"),
        (np.zeros((3, 2, 4), int), {"target": "tokens"}, r"got \(3, 2, 4\); .* to \(3, 8\), and"),
    ],
)  # fmt: skip
def test_labels_that_do_not_fit_are_refused(labels: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _dataset(np.array(labels), **options)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.array([[0, 1], [np.inf, 0], [0, 0]]), "float32, but not those of sample 1 and 0"),
        (np.array([[0, 1], [1e39, 0], [0, 0]]), "finite float32, but not those of sample 1"),
        (np.array(["a", "b", "c"]), r"numbers of shape \(samples, ...\), got <U1 of shape \(3,\)"),
        (np.zeros((3, 0)), "at least one number each"),
        (np.array(["a", "b", "c"]), "number the words and categories, or read them by data=text"),
        (np.ones((3, 2)) * 1j, "got complex128 .*; give real and imaginary parts as two numbers"),
        ({"image": np.zeros((3, 4)), "row": np.zeros((3, 2))}, "got a dict of 2 parts; flatten"),
        ((np.zeros((3, 4)), np.zeros((3, 4))), r"one array \(samples, ...\), got a tuple of 2 "),
        ([np.zeros(1), np.zeros(2), np.zeros(1)],
         "inputs of .* one array of equal shapes, got list"),
        (np.zeros((3, 2), np.uint8), r"must be like those for training, uint8 .*got float32"),
        (np.zeros((3, 4), np.float32), r"of shape \(4,\), got float32 of shape \(2,\)"),
        (ROWS[:, 0], r"got float32 of shape \(3,\); give inputs\[:, None\] for one number"),
        (np.float32(3), r"of shape \(\); return one entry per sample"),
        (None, r"got object of shape \(\); return an array, one entry per sample"),
        (torch.from_numpy(ROWS).to_sparse(), r"must be a dense tensor .*; give .to_dense\(\)"),
        (csr_matrix(ROWS), r"must be dense, got csr_matrix; give .toarray\(\)"),
        (np.ma.masked_less(ROWS, 1), "must all be given, got 6 masked numbers; fill them in"),
        (np.full((3, 2), "2020-01-01", "M8[D]"), "write times as numbers, such as the days since"),
        (ROWS.astype(object), r"got object .*convert numbers by inputs.astype\('float32'\)"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(inputs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        _dataset(np.zeros(3, int), inputs=inputs)


def test_labels_that_are_none_are_named() -> None:
    with pytest.raises(DataError, match="an array with one entry per sample, got NoneType; return"):
        Dataset("mine", 2, ROWS, None, ROWS, None)  # type: ignore[arg-type]


def test_tensors_of_any_precision_are_read() -> None:
    wanted = torch.tensor([[0.5, 1], [2, 3], [4, 5]])
    for given in (wanted.bfloat16(), wanted.half(), wanted.double(), wanted.requires_grad_()):
        found, labels = _dataset(torch.tensor([0, 1, 0]), inputs=given).train(np.arange(3))
        assert torch.equal(found, wanted)
        assert found.dtype == torch.float32
        assert labels.tolist() == [0, 1, 0]


def test_labels_are_classes_or_numbers_as_the_target_says() -> None:
    first = np.array([0, 2])
    classes = _dataset(np.array([True, False, True])).train(first)[1]
    assert (classes.dtype, classes.tolist()) == (torch.int64, [1, 1])
    numbers = _dataset([0.5, 2, -1], classes=1, target="regression").train(first)[1]
    assert (numbers.dtype, numbers.tolist()) == (torch.float32, [0.5, -1])
    several = _dataset([[0, 1], [1, 1], [0, 0]], target="multilabel").train(first)[1]
    assert (several.dtype, several.tolist()) == (torch.int64, [[0, 1], [0, 0]])
    tokens = _dataset([[0, 1, 1], [1, 1, -100], [1, 0, -100]], target="tokens").train(first)[1]
    assert tokens.tolist() == [[0, 1, 1], [1, 0, -100]]


def test_inputs_keep_their_shape_and_integers_stay_integers() -> None:
    tokens = np.arange(6, dtype=np.int32).reshape(3, 2)
    data = Dataset("mine", 2, tokens, np.zeros(3, int), tokens, np.zeros(3, int))
    assert data.shape == (2,)
    taken, _ = data.train(np.array([2]))
    assert (taken.dtype, taken.tolist()) == (torch.int64, [[4, 5]])
    assert _dataset(np.zeros(3, int), inputs=ROWS.astype(float)).train(np.array([0]))[0].dtype == (
        torch.float32
    )


@pytest.mark.parametrize(
    ("function", "overrides", "message"),
    [
        ("signs", [], r"must be 0..1 for 2 classes, got -1 for sample 0 and 19 others"),
        ("nothing", [], r"data._target_ must return a .*Dataset, got user_data.nothing"),
        ("rows", ["network=mcmahan_cnn"], r"a CNN needs images of shape .*got .*\(3,\)"),
        ("rows", ["network._target_=user_data.wide", "~network.width"],
         r"network must take inputs of shape \(2, 3\), torch.float32 .*user_data.wide with R"),
        ("rows", ["network._target_=user_data.broken", "~network.width"],
         r"network for inputs of shape \(3,\) and 2 classes, got user_data.broken with KeyError"),
        ("tokens", ["network._target_=user_data.embedding", "~network.width"],
         r"inputs of shape \(2, 3\), torch.int64 in .*99, as .* got user_data.embedding"),
        ("tokens", ["network._target_=user_data.embedding", "~network.width", "attack=noisy"],
         r"attack must keep inputs torch.int64, got .*Noisy, which makes them torch.float32"),
        ("rows", ["attack=backdoor"], r"attack needs images of shape"),
        ("rows", ["population=rotation"], r"population=rotation needs images of shape"),
        ("rows", ["population.dynamics.drifters=1", "population.dynamics.drift=rotation"],
         r"population.dynamics.drift=rotation needs images"),
        ("numbers", ["network._target_=user_data.linear", "~network.width"],
         r"task must be regression with data whose labels are of this kind"),
        ("numbers", ["population=label_swap"], r"population=label_swap needs data with one of at"),
        ("numbers", ["population=dirichlet"], r"a Dirichlet distribution of labels needs data"),
    ],
)  # fmt: skip
def test_data_and_what_uses_them_are_checked_together(
    function: str, overrides: list[str], message: str
) -> None:
    given = ["population=iid", "population.clients=2", "data=digits", "~data.test_share"]
    given += ["~data.standardise", f"data._target_=user_data.{function}", "strategy=fedavg"]
    with pytest.raises(ConfigError, match=message) as caught:
        load([*given, *overrides], also=problems)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "option", "message"),
    [
        ("named", "names=[no,yes]", None),
        ("named", "names=[0,1]", r"`class_names` .* 2 different words, .* got \[0, 1\] of user"),
        ("named", "names=[no,no]", r"`class_names` .* got \['no', 'no'\] of user_data.named"),
        ("named", "names=[no]", r"`class_names` .* got \['no'\] of user_data.named"),
        ("centred", "kind=list", None),
        ("centred", "kind=array", r"`preparation` .* got Centred .*: TypeError: .* ndarray is"),
        ("centred", "kind=silent", r"`preparation` .* what it reads, got Silent of user_data.cen"),
    ],
)
def test_what_a_run_stores_of_a_users_data_can_be_stored(
    function: str, option: str, message: str | None
) -> None:
    given = ["population=iid", "population.clients=2", "data=digits", "~data.test_share",
             "~data.standardise", f"data._target_=user_data.{function}", f"+data.{option}",
             "network._target_=user_data.linear", "~network.width", "strategy=fedavg"]  # fmt: skip
    with nullcontext() if message is None else pytest.raises(ConfigError, match=message):
        load(given, also=problems)


def test_an_option_of_a_users_data_can_be_a_list() -> None:
    given = ["population=iid", "population.clients=2", "data=digits", "~data.test_share"]
    given += ["~data.standardise", "data._target_=user_data.listed", "+data.values=[1.0,2.0]"]
    given += ["network._target_=user_data.linear", "~network.width", "strategy=fedavg"]
    assert load(given, also=problems).data.options["values"] == [1.0, 2.0]


def test_options_of_a_users_data_have_the_types_of_its_parameters() -> None:
    given = ["population=iid", "population.clients=2", "data=digits", "~data.test_share",
             "~data.standardise", "data._target_=user_data.of_folder", "+data.root=wards",
             "+data.ward=south", "+data.sides=[2,3]", "strategy=fedavg",
             "network._target_=user_data.linear", "~network.width"]  # fmt: skip
    assert load(given, also=problems).data.options["sides"] == (2, 3)
