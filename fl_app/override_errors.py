"""Which overrides of a command line are wrong, and why: no sound one is blamed for another."""

import re
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from inspect import signature
from itertools import islice, product
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_app.command_words import as_value, in_shell
from fl_app.own import imported_from

Compose = Callable[[Sequence[str]], DictConfig]
Choices = Callable[[str], list[str]]
"""Maps a group such as `strategy` to the names of its options, none for another key."""
_SWEEP = re.compile(r"(choice|range|interval|glob|shuffle|tag)\(.*\)")
_AMISS = "correct the setting that it names"
_KEY = re.compile(r"[\w./@-]+", re.ASCII)
_SETTING = re.compile(r"\w+\.[\w.]*=", re.ASCII)
_NAMED = "of letters, digits, _ and -, with dots between its parts"
_BY_NAME = re.compile(r"\{.*:")
_IN_A_FILE = (
    "correct it, or write other names as YAML into experiment/<name>.yaml of a folder, after the "
    "line # @package _global_, for --config-dir <folder> experiment=<name>"
)
ABSENT = object()
RUNS = 100
"""Most runs of a sweep that are tried to tell which of them is wrong."""
NOT_COMPOSED = (HydraException, OmegaConfBaseException)


def judged(
    overrides: Sequence[str], compose: Compose, choices: Choices
) -> tuple[list[str], list[str]]:
    """Return the overrides that can be composed, in their order, and what is wrong with the others.

    Options are chosen before settings, and each override is tried after those that are sound, since
    a setting depends on the option that has it. The settings of a group whose option is wrong are
    not judged: which settings it has is not known.
    """
    ordered = sorted(range(len(overrides)), key=lambda i: "." in key_of(overrides[i]))
    sound: list[int] = []
    unknown: set[str] = set()
    problems = []
    composed = compose([])
    for i in ordered:
        try:
            composed = compose([*(overrides[j] for j in sound), overrides[i]])
            sound.append(i)
        except NOT_COMPOSED as error:
            if key_of(overrides[i]).partition(".")[0] not in unknown:
                problems.append(_reason(overrides[i], error, composed, choices))
            if choices(key_of(overrides[i])):
                unknown.add(key_of(overrides[i]))
    return [overrides[i] for i in sorted(sound)], problems


def key_of(override: str) -> str:
    """Return the key of an override without its signs, such as `network.width`."""
    return override.partition("=")[0].lstrip("+~")


def _reason(override: str, error: Exception, composed: DictConfig, choices: Choices) -> str:
    """Return what is wrong with an override of a tree that is sound without it."""
    key, value, text = key_of(override), override.partition("=")[2], str(error)
    if _SWEEP.fullmatch(value):
        return f"{override} must have one value, got a sweep; give --multirun for several runs"
    if (known := choices(key)) and value not in known:
        return f"{key} must be one of {', '.join(known)}, got {value}"
    if not _KEY.fullmatch(key):
        return f"{override!r} must begin with a setting, {_NAMED}; {_IN_A_FILE}"
    if (wanted := _in_quotes(override)) is not None:
        if "Ambiguous value" in text:
            several = "--multirun if these are several"
            return f"{override} must have one value; give {wanted} if it is one, or {several}"
        if _BY_NAME.match(value):  # in quotes it would be a text
            rule = "names of ASCII letters, digits, _ and spaces, and quotes around other values"
            return f"{override} must have a }} for each {{, {rule}; {_IN_A_FILE}"
        return f"{override} must have quotes for Hydra and the shell; give it as {wanted}"
    if text.startswith("Could not delete") and _at(composed, key) is not ABSENT:
        kept = _at(composed, key)
        if kept is None:  # which Hydra takes for a setting that is not there
            return f"{override} must name a setting that is not null, got {key}=null; remove it"
        return f"{override} must give the value of {key}, {kept}, or none; give it as ~{key}"
    if text.startswith(("Could not override", "Could not delete")):
        if OmegaConf.is_dict(OmegaConf.select(composed, key)):
            added = in_shell(f"++{override}")
            return f"{override} names what {key} does not have; add it with {added}"
        return f"{key} is not a setting of this run; {_remedy(key, override, composed)}"
    if text.startswith("Could not append"):
        return f"{key} is a setting of this run already; give it without +, as {key}={value}"
    detail = _detail(error)
    if detail.startswith("Cannot merge"):
        return _other_form(key, value, _at(composed, key))
    return f"{override} cannot be used: {detail}; correct or remove it"


def hydra_reasons(
    error: Exception, words: Sequence[str], compose: Compose, choices: Choices
) -> list[str]:
    """Return why Hydra fails on the words of a command: by wrong overrides, or by what it says.

    Overrides with several values are those of a sweep, and the others are judged beside them: an
    option that is swept can have settings that the default option lacks. The first run of the
    sweep that is wrong tells what is.
    """
    single, swept = _divided(words)
    found: list[str] = []
    try:
        _, alone = judged(single, compose, choices)
        if not all(swept):  # an interval has no runs that can be tried
            found = alone
        for run in islice(product(*swept), RUNS):
            if wrong := judged([*run, *single], compose, choices)[1]:
                there = f"in the run with {' '.join(run)}: "
                found = [each if each in alone else there + each for each in wrong]
                break
    except NOT_COMPOSED:
        found = []
    key = getattr(error, "full_key", None)
    remedy = f"correct {key} or the override that it needs" if key else _AMISS
    if "primary config" in str(error):
        remedy = "give options of your own as experiment=<name> from experiment/<name>.yaml"
    return found or [f"the command must be one that Hydra can run, got {_detail(error)}; {remedy}"]


