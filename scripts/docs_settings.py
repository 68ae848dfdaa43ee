"""All settings: default and meaning from conf/, type and range from the schema."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from hydra.utils import get_object
from pydantic import TypeAdapter

from fl_app.composition import CONF
from fl_app.config import NO_OPTION
from fl_app.data.schedule import Dynamics
from fl_app.schema import FIXED, NESTED, PARTS, TARGETS, TOP
from fl_app.strategies.graph_settings import GraphUse
from fl_app.types import LARGEST

OVER_ALL = ("defaults", "hydra")
KEY = re.compile(r"^ *(\w+):\s*([^#]*?)\s*(?:#\s*(.*))?$")
BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
NAMES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "null": "null",
    "any": "see its class",
}


@dataclass(frozen=True)
class Setting:
    """One key of a group: what it may be, what it is by default, and what it means."""

    name: str
    values: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Option:
    """One choice of a group of the configuration, such as strategy=flic."""

    group: str
    name: str
    target: str | None
    settings: tuple[Setting, ...]


def options() -> Iterator[Option]:
    """Return all options of all groups, in the order of the tree; first what has no group."""
    yield Option("", "", None, tuple(_settings("", "config", TOP)))
    for file in sorted(CONF.rglob("*.yaml"), key=lambda path: (path.parent, path.stem)):
        group = file.parent.relative_to(CONF).as_posix()
        if group not in (".", "experiment"):
            yield _option(group, file.stem)


def option(choice: str) -> Option:
    """Return one option by its choice, such as `strategy=flic`."""
    group, _, name = choice.partition("=")
    if not (CONF / group / f"{name}.yaml").exists():
        raise ValueError(f"{choice} is no option of the configuration; see conf/{group}")
    return _option(group, name)


@cache
def _option(group: str, name: str) -> Option:
    values, _ = _read(group, name)
    target = str(values["_target_"]) if "_target_" in values else None
    return Option(group, name, target, tuple(_settings(group, name, _types(group, target))))


def _settings(group: str, name: str, types: Mapping[str, Any]) -> Iterator[Setting]:
    values, meanings = _read(group, name)
    for key, default in values.items():
        if isinstance(default, dict) and key in PARTS:
            types_of_part = get_type_hints(PARTS[key], include_extras=True)
            for part, each in default.items():
                words, meaning = _words(types_of_part[part]), meanings.get(part, "")
                yield Setting(f"{key}.{part}", words, _shown(each), meaning)
            continue
        if key in (*NO_OPTION, *OVER_ALL):
            continue
        yield Setting(key, _words(types[key]), _shown(default), meanings.get(key, ""))


def _shown(default: Any) -> str:
    shown = "null" if default is None else str(default).replace("True", "true")
    return shown.replace("False", "false")


def _types(group: str, target: str | None) -> Mapping[str, Any]:
    """Return the annotation of each key: of a dataclass, or of what the option names."""
    if group in FIXED:
        return get_type_hints(FIXED[group], include_extras=True)
    if group == "population/dynamics":
        return get_type_hints(Dynamics, include_extras=True)
    if group in NESTED and target is not None:
        return dict.fromkeys(inspect.signature(get_object(target)).parameters, Any)
    if group not in TARGETS or target is None:
        raise ValueError(f"conf/{group} is no group of the schema; name it in fl_app/schema.py")
    found = inspect.signature(get_object(target)).parameters.values()
    keyed = [p for p in found if p.kind is inspect.Parameter.KEYWORD_ONLY and p.name != "seed"]
    return {p.name: p.annotation for p in keyed}


def _read(group: str, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values and the comments of an option, those of its defaults first."""
    file = CONF / group / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    own: dict[str, Any] = yaml.safe_load(text) or {}
    values, meanings = dict[str, Any](), dict[str, str]()
    for parent in own.get("defaults", []):
        if isinstance(parent, str) and parent != "_self_":
            inherited, said = _read(group, parent)
            values, meanings = values | inherited, meanings | said
    lines = [match for line in text.splitlines() if (match := KEY.match(line))]
    meanings |= {match[1]: match[3] for match in lines if match[3]}
    return values | {k: v for k, v in own.items() if k != "defaults"}, meanings


