"""What is saved of a state is what is loaded, whatever its fields."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from fl_app.graph.vectors import ClientVectors
from fl_app.records.checkpoint import CheckpointError
from fl_app.strategies.model_evaluation import GLOBAL
from fl_app.strategies.state import Communities, MethodState, check_models, load, save
from fl_app.testing.toy import SIZE, builder, context, roster


@dataclass
class Part:
    loss: float
    model: np.ndarray
    choices: dict[int, int]


@dataclass(kw_only=True)
class Everything(MethodState):
    vectors: ClientVectors
    parts: list[Part] = field(default_factory=list)
    best: Part | None = None
    due: set[int] = field(default_factory=set)
    least: float = float("inf")
    losses: list[float] = field(default_factory=list)
    over: bool = False
    by_name: dict[str, np.ndarray] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def _fresh(**values: Any) -> Everything:
    return Everything(
        communities=Communities.of(np.zeros(3, np.float32)), vectors=ClientVectors(), **values
    )


def _through_a_file(state: Everything) -> Everything:
    arrays, values = save(state)
    again = _fresh()
    load(again, arrays, json.loads(json.dumps(values, allow_nan=False)))
    return again


def test_every_kind_of_field_comes_back() -> None:
    part = Part(0.5, np.arange(3), {7: 1})
    state = _fresh(
        parts=[part, Part(0.25, np.ones((2, 2)), {})], best=part, due={4, 2}, losses=[0.1, 2.0],
        over=True, by_name={"a.b": np.ones(1)}, notes={"x": [1, None]}, removed={3: 9},
        global_model=np.full(3, 2.0, np.float32),
    )  # fmt: skip
    state.communities.members[11] = 0
    state.vectors.put(5, np.ones(4, np.float32), 8)
    again = _through_a_file(state)
    assert again.communities.members == {11: 0}
    assert [each.loss for each in again.parts] == [0.5, 0.25]
    np.testing.assert_array_equal(again.parts[1].model, np.ones((2, 2)))
    assert again.best is not None
    assert again.best.choices == {7: 1}
    assert (again.due, again.losses, again.over) == ({2, 4}, [0.1, 2.0], True)
    assert (again.removed, again.notes) == ({3: 9}, {"x": [1, None]})
    np.testing.assert_array_equal(again.by_name["a.b"], np.ones(1))
    np.testing.assert_array_equal(again.global_model, state.global_model)
    assert again.vectors.rounds().tolist() == [8]


def test_what_is_not_known_and_what_is_infinite_come_back() -> None:
    again = _through_a_file(_fresh())
    assert (again.best, again.global_model, again.least) == (None, None, float("inf"))


def test_a_loaded_array_is_the_states_own() -> None:
    state = _fresh()
    arrays, values = save(state)
    again = _fresh()
    load(again, arrays, values)
    again.communities.models[0] = 1.0
    assert not state.communities.models.any()


@pytest.mark.parametrize("name", ["ifca", "flic", "feddrift"])
def test_what_a_client_chose_decides_what_it_scores_after_a_stop_too(name: str) -> None:
    whole, known = builder(name)(context(private=True)), roster(3)
    whole.state.communities = Communities(np.eye(2, SIZE, dtype=np.float32))
    whole.chose({0: 1, 2: 0})
    again = builder(name)(context(private=True))
    load(again.state, *save(whole.state))
    found = []
    for method in (whole, again):
        parameters = method.initialize_parameters(known)
        asked = method.configure_evaluate(4, parameters, known)
        rows = [(known.client_id(proxy), ins.config["community"]) for proxy, ins in asked]
        found.append([(client, row) for client, row in rows if row != GLOBAL])
    assert found == [[(0, 1), (2, 0)]] * 2
    assert set(whole.state.evaluated) == {0, 2}


def test_a_persistent_object_in_a_list_is_refused_and_named() -> None:
    @dataclass
    class Listed:
        stores: list[ClientVectors]

    arrays, values = save(Listed([ClientVectors()]))
    with pytest.raises(TypeError, match=r"'stores.0' must be a field that the method creates"):
        load(Listed([]), arrays, values)


def test_a_missing_field_is_named() -> None:
    arrays, values = save(_fresh())
    del values["communities"]["members"]
    with pytest.raises(ValueError, match=r"no field 'communities.members' of Communities"):
        load(_fresh(), arrays, values)


def test_models_of_another_network_are_refused_with_both_sizes() -> None:
    models = np.zeros((2, 5), np.float32)
    check_models({"communities.models": models}, 5)
    check_models({}, 7)
    with pytest.raises(CheckpointError, match=r"must have 7 parameters, .* got 5; resume with"):
        check_models({"communities.models": models}, 7)
