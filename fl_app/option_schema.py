"""The options of a target: its keyword-only parameters as a pydantic model, and their errors."""

import inspect
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError, create_model

from fl_app.schema import STRICT, TOP

BEFORE_OPTIONS = {"strategy": 1, "population": 1, "network": 2, "tracking": 1}
"""Number of positional arguments of a target: context, data set, shape and classes, run."""
NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
SEEDED = ("population", "data")
EXTRA, MISSING = ("extra_forbidden", "unexpected_keyword_argument"), ("missing", "missing_argument")
"""Kinds of pydantic's errors that name what is inside a setting."""
FORMS = {
    "a whole number": ("40", ("int_type", "int_parsing", "int_from_float")),
    "a number": ("0.5", ("float_type", "float_parsing")),
    "a finite number": ("0.5", ("finite_number",)),
    "true or false": ("true", ("bool_type", "bool_parsing")),
    "text": ("<text>", ("string_type",)),
    "a list": ("[<value>,<value>]", ("list_type", "tuple_type")),
    "settings by name": (
        "{<name>:<value>}", ("dict_type", "mapping_type", "model_type", "dataclass_type")
    ),
}  # fmt: skip
"""What a value of another type must be: an example, and the kinds of pydantic's errors."""
RULES = {kind: (rule, each) for rule, (each, kinds) in FORMS.items() for kind in kinds}
OPTIONS = ("client.optimizer", "client.scheduler", "client.transform", "population.dynamics")
"""Settings that are options of conf by themselves, so that a slash is in the place of the dot."""

_AS_JSON = TypeAdapter(dict[str, Any])


@lru_cache(maxsize=64)
def options_model(key: str, target: Callable[..., Any]) -> Any:
    """Return a pydantic model of the parameters of `target` that the wiring does not give itself.

    Nor does it have `seed`, which is that of the run. The names in `shared` of a class are settings
    of its subclasses too, even if these have no such parameter. So are those of a base class to
    which a class passes on `**options`; it can give them itself, so that none is required.
    """
    fields: dict[str, Any] = {}
    nothing, forms = inspect.Parameter.empty, _forms(target)
    for form in forms:
        for parameter in list(form.parameters.values())[BEFORE_OPTIONS.get(key, 0) :]:
            if parameter.kind in NAMED and parameter.name != "seed":
                kind = Any if parameter.annotation is nothing else parameter.annotation
                required = form is forms[0] and parameter.default is nothing
                fields.setdefault(parameter.name, (kind, ... if required else parameter.default))
    for name, kind in getattr(target, "shared", {}).items():
        fields.setdefault(name, (kind, None))
    config: Any = {**STRICT, "extra": "allow"} if _passes_on(forms[-1]) else STRICT
    return create_model("Options", __config__=config, **fields)


def as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON values: a path as text, an enum as its value."""
    found: dict[str, Any] = _AS_JSON.dump_python(dict(options), mode="json")
    return found


def typed(key: str, target: Callable[..., Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return options that `as_json` has returned in the types of the parameters of `target`."""
    try:
        model = options_model(key, target)(**options)
    except ValidationError:
        return options  # the call tells in fewer words what is wrong
    return {name: getattr(model, name) for name in options}


def taken(target: Callable[..., Any]) -> set[str]:
    """Return the names of the parameters of `target`."""
    return {name for form in _forms(target) for name in form.parameters}


def _forms(target: Callable[..., Any]) -> list[inspect.Signature]:
    """Return the signature, and those of base classes to which a class passes on `**options`."""
    forms: list[inspect.Signature] = []
    for each in getattr(target, "__mro__", ())[:-1]:
        if "__init__" in vars(each) and (not forms or _passes_on(forms[-1])):
            forms.append(_signature(each))
    return forms or [_signature(target)]


def _passes_on(form: inspect.Signature) -> bool:
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in form.parameters.values())


def _signature(target: Callable[..., Any]) -> inspect.Signature:
    """Return a signature with types, also of a module with `from __future__ import annotations`."""
    try:
        return inspect.signature(target, eval_str=True)
    except (NameError, TypeError, SyntaxError):  # a type that is imported for type checkers alone
        found = inspect.signature(target)
        untyped = [each.replace(annotation=Any) for each in found.parameters.values()]
        return found.replace(parameters=untyped)