def _words(annotation: Any) -> str:
    """Return what a type allows, from its JSON schema."""
    return _said(TypeAdapter(annotation).json_schema(mode="validation"))


def _said(schema: Mapping[str, Any]) -> str:
    if either := schema.get("anyOf") or schema.get("oneOf"):
        parts = [_said(each) for each in either]
        return " or ".join(dict.fromkeys(parts))
    if "$ref" in schema:
        return f"mapping of {schema['$ref'].rpartition('/')[2]}"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "boolean":
        return "`true`, `false`"
    if kind == "array":
        return f"list of {_said(schema['items'])}"
    bounds = [
        text.format(f"{schema[key]:,}" if isinstance(schema[key], int) else f"{schema[key]:g}")
        for key, text in BOUNDS.items()
        if schema.get(key, LARGEST) != LARGEST  # which every integer has
    ]
    return " ".join([NAMES.get(kind, kind), " and ".join(bounds)]).strip()


def table(one: Option) -> str:
    """Return the settings of an option as a Markdown table."""
    if not one.settings:
        return "No settings."
    prefix = one.group.replace("/", ".") + "." if one.group else ""
    rows = [
        f"| `{prefix}{s.name}` | {s.values} | `{s.default}` | {s.meaning.replace('|', '/')} |"
        for s in one.settings
    ]
    return "\n".join(["| setting | values | default | meaning |", "|---|---|---|---|", *rows])


def graph_uses() -> str:
    """Return which settings of the graph have an effect on which method, as a Markdown table."""
    uses: dict[str, tuple[Any, GraphUse, dict[str, Any]]] = {}
    for file in sorted((CONF / "strategy").glob("*.yaml"), key=lambda path: len(path.stem)):
        values, _ = _read("strategy", file.stem)
        method = get_object(values["_target_"])
        uses_some = method.graph_use is not None and method.graph_use.only != ()
        if uses_some and method not in (m for m, *_ in uses.values()):
            uses[file.stem] = (method, method.graph_use, values)
    names = sorted(uses)
    lines = [["setting", *(f"`{name}`" for name in names)], ["---"] * (len(names) + 1)]
    for setting in get_type_hints(FIXED["graph"]):
        lines.append([f"`graph.{setting}`", *(_effect(setting, *uses[n][1:]) for n in names)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _effect(setting: str, use: GraphUse, options: Mapping[str, Any]) -> str:
    if setting == "store" and use.why_no_sketch(options):
        return "not `sketch`"
    if setting in use.contrasted:
        return "with contrast"
    return "no" if use.why_not(setting, options) else "yes"


def page() -> str:
    """Return the page of all settings, group by group."""
    lines = [
        "# Every setting",
        "",
        "Generated from `conf/` and the types of the code when this page is built. A setting is "
        "given on the command line, `fl-app rounds=20 strategy=late strategy.cluster_round=8`, or "
        "in a file of an experiment, `conf/experiment/<name>.yaml`. All errors of a configuration "
        "are reported together before a run starts.",
    ]
    last = None
    for one in options():
        if one.group != last:
            lines += ["", f"## {one.group or 'The run'}"]
            last = one.group
        if one.group:
            lines += ["", f"### `{one.group}={one.name}`"]
            lines += ["", f"Builds `{one.target}`."] if one.target else []
        lines += ["", table(one)]
    experiments = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
    lines += ["", "## experiment", ""]
    for name in experiments:
        first = _comment(CONF / "experiment" / f"{name}.yaml")
        lines.append(f"- `experiment={name}`: {first}")
    return "\n".join(lines) + "\n"


def _comment(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    said = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return " ".join(line for line in said if not line.startswith("@package"))
