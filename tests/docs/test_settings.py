"""The page of settings: every key of every option is there, with its type and meaning."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from fl_app.composition import CONF, choices, compose
from fl_app.config import option
from fl_app.schema import FIXED

SCRIPT = Path(__file__).parents[2] / "scripts" / "docs_settings.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_settings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_settings"] = module
    spec.loader.exec_module(module)
    return module


docs = _load()
OPTIONS = list(docs.options())


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.group}={option.name}")
def test_every_key_has_a_meaning_and_a_type(option) -> None:
    for setting in option.settings:
        assert setting.meaning, f"conf/{option.group}/{option.name}.yaml: {setting.name}"
        assert setting.values


def test_groups_and_options_are_those_of_the_tree() -> None:
    files = {
        (path.parent.relative_to(CONF).as_posix(), path.stem)
        for path in CONF.rglob("*.yaml")
        if path.parent.name not in ("conf", "experiment")
    }
    assert {(option.group, option.name) for option in OPTIONS if option.group} == files
    assert set(FIXED) < {option.group for option in OPTIONS}


def test_a_range_is_told_in_words() -> None:
    table = docs.table(docs.option("strategy=flic"))
    assert "| `strategy.participation` | number above 0 and at most 1 | `0.4` |" in table
    assert "| `strategy.cluster_round` | integer above 0 or `auto` | `25` |" in table
    assert "| `strategy.rule` | `mean`, `median` | `mean` |" in table
    with pytest.raises(ValueError, match="strategy=nothing is no option"):
        docs.option("strategy=nothing")


def test_an_option_shows_its_own_default_over_the_one_it_builds_on() -> None:
    table = docs.table(docs.option("strategy=communities_wnn"))
    assert "| `strategy.attribution` | `avg`, `1nn`, `wnn` | `wnn` |" in table
    assert "| `strategy.neighbours` |" in table


ALTERNATIVES = re.compile(
    r"(?:^|[;,] )or (?!the\b|a\b)((?:[\w+-]+(?: \([^)]*\))?, )*[\w+-]+)(?= \(|[:;,]|$)"
)
"""The words after "or" in a comment, such as `or samples, uniform`; each can have a note."""


def _disagreements(setting: Any, defaults: set[str]) -> tuple[set[str], set[str]]:
    """Return which choices a comment that lists some does not name, and which it invents.

    `defaults` are the values that options have for the setting: a comment need not name its own.
    """
    allowed = set(re.findall(r"`([^`]+)`", setting.values))
    alike = allowed - {"true", "false"} - defaults
    told = re.sub(r" \([^)]*\)", "", ", ".join(ALTERNATIVES.findall(setting.meaning)))
    listed = {word for word in told.split(", ") if word}
    named = {word.rstrip(":") for word in re.findall(r"[\w+:-]+", setting.meaning)} & alike
    return (alike - named, listed - allowed) if named or listed else (set(), set())


def test_a_comment_that_lists_choices_lists_all_and_no_others() -> None:
    found = [(each.group, s) for each in OPTIONS for s in each.settings if "`" in s.values]
    defaults: dict[tuple[str, ...], set[str]] = {}
    for group, s in found:
        defaults.setdefault((group, s.name, s.meaning), set()).add(s.default)
    wrong = {
        f"{group}.{s.name}": both
        for group, s in found
        if any(both := _disagreements(s, defaults[group, s.name, s.meaning]))
    }
    assert wrong == {}
    assert len(found) > 50


@pytest.mark.parametrize(
    ("meaning", "missing", "wrong"),
    [
        ("weight of a client; or samples, uniform", set(), set()),
        ("weight of a client; or samples", {"uniform"}, set()),
        ("weight of a client; or samples (all), uniform, equal", set(), {"equal"}),
        ("weight of a client", set(), set()),
    ],
)
def test_a_choice_that_a_comment_forgets_or_invents_is_found(
    meaning: str, missing: set[str], wrong: set[str]
) -> None:
    setting = docs.Setting("weighting", "`capped`, `samples`, `uniform`", "capped", meaning)
    assert _disagreements(setting, {"capped"}) == (missing, wrong)


def test_the_settings_of_the_graph_are_those_that_a_method_accepts() -> None:
    head, _, *lines = (line.strip("| ").split(" | ") for line in docs.graph_uses().splitlines())
    uses = {
        f"strategy={name}": option(f"strategy={name}").resolve() for name in choices("strategy")
    }
    shown = {option(f"strategy={name.strip('`')}").resolve() for name in head[1:]}
    assert shown == {each for each in uses.values() if each.graph_use.only != ()}
    cells = {line[0].strip("`"): dict(zip(head[1:], line[1:], strict=True)) for line in lines}
    some = ("`flic`", "`flux`", "`hierarchical`", "`pacfl`", "`secure_flic`")
    store, resolution = cells["graph.store"], cells["graph.resolution"]
    assert [store[name] for name in some] == ["yes", "not `sketch`", "yes", "not `sketch`", "no"]
    assert [resolution[name] for name in some] == ["yes", "no", "with contrast", "no", "yes"]


def test_the_settings_in_the_readme_have_the_defaults_and_options_of_conf() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| (.+) \| (.+?) \|$", text.partition("## Settings")[2], re.M)
    tree = compose(["privacy=local_dp"])
    given = yaml.safe_load((CONF / "config.yaml").read_text())["defaults"]
    chosen = {k: v for each in given if isinstance(each, dict) for k, v in each.items()}
    for named, meaning, shown in rows:
        names = re.findall(r"`([\w.]+)`", named)
        whole = [names[0].partition(".")[0] + n if n.startswith(".") else n for n in names]
        for name, default in zip(whole, shown.replace("`", "").split(", "), strict=False):
            assert default == str(chosen.get(name, OmegaConf.select(tree, name))), name
        if names[0] in ("data", "population", "engine"):
            assert set(re.findall(r"`(\w+)`", meaning)) == set(choices(names[0]))
    assert len(rows) > 10
