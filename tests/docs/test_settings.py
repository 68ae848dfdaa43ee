"""The page of settings: every key of every option is there, with its type and meaning."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fl_app.config import CONF
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
