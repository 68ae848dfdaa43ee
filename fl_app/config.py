"""Configuration: checks composed settings to a `Config`, or reports all errors together.

The annotations of the function or class in `_target_` are the schema of its group, so there is no
second list of settings.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from fl_app import own
from fl_app.composition import CONF, compose_sound
from fl_app.cross_checks import cross_checks
from fl_app.option_schema import (
    messages,
    misfit,
    no_target,
    options_model,
    truths_as_numbers,
)
from fl_app.override_errors import unresolved
from fl_app.schema import (
    FIXED,
    PARTS,
    SERVER_TARGETS,
    TARGETS,
    TOP,
    Config,
    ConfigError,
    Target,
)
from fl_app.usual_settings import usual_settings

__all__ = ["Config", "ConfigError", "check", "checked", "load", "option"]

NO_OPTION = ("_target_", "dynamics", "weights", "freeze")
"""Keys of a group with a target that are not its options."""
Check = Callable[[Mapping[str, Any]], list[str]]
"""Maps the typed groups (None for a wrong one) to the problems between them."""


def load(overrides: Sequence[str], *, also: Check | None = None, on_client: bool = False) -> Config:
    """Compose and check a configuration; raises ConfigError with all problems together.

    `also` adds checks that need more than the configuration, such as the data. On a client, groups
    that only the server builds are neither imported nor checked.
    """
    composed, problems = compose_sound(tuple(overrides))
    problems = own.problems(CONF) + problems
    if composed is None:
        raise ConfigError(problems)
    return check(composed, problems, also=also, on_client=on_client)


@cache
def option(choice: str) -> Target:
    """Return what an option such as `strategy=flic` names, with its settings in conf (cached)."""
    found: Target = getattr(load([choice]), choice.partition("=")[0])
    return found


def check(
    composed: DictConfig,
    problems: Sequence[str] = (),
    *,
    also: Check | None = None,
    on_client: bool = False,
) -> Config:
    """Return the typed configuration of a composed tree; raises ConfigError."""
    if wrong := unresolved(composed):
        found = [*problems, *wrong.values()]
        _values(_resolved(composed, wrong), found, on_client=on_client, unread=wrong)
        raise ConfigError(found)
    return checked(_resolved(composed), problems, also=also, on_client=on_client)


def _resolved(composed: DictConfig, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the tree without some groups; the others may use settings of these."""
    nodes = {str(key): composed[key] for key in composed if key not in without}
    return {
        key: OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        for key, node in nodes.items()
    }


def _measured(tree: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a tree without metrics that are null: a file of options cannot remove one."""
    task = tree.get("task")
    if not isinstance(task, dict) or not isinstance(given := task.get("metrics"), dict):
        return tree
    metrics = {name: each for name, each in given.items() if each is not None}
    return {**tree, "task": {**task, "metrics": metrics}}


def checked(
    tree: Mapping[Any, Any],
    problems: Sequence[str],
    *,
    also: Check | None = None,
    on_client: bool = False,
) -> Config:
    """Return the typed configuration of a resolved tree; raises ConfigError."""
    tree, found = _measured(tree), list(problems)
    values = _values(tree, found, on_client=on_client)
    if not on_client:
        found += cross_checks(values, usual_settings(values, CONF))
    found += also(values) if also else []
    if found:
        said = set(found)  # a setting that takes the value of a wrong one is not wrong itself
        raise ConfigError([each for each in found if _without_group(each) not in said])
    return Config(**values, resolved={str(k): v for k, v in tree.items()})


def _without_group(problem: str) -> str:
    """Return a problem of a setting as that of the setting without its group, "" for another."""
    group, dot, _ = problem.partition(".")
    return problem.replace(group + dot, "") if dot else ""


def _values(
    tree: Mapping[Any, Any], found: list[str], *, on_client: bool, unread: Collection[str] = ()
) -> dict[str, Any]:
    """Return the typed groups, None for a wrong one, and append the problems in each to `found`.

    Groups in `unread` have problems already, and none are looked for.
    """
    values: dict[str, Any] = {}
    for key in (*TOP, *FIXED):
        if key not in unread:
            values[key] = _typed(key, tree.get(key), found)
    values["dynamics"] = _part("population.dynamics", tree, found)
    values["pretrained"] = _part("network", tree, found)
    absent: dict[str, list[str]] = {}
    for key in TARGETS:
        built = not (on_client and key in SERVER_TARGETS)
        if key not in unread:
            values[key] = _target(key, tree.get(key), found, absent, built=built)
    found += [
        f"{' and '.join(named)} must name what can be imported: {why}"
        for why, named in absent.items()
    ]
    known = {*TOP, *FIXED, *TARGETS}
    found += [_unknown(str(key)) for key in tree if key not in known]
    return values


def _unknown(key: str) -> str:
    if key == "experiment":  # where Hydra puts the settings of a file without this line
        return "the file of an experiment must begin with the line # @package _global_; add it"
    return f"{key} is not a setting; remove it"


@cache
def _adapter(key: str) -> TypeAdapter[Any]:
    kind: Any = {**TOP, **FIXED, **PARTS}[key]
    return TypeAdapter(kind)


def _typed(key: str, value: Any, problems: list[str]) -> Any:
    try:
        found = _adapter(key).validate_python(value)
    except ValidationError as error:
        problems += messages(key, error)
        return None
    wrong = truths_as_numbers(key, value, found)
    problems += wrong
    return None if wrong else found


def _part(key: str, tree: Mapping[Any, Any], problems: list[str]) -> Any:
    """Return the settings in PARTS of a group with a target, None if they are wrong."""
    group, _, inside = key.partition(".")
    node = tree.get(group)
    if not isinstance(node, dict):
        return None
    names = PARTS[key].__dataclass_fields__
    return _typed(key, node.get(inside) if inside else {n: node.get(n) for n in names}, problems)


def _target(
    key: str, node: Any, problems: list[str], absent: dict[str, list[str]], *, built: bool
) -> Target | None:
    """Return a group with a target; its options are checked if this process builds it.

    `absent` maps what is wrong with a module that is not found to the targets in it.
    """
    if not isinstance(node, dict) or not isinstance(node.get("_target_"), str):
        problems.append(f"{key} must name a _target_, got {node!r}; use one of conf/{key}")
        return None
    options = {str(name): value for name, value in node.items() if name not in NO_OPTION}
    if not built:
        return Target(path=str(node["_target_"]), options=options)
    try:
        target = own.imported_from(node["_target_"])
        inspect.signature(target)
    except (ImportError, ValueError, TypeError) as error:
        if why := own.unfound(node["_target_"]):
            absent.setdefault(why, []).append(f"{key}._target_={node['_target_']}")
            return None
        problems.append(no_target(key, node["_target_"], error))
        return None
    takes = inspect.signature(target).parameters.keys() | getattr(target, "shared", {}).keys()
    options = {k: v for k, v in options.items() if v is not None or k in takes}  # null: not given
    try:
        model = options_model(key, target)(**options)
        problems += truths_as_numbers(key, options, model)
        options = {name: getattr(model, name) for name in options}
    except ValidationError as error:
        problems += messages(key, error)
        # the valid options are still used in the checks between groups
        bad = {item["loc"][0] for item in error.errors()}
        options = {name: value for name, value in options.items() if name not in bad}
        return Target(path=str(node["_target_"]), options=options, sound=False)
    if found := misfit(key, target, options):
        problems.append(
            f"{key}._target_ must accept the same arguments as those in conf/{key}, got "
            f"{node['_target_']}: {found}; use one of these or change its arguments"
        )
        return None
    return Target(path=str(node["_target_"]), options=options)
