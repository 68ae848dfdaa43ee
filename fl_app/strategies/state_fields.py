"""What the fields of a method's state can be: what is saved must be what is loaded."""

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from fl_app.strategies.state import SCALARS, Persistent

KEYS = (int, float, str)


def check_fields(kind: type) -> None:
    """Raise ValueError for a dataclass with a field that a checkpoint cannot restore."""
    wrong = _faults(kind, "", ())
    if wrong:
        raise ValueError(
            f"the state of a method must be what a checkpoint restores, got {kind.__name__} with "
            f"{'; '.join(wrong)} (docs/extend/method.md)"
        )


def _faults(hint: Any, name: str, outer: tuple[type, ...]) -> list[str]:
    """Return what is wrong with a field; `outer` are the dataclasses that it is part of."""
    if isinstance(hint, type) and is_dataclass(hint) and not issubclass(hint, Persistent):
        return [] if hint in outer else _parts_faults(hint, name, (*outer, hint))
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union_faults([each for each in inner if each is not NoneType], name, outer)
    if hint is dict or (origin is dict and inner[0] not in KEYS):
        return [f"{name}: {_told(hint)}; give dict[int, ...], dict[str, ...] or dict[float, ...]"]
    if origin in (set, frozenset) and inner[0] not in SCALARS:
        return [f"{name}: {_told(hint)}; give a set of numbers or texts, or a list"]
    if origin is dict:
        return _faults(inner[1], name, outer)
    if origin in (list, set, frozenset, tuple):
        return [fault for each in inner if each is not ... for fault in _faults(each, name, outer)]
    return [] if _is_restored(hint, origin) else [f"{name}: {_told(hint)}; {_remedy(hint)}"]


def _parts_faults(kind: type, name: str, outer: tuple[type, ...]) -> list[str]:
    try:
        hints = get_type_hints(kind)
    except NameError as error:  # a type that is imported for type checkers alone
        return [f"{name or kind.__name__}: {error}; import it without TYPE_CHECKING"]
    inside = [(hints[part.name], f"{name}.{part.name}".lstrip(".")) for part in fields(kind)]
    return [fault for given in inside for fault in _faults(*given, outer)]


def _union_faults(kinds: list[Any], name: str, outer: tuple[type, ...]) -> list[str]:
    """A union says nothing of what to build from a JSON value, unless it is of scalars."""
    if len(kinds) > 1 and not all(each in SCALARS for each in kinds):
        told = " | ".join(_told(each) for each in kinds)
        return [f"{name}: {told}; give one type, or one type and None"]
    return [fault for each in kinds for fault in _faults(each, name, outer)]


def _is_restored(hint: Any, origin: Any) -> bool:
    if hint in (*SCALARS, NoneType, Any, list, set, frozenset, tuple) or origin is Literal:
        return True
    kind = getattr(hint, "array_type", origin or hint)  # of an array with its shape
    return isinstance(kind, type) and issubclass(kind, np.ndarray | Persistent)


def _told(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)


def _remedy(hint: Any) -> str:
    module = getattr(hint, "__module__", "").partition(".")[0]
    if module == "torch":
        return "give a NumPy array"
    return "give arrays, numbers, texts, or an object with the methods `arrays` and `restore`"