def misfit(key: str, target: Callable[..., Any], options: Mapping[str, Any]) -> str | None:
    """Return why the wiring cannot call `target`, or None."""
    form = inspect.signature(target)
    untaken = getattr(target, "shared", {}).keys() - taken(target)
    given = {name: value for name, value in options.items() if name not in untaken}
    seed = {"seed": 0} if key in SEEDED else {}
    try:
        form.bind(*range(BEFORE_OPTIONS.get(key, 0)), **seed, **given)
    except TypeError as error:
        return str(error)
    return None


def no_target(key: str, path: str, error: Exception) -> str:
    """Return the error for a path that cannot be imported."""
    why, remedy = error, f"correct it or use one of conf/{key}"
    if isinstance(error.__cause__, OSError):  # of a file that the user's module reads
        why, remedy = error.__cause__, "put the file there"
    told = " ".join(str(why).split())
    return f"{key}._target_ must name a class or function, got {path!r}: {told}; {remedy}"


def messages(key: str, error: ValidationError) -> list[str]:
    """Return pydantic's errors as sentences with key, rule and value, one per setting."""
    rules: dict[str, list[str]] = {}
    values: dict[str, object] = {}
    examples: dict[str, str] = {}
    lines = []
    for item in error.errors():
        kind, place = item["type"], _place(key, item)
        group = place.rpartition(".")[0]
        if kind in EXTRA:
            other = f" or use another {key}" if group == key else ""
            lines.append(f"{place} is not a setting here; remove it{other}")
        elif kind in MISSING:
            how = f"as +{place}=<value>" if group in (key, "") else f"in {group}"
            lines.append(f"{place} is missing; give it {how}")
        else:
            rule, example = _rule(item)
            rules.setdefault(place, []).append(rule)
            values[place] = item["input"]
            if example:
                examples.setdefault(place, example)
    return lines + [
        f"{place} must be {' or '.join(found)}, got {values[place]!r}"
        f"{_remedy(place, values[place], examples.get(place))}"
        for place, found in rules.items()
    ]


def truths_as_numbers(key: str, given: Any, found: Any) -> list[str]:
    """Return errors for settings `given` as true or false, which pydantic `found` to be 1 or 0."""
    named = given if isinstance(given, Mapping) else {"": given}
    read = {name: getattr(found, name, None) if name else found for name in named}
    return [
        f"{(place := f'{key}.{name}'.strip('.'))} must be a number, got {str(value).lower()}; "
        f"give one, as {place}={int(value)}"
        for name, value in named.items()
        if isinstance(value, bool) and type(read[name]) in (int, float)
    ]


def _rule(item: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return what a setting must be, and an example of a value if it has another type."""
    if item["type"] in RULES:
        rule, example = RULES[item["type"]]
        if item["loc"] and isinstance(item["loc"][-1], int):
            return f"a list, each entry {rule}", f"[{example},{example}]"
        inside = any(isinstance(part, int) for part in item["loc"])  # a list
        return rule, None if inside else example
    rule = re.sub("^(Input should be |Value error, )", "", item["msg"]).removeprefix("a ")
    if item["type"] != "value_error":  # which has our own text
        rule = re.split(", (unable|got) ", rule)[0]
    return rule, None


def _place(key: str, item: Mapping[str, Any]) -> str:
    """Return the setting that an error is about, as in a configuration.

    All groups are flat: the rest of a location names the member of a union, except for its last
    part where a name within the setting is wrong.
    """
    found, inside = item["loc"], () if key in TOP else item["loc"][:1]
    if item["type"] in (*EXTRA, *MISSING) and len(found) > 1:
        inside = (*inside, found[-1])
    return ".".join([key, *map(str, inside)])


def _remedy(place: str, value: object, example: str | None) -> str:
    """Return what to do for a value that the user did not give, or gave in another form."""
    if value is None:  # a default that found none
        return f"; give it as {place}=<value>"
    if place in OPTIONS and isinstance(value, str):
        return f"; give it as {place.replace('.', '/')}={value}"
    return f"; give one, as {place}={example}" if example else ""
