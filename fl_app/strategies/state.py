"""The state of a method: one dataclass, with a function to save and one to load it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import inf
from types import NoneType, UnionType
from typing import (
    Any,
    Protocol,
    Self,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np

from fl_app.records.checkpoint import CheckpointError
from fl_app.records.tensors import Stored
from fl_app.types import Labels, Vector, Vectors

PLAIN = (int, str, bool, NoneType)
"""Types that JSON stores unchanged; they are saved without recursion, which is faster."""
SCALARS = (int, float, str, bool)
SEQUENCES = (list, set, frozenset, tuple)
INFINITE = (str(inf), str(-inf))
"""How infinite floats are saved."""


@runtime_checkable
class Persistent(Protocol):
    """A field that saves and loads itself, such as the updates of all clients."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole content as arrays by name."""

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what `arrays` returned; called on an empty object with the same settings."""


@dataclass
class Communities:
    """The models of the communities, and the assignment of clients to them."""

    models: Vectors
    """One row per community (k, d)."""
    members: dict[int, int] = field(default_factory=dict)
    """The row of each client in a community; other clients receive all models, which may be one."""

    @classmethod
    def of(cls, initial: Vector) -> Self:
        """Return a single community with the initial model (d,), without members."""
        return cls(initial[None, :].copy())

    @property
    def sizes(self) -> Labels:
        """The number of members of each community (k,)."""
        return np.bincount(np.array(list(self.members.values()), int), minlength=len(self.models))

    def rows_for(self, client_id: int) -> Sequence[int]:
        """Return the rows of the models that a client receives."""
        row = self.members.get(client_id)
        return range(len(self.models)) if row is None else (row,)


NORMS = 12
"""How many norms of updates a method remembers: those of the last rounds of a small cohort."""


@dataclass(kw_only=True)
class MethodState:
    """The state of every method in a checkpoint; a method adds its own fields.

    A field is an array, a JSON value, a dataclass of such fields, a `Persistent` object, or a
    dict, list, tuple or set of values that are not `Persistent`; see `state_fields.check_fields`.
    """

    communities: Communities
    """Models of the communities and their members."""
    global_model: Vector | None = None
    """The model (d,) of all clients in addition to the community models; None: there is none."""
    removed: dict[int, int] = field(default_factory=dict)
    """The clients removed from training, each with the round of its removal."""
    evaluated: dict[int, int] = field(default_factory=dict)
    """The row of the model that each client with a choice used last: in an evaluation, as a
    newcomer, or, if its method says so, to train."""
    norms: list[float] = field(default_factory=list)
    """The norms of the last NORMS updates, with which those of one or two replies are compared."""


def save(state: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the arrays of a state by name, and its JSON values by field.

    An infinite float is saved as text, since JSON has no number for it. Raises TypeError for a
    value of another type than a field can have, with its name.
    """
    arrays: dict[str, np.ndarray] = {}
    return arrays, _saved(state, "", arrays)


def _saved(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON value of a part of the state; its arrays go to `arrays`."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return str(value) if value in (inf, -inf) else value
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    if isinstance(value, Persistent):
        arrays.update({f"{name}.{key}": array for key, array in value.arrays().items()})
        return None
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, Mapping):
        return {
            str(k): each if type(each) in PLAIN else _saved(each, _inside(name, k), arrays)
            for k, each in value.items()
        }
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return [_saved(each, _inside(name, k), arrays) for k, each in enumerate(value)]
    if not isinstance(value, PLAIN):
        raise TypeError(
            f"{name} of the state must be arrays, numbers, texts, or lists, tuples, sets, dicts or "
            f"dataclasses of these, got {type(value).__name__}; convert it"
        )
    return value


def check_models(arrays: Mapping[str, np.ndarray | Stored], size: int) -> None:
    """Raise CheckpointError if saved models have another size than those of the network, `size`."""
    models = arrays.get("communities.models")
    if models is not None and models.shape[-1] != size:
        raise CheckpointError(
            f"the models in the checkpoint must have {size} parameters, as the network has with "
            f"these settings and data, got {models.shape[-1]}; resume with the network, features "
            "and classes of the run, or start a new run"
        )


def load(state: Any, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> None:
    """Load into `state`, as a method creates it, what `save` returned.

    Raises CheckpointError for a field that is missing from `values`.
    """
    check_saved(state, values)
    _load_fields(state, "", arrays, values)


def check_saved(target: Any, values: Mapping[str, Any], name: str = "") -> None:
    """Raise CheckpointError for a field of a state, as a method creates it, that was not saved."""
    for each in fields(target):
        inside, now = _inside(name, each.name), getattr(target, each.name)
        if each.name not in values:
            raise CheckpointError(
                f"the checkpoint has no field {inside!r} of {type(target).__name__}; resume with "
                "the method and the version that wrote it"
            )
        if _has_fields(now) and values[each.name] is not None:
            check_saved(now, values[each.name], inside)


def _has_fields(now: Any) -> bool:
    return is_dataclass(now) and not isinstance(now, Persistent)


def _load_fields(
    target: Any, name: str, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]
) -> None:
    hints = get_type_hints(type(target))
    for each in fields(target):
        inside, now = _inside(name, each.name), getattr(target, each.name)
        if isinstance(now, Persistent):
            now.restore(_part(arrays, inside))
        elif _has_fields(now) and values[each.name] is not None:
            _load_fields(now, inside, arrays, values[each.name])
        else:
            found = _loaded(hints[each.name], inside, arrays, values[each.name])
            setattr(target, each.name, found)


def _loaded(hint: Any, name: str, arrays: Mapping[str, np.ndarray], value: Any) -> Any:
    """Return a part of the state of type `hint`."""
    given = name, arrays, value
    if name in arrays:
        return np.array(arrays[name])
    if value is None and _part(arrays, name):
        raise TypeError(
            f"{name!r} must be a field that the method creates, not optional and not part of a "
            "list or dict; otherwise it cannot be loaded"
        )
    if value is None:
        return value
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        kinds = [each for each in inner if each is not NoneType]
        return _loaded(float if float in kinds and value in INFINITE else kinds[0], *given)
    if origin is dict or (origin is Any and isinstance(value, dict)):
        key, each = inner or (str, Any)
        if each in SCALARS:
            return {key(k): _scalar(each, v) for k, v in value.items()}
        return {key(k): _loaded(each, _inside(name, k), arrays, v) for k, v in value.items()}
    if origin in SEQUENCES or (origin is Any and isinstance(value, list)):
        entries = zip(_kinds(inner, len(value)), value, strict=True)
        items = [_loaded(k, _inside(name, i), arrays, v) for i, (k, v) in enumerate(entries)]
        return items if origin is Any else origin(items)
    if is_dataclass(hint):
        parts, build = get_type_hints(hint), cast(type, hint)
        found = {k: _loaded(parts[k], _inside(name, k), arrays, v) for k, v in value.items()}
        return build(**found)
    return _scalar(hint, value)


def _scalar(hint: Any, value: Any) -> Any:
    """Return a number or text as it was saved, whatever its field says of it."""
    return float(value) if hint is float and value in INFINITE else value


def _kinds(inner: tuple[Any, ...], length: int) -> Sequence[Any]:
    """Return the type of each of the entries of a list, set or tuple with these arguments."""
    if len(inner) > 1 and inner[1] is not ...:
        return inner
    return [inner[0] if inner else Any] * length


def _inside(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _part(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
