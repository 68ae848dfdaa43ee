"""Checks of data and their split before a run, among them that each process gets the same."""

import json
from collections.abc import Callable

import numpy as np

from fl_app.building import is_ours
from fl_app.data.datasets import DataError, Dataset
from fl_app.data.population import Population, own
from fl_app.reasons import reason_of
from fl_app.schema import Target
from fl_app.wiring import dataset, fresh_dataset

LARGEST = 2**28
"""Bytes of a user's data up to which they are loaded twice."""
PARTS = ("train_images", "train_labels", "test_images", "test_labels")
REMEDY = "draw by numpy.random.default_rng(seed), with the seed that it is given"


def loaded(data: Target, seed: int) -> Dataset:
    """Return the data; raises ValueError, also for what a user's function raises.

    Server, clients and later evaluations each load them, so a user's data are loaded twice, to see
    whether they are the same.
    """
    whole = _told(data, lambda: dataset(data, seed))
    if is_ours(data):
        return whole
    _check_form(whole, data.path)
    if sum(getattr(whole, part).nbytes for part in PARTS) > LARGEST:
        return whole
    again = _told(data, lambda: fresh_dataset(data, seed))
    if not all(np.array_equal(getattr(whole, part), getattr(again, part)) for part in PARTS):
        raise ValueError(
            f"data must be the same in every process that loads them, got others at the second "
            f"call of {data.path}; {REMEDY}"
        )
    return whole


def _check_form(data: Dataset, path: str) -> None:
    """Raise ValueError for names or a preparation that a run cannot store for its later use."""
    names = list(data.class_names)
    words = {each for each in names if isinstance(each, str)}
    if names and not len(words) == len(names) == data.classes:
        raise ValueError(
            f"`class_names` of the data must be {data.classes} different words, or empty, got "
            f"{names[:5]} of {path}"
        )
    kind = type(data.prepares).__name__
    if not hasattr(data.prepares, "reads"):
        raise ValueError(
            f"`preparation` of the data must say what it reads, got {kind} of {path} without; give "
            'it the class attribute `reads`: "images", "arrays" or "tables"'
        )
    try:
        json.dumps(data.prepares.describe())
    except TypeError as error:
        raise ValueError(
            f"`preparation` of the data must be a frozen dataclass of JSON values, got {kind} of "
            f"{path}: {reason_of(error)}; give lists and numbers, as array.tolist() returns them"
        ) from error


def _told(data: Target, load: Callable[[], Dataset]) -> Dataset:
    try:
        return load()
    except (Exception, SystemExit) as error:  # a user's function can raise anything
        if isinstance(error, DataError) or (is_ours(data) and isinstance(error, ValueError)):
            named = "" if "data" in str(error) else f"data={data.path}: "
            raise ValueError(f"{named}{error}") from error
        if is_ours(data):
            raise
        raise ValueError(
            f"data._target_ must load the data, got {data.path} with {reason_of(error)}; correct it"
        ) from error


def check_population(people: Target, data: Dataset, seed: int) -> None:
    """Raise ValueError for a split that is impossible, or a user's that is no split."""
    if not len(data.train_labels) and is_ours(people) and people.resolve() is not own:
        raise DataError(
            f"data must have samples for training, got none in {data.name}; fill the file, or give "
            "population=own in a deployment, whose nodes have them"
        )
    if is_ours(people):
        people.resolve()(data, seed=seed, **people.options)
        return
    made, again = (_split(people, data, seed) for _ in range(2))
    if not _equal(made, again):
        raise ValueError(
            "population must be the same in every process that builds it, got another one at the "
            f"second call of {people.path}; {REMEDY}"
        )


def _split(people: Target, data: Dataset, seed: int) -> Population:
    try:
        made: object = people.resolve()(data, seed=seed, **people.options)
        if not isinstance(made, Population):
            raise TypeError(f"{type(made).__name__} in its place")
        made.check(people.options["clients"])
    except (Exception, SystemExit) as error:  # a user's function can raise anything
        raise ValueError(
            f"population._target_ must return a fl_app.data.population.Population, got "
            f"{people.path} with {reason_of(error)}; correct it"
        ) from error
    return made


def _equal(made: Population, again: Population) -> bool:
    """Return whether two splits have the same samples, groups, and inputs of the first client."""
    pairs = zip((*made.train, *made.test), (*again.train, *again.test), strict=True)
    first, second = (vars(each.client(0)) for each in (made, again))
    return (
        np.array_equal(made.groups, again.groups)
        and all(np.array_equal(*pair) for pair in pairs)
        and all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)
    )
