"""Each setting stands once: conf states every one, the code has no default for any."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf
from pydantic import ValidationError

from fl_app.composition import CONF, choices, compose
from fl_app.config import load, option
from fl_app.data.schedule import Dynamics
from fl_app.option_schema import options_model, taken
from fl_app.schema import FIXED, NESTED, TARGETS, ConfigError
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.fedavg import FedAvg
from fl_app.strategies.server_context import ServerContext
from fl_app.testing.toy import context
from fl_app.wiring import made

OPTIONS = [(group, name) for group in TARGETS for name in choices(group)]
FORMS = [*FIXED.items(), ("population/dynamics", Dynamics)]


def _settings(target: Callable[..., Any]) -> set[str]:
    """Return the keyword-only parameters but `seed`, which is the run's; none has a default."""
    keyed = {
        name: parameter.default
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "seed"
    }
    assert not [name for name, default in keyed.items() if default is not inspect.Parameter.empty]
    return set(keyed)


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_an_option_states_the_settings_of_its_target(group: str, name: str) -> None:
    chosen = option(f"{group}={name}")
    taken = _settings(chosen.resolve())
    shared = set(getattr(chosen.resolve(), "shared", {}))
    assert taken <= set(chosen.options) <= taken | shared


@pytest.mark.parametrize(("group", "form"), FORMS)
def test_an_option_of_fixed_form_states_its_fields(group: str, form: type) -> None:
    for field in fields(form):
        assert field.default is field.default_factory is MISSING, field.name
    for name in choices(group):
        stated = OmegaConf.select(compose([f"{group}={name}"]), group.replace("/", "."))
        assert set(stated) == {field.name for field in fields(form)}, name


def test_parameters_after_those_of_the_wiring_are_settings_keyword_only_or_not() -> None:
    def network(shape: Any, classes: int, width: int = 8, *, depth: int) -> None: ...
    def data(samples: int, seed: int) -> None: ...

    assert set(options_model("network", network).model_fields) == {"width", "depth"}
    assert set(options_model("data", data).model_fields) == {"samples"}

    def passes_on(context: Any, *, beta: float, **more: Any) -> None: ...

    made = options_model("strategy", passes_on)(beta=0.5, participation=1.0)
    assert (made.beta, made.participation) == (0.5, 1.0)


def test_a_class_that_passes_settings_on_has_those_of_its_base() -> None:
    class Mine(FedAvg):
        def __init__(self, context: ServerContext, *, beta: float, **more: Any) -> None:
            super().__init__(context, **more)

    fields = options_model("strategy", Mine).model_fields
    assert set(fields) == {"beta", "participation", "weighting"}
    assert taken(Mine) == {"context", "more", *fields}
    options_model("strategy", Mine)(beta=1)  # the class can give the others itself
    with pytest.raises(ValidationError, match="colour"):
        options_model("strategy", Mine)(beta=1, participation=1, weighting="capped", colour=2)


def test_the_callback_of_a_sweep_has_its_settings_from_conf() -> None:
    stated = OmegaConf.load(CONF / "config.yaml").hydra.callbacks.table
    assert set(stated) == _settings(get_object(stated._target_)) | {"_target_"}


def test_choices_stand_in_one_literal() -> None:
    found = list[frozenset[str]]()
    for file in (Path(__file__).parent.parent / "fl_app").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "Literal[" in text else "")):
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
                words = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
                found.append(frozenset(map(ast.unparse, words)))
    several = [sorted(each) for each in found if each]
    assert [each for each in several if several.count(each) > 1] == []
    assert len(several) > 30


def test_what_every_method_receives_has_no_defaults() -> None:
    assert [each.name for each in fields(ServerContext) if each.default is not MISSING] == []


def test_a_method_without_the_setting_fallback_does_what_conf_says_for_all_others() -> None:
    default = inspect.signature(CommunityStrategy.__init__).parameters["fallback"].default
    methods = [option(f"strategy={name}").options for name in choices("strategy")]
    assert {method.get("fallback", default) for method in methods} == {default}


@pytest.mark.parametrize(
    ("words", "judges"),
    [
        (["strategy=flic"], True),
        (["strategy=ifca"], False),  # its trials take rounds
        (["strategy=ifca", "fallback=true"], True),
        (["strategy=flic", "fallback=false"], False),
        (["strategy=flic", "fallback=false", "strategy.fallback=true"], True),
        (["experiment=mnist_label_swap"], False),
    ],
)
def test_one_setting_says_for_all_methods_whether_clients_judge(
    words: list[str], judges: bool
) -> None:
    strategy = load(words).strategy
    assert strategy.resolve()(context(), **strategy.options).judges == judges


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("strategy=fedavg", r"FedAvg, got true: it has no communities"),
        ("experiment=secure_flic", r"SecureFlic, got true: the server learns no loss"),
    ],
)
def test_a_method_whose_communities_clients_cannot_judge_says_why(word: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"fallback must be auto or false with .*{why}"):
        load([word, "fallback=true"])


def test_a_wrong_value_is_told_once_though_a_method_takes_it_too() -> None:
    with pytest.raises(ConfigError) as told:
        load(["fallback=may"])
    assert told.value.problems == (
        "fallback must be 'auto' or true or false, got 'may'; give one, as fallback=true",
    )


def test_every_target_of_conf_is_looked_at() -> None:
    files = [file for file in CONF.rglob("*.yaml") if "_target_:" in file.read_text("utf-8")]
    groups = {file.parent.relative_to(CONF).as_posix() for file in files}
    assert groups == {*TARGETS, *NESTED, "."}


def test_an_option_is_made_with_its_settings_and_changes() -> None:
    attack = made("attack=scaled", share=0.5)
    assert (attack.factor, attack.share) == (10.0, 0.5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'speed'"):
        made("attack=scaled", speed=1)