def only_swept(words: Sequence[str], compose: Compose, choices: Choices) -> set[str]:
    """Return the overrides of settings that each run of a sweep has, and the default lacks.

    Hydra composes the configuration of a sweep without what is swept, and refuses them there.
    """
    single, swept = _divided(words)
    settings = {word for word in single if _SETTING.match(word) and not word.startswith("hydra.")}
    chosen = [word for word in single if choices(key_of(word))]
    options = [each for each in swept if each and choices(key_of(each[0]))]
    try:
        default = compose(chosen)
        found = {word for word in settings if _at(default, key_of(word)) is ABSENT}
        for run in islice(product(*options), RUNS if found and options else 0):
            composed = compose([*chosen, *run])
            found = {word for word in found if _at(composed, key_of(word)) is not ABSENT}
    except NOT_COMPOSED:
        return set()
    return found if options else set()


def _divided(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the overrides among the words that have one value, and each value of the others."""
    given = [word for word in words if "=" in word or word.startswith("~")]
    values = {word: _values(word) for word in given if not word.startswith("-")}
    single = [word for word, several in values.items() if several is None]
    return single, [several for several in values.values() if several is not None]


def _detail(error: Exception) -> str:
    """Return what an error says first, without the override, which Hydra repeats."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("Error merging override")]
    if not told and isinstance(error.__cause__, Exception):
        return _detail(error.__cause__)
    text = next(iter(told), first_line(error))
    return text if isinstance(error, NOT_COMPOSED) else f"{type(error).__name__}: {text}"


def _in_quotes(override: str) -> str | None:
    """Return an override that Hydra cannot read as it is typed with quotes, if they help."""
    key, equals, value = override.partition("=")
    if not equals or _reads(override):
        return None
    entries = [as_value(each.strip()) for each in value[1:-1].split(",")]
    listed = f"[{','.join(entries)}]" if re.fullmatch(r"\[.*\]", value, re.DOTALL) else None
    for each in filter(None, (listed, as_value(value))):
        if _reads(wanted := f"{key}={each}"):
            return in_shell(wanted)
    return None


def _reads(override: str) -> bool:
    """Return whether Hydra reads an override as one value; several are for sweeps."""
    try:
        return not OverridesParser.create().parse_override(override).is_sweep_override()
    except HydraException:
        return False
    except (ValueError, RecursionError):  # it reads the form, but not so many digits or braces
        return True


def _values(override: str) -> list[str] | None:
    """Return an override with each of its values; None if it has one, none for an interval."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except (HydraException, ValueError, RecursionError):
        return None
    if not parsed.is_sweep_override():
        return None
    listed = parsed.is_discrete_sweep()
    values = parsed.sweep_string_iterator() if listed else ()
    return [f"{parsed.get_key_element()}={value}" for value in values]


def _remedy(key: str, override: str, composed: DictConfig) -> str:
    parent, _, name = key.rpartition(".")
    group = OmegaConf.to_container(composed, resolve=False)
    for part in parent.split(".") if parent else []:
        group = group.get(part) if isinstance(group, dict) else None
    names = [str(each) for each in group] if isinstance(group, dict) else []
    target = None if override.startswith("~") else _own_target(group)
    if target and name in _parameters(target):
        return f"give it as +{override}"
    if near := get_close_matches(name, names, n=1):
        return f"use {parent}.{near[0]}" if parent else f"use {near[0]}"
    if target:
        return f"give it as +{override} if {target} takes it"
    settings = [each for each in names if re.fullmatch("[a-z]\\w*", each)]
    return f"remove it or use one of {', '.join(settings)}" if settings else "remove it"


def unresolved(composed: DictConfig) -> dict[str, str]:
    """Return the first interpolation of each group that cannot be resolved, as a problem."""
    problems = {}
    for name in composed:
        try:
            value = composed[name]
            if OmegaConf.is_config(value):
                OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            key = str(error.full_key)
            problems[str(name)] = (
                f"{key} must have a value that can be resolved, got {_at(composed, key)!r} "
                f"({first_line(error)}); correct or remove it"
            )
    return problems


def _at(composed: DictConfig, key: str) -> Any:
    """Return the value of a key such as `data.exclude[0]` without resolving it, or ABSENT."""
    found: Any = OmegaConf.to_container(composed, resolve=False)
    for part in re.findall(r"[^.\[\]]+", key):
        try:
            found = found[int(part) if isinstance(found, list) else part]
        except (LookupError, TypeError, ValueError):
            return ABSENT
    return found


def _other_form(key: str, value: str, kept: Any) -> str:
    """Return what is wrong with a list in place of settings, or settings in place of a list."""
    if isinstance(kept, list):
        return f"{key} must be a list, got {value}; give it as {key}=[<value>,<value>]"
    each = f"{'' if kept else '+'}{key}.<name>=<value>"
    return f"{key} must be settings by name, got {value}; give each as {each}"


def _own_target(group: Any) -> str | None:
    """Return the target of a group if it is the user's, whose settings conf does not list."""
    target = group.get("_target_") if isinstance(group, dict) else None
    return target if isinstance(target, str) and not target.startswith("fl_app.") else None


def _parameters(target: str) -> Collection[str]:
    """Return the names of the parameters of a user's class or function, none if it has no such."""
    try:
        return signature(imported_from(target)).parameters
    except Exception:  # the import of a user's module can raise anything
        return ()


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
