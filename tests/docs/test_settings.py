"""The page of settings: every key of every option is there, with its type and meaning."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from omegaconf import OmegaConf

from fl_app.config import CONF, choices, compose
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


def test_the_settings_of_the_graph_are_those_that_a_method_accepts() -> None:
    head, _, *lines = docs.graph_uses().splitlines()
    assert head.strip("| ").split(" | ")[1:] == [
        "`cfl`",
        "`communities`",
        "`dcfl`",
        "`fedem`",
        "`fedrc`",
        "`flic`",
        "`flux`",
        "`hierarchical`",
        "`late`",
        "`pacfl`",
        "`secure_flic`",
    ]
    cells = {line.split(" | ")[0]: line for line in lines}
    assert cells["| `graph.store`"].endswith(
        "| no | no | yes | not `sketch` | yes | not `sketch` | not `sketch` | no |"
    )
    assert cells["| `graph.resolution`"].endswith(
        "| no | no | yes | no | with contrast | yes | no | yes |"
    )


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
