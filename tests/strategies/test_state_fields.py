"""What a checkpoint cannot restore is refused before the first round, with the field's name."""

from collections import defaultdict, deque
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch

from fl_app.graph.vectors import ClientVectors
from fl_app.strategies.state import load, save
from fl_app.strategies.state_fields import check_fields
from fl_app.types import Vector


@dataclass
class Node:
    """A tree, as of a hierarchy."""

    model: Vector
    children: list["Node"] = field(default_factory=list)


@pytest.mark.parametrize(
    "hint",
    [int, float, str, bool, np.ndarray, Vector | None, dict[int, Vector], dict[str, Any], list,
     list[set[int]], tuple[int, ...], tuple[float, str], ClientVectors, Node, dict[int, Node],
     Literal["a", "b"], int | float | None, frozenset[str], np.ndarray[Any, Any], Any],
    ids=str,
)  # fmt: skip
def test_a_field_that_is_restored_is_accepted(hint: Any) -> None:
    check_fields(make_dataclass("Mine", [("field", hint)]))


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (dict, r"field: dict; give dict\[int"),
        (dict[tuple[int, int], float], r"field: dict\[tuple\[int, int\], float\]; give dict\[int"),
        (dict[bool, int], r"give dict\[int"),
        (list[dict[str, deque[int]]], r"field: collections.deque\[int\]; give arrays"),
        (defaultdict, "field: defaultdict; give arrays"),
        (set[tuple[int, int]], "give a set of numbers or texts, or a list"),
        (torch.Tensor | None, "field: Tensor; give a NumPy array"),
        (np.random.Generator, "field: Generator; give arrays"),
        (Node | int, r"field: Node \| int; give one type"),
        ("Unknown", "Mine: name 'Unknown' is not defined; import it without TYPE_CHECKING"),
        (make_dataclass("Part", [("inner", bytes)]), "field.inner: bytes; give arrays"),
    ],
    ids=str,
)
def test_a_field_that_is_not_restored_is_named(hint: Any, said: str) -> None:
    with pytest.raises(ValueError, match=rf"state of a method must .*got Mine with .*{said}"):
        check_fields(make_dataclass("Mine", [("field", hint)]))


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 0.5), (int | float, 0.5), (float, float("-inf")), (float, 3),
        (tuple[int, ...], (1, 2)),
        (tuple[float, str], (float("inf"), "inf")), (dict[int, float], {1: float("inf"), 2: None}),
        (dict[int, int], {3: 0.5}), (frozenset[int], frozenset({4})), (float | str, "a"),
        (dict[str, Any], {"a": [1, {"b": None}]}),
    ],
)  # fmt: skip
def test_a_value_comes_back_as_it_was(hint: Any, value: Any) -> None:
    kind = make_dataclass("Mine", [("field", hint)])
    again = kind(None)
    load(again, *save(kind(value)))
    assert again.field == value
    assert type(again.field) is type(value)


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(4), np.bool_(True)])
def test_a_number_of_numpy_is_saved_as_a_number(value: np.generic) -> None:
    _, values = save(make_dataclass("Mine", ["one", "more"])(value, [value]))
    assert values == {"one": value.item(), "more": [value.item()]}
    assert type(values["one"]) is type(value.item())


@pytest.mark.parametrize("value", [[1, np.ones(2)], {"a": {"b": np.ones(2)}}, (np.ones(2),)])
def test_no_array_is_lost_in_a_field_of_any_type(value: Any) -> None:
    kind = make_dataclass("Mine", [("field", Any)])
    again = kind(None)
    load(again, *save(kind(value)))
    np.testing.assert_array_equal(_array_in(again.field), np.ones(2))


def _array_in(value: Any) -> Any:
    while not isinstance(value, np.ndarray):
        value = value[-1] if isinstance(value, list) else next(iter(value.values()))
    return value


def test_a_value_of_another_type_than_its_field_is_named() -> None:
    with pytest.raises(TypeError, match=r"field.0 of the state must be .*got deque; convert it"):
        save(make_dataclass("Mine", [("field", Any)])([deque([1])]))
