"""Configuration: every problem at once, each with value, rule and remedy."""

import json
import re
import shlex
from datetime import datetime

import pytest
import yaml

from fl_app import composition, run_config
from fl_app.compatibility import problems
from fl_app.composition import CONF
from fl_app.config import ConfigError, load
from fl_app.run_config import carried, load_text, of_run


def _problems(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(list(overrides))
    return list(caught.value.problems)


@pytest.mark.parametrize(
    "override",
    [
        f"{folder.name}={option.stem}"
        for folder in sorted(CONF.iterdir())
        if folder.is_dir()
        for option in sorted(folder.glob("*.yaml"))
    ],
)
def test_every_option_of_every_group_composes(override: str) -> None:
    config = load([override])
    assert config.rounds >= 1


def test_dynamics_are_a_part_of_every_population() -> None:
    config = load(["population=rotation", "population/dynamics=every_ten"])
    assert (config.dynamics.newcomers, config.dynamics.drift_every) == (2, 10)
    assert "dynamics" not in config.population.options
    bad = _problems("population.dynamics.availability=0", "+population.dynamics.colour=red")
    assert any("population.dynamics.availability must be greater than 0" in each for each in bad)


def test_overrides_reach_the_typed_configuration() -> None:
    config = load(["client.learning_rate=0.2", "strategy.participation=0.5", "seed=7"])
    assert config.client.learning_rate == 0.2
    assert config.strategy.options["participation"] == 0.5
    assert config.seed == 7


def test_one_string_carries_quoted_overrides() -> None:
    config = load_text("seed=3 \"records.folder='/a b/c=d'\"")
    assert config.seed == 3
    assert config.records.folder == "/a b/c=d"


@pytest.mark.parametrize(
    "overrides",
    [
        "seed=1 strategy=communities graph.resolution=2",
        "seed=2 \"records.folder='/a b/c=d'\" population=rotation",
        "seed=3 data=mnist records.folder=${oc.env:FL_APP_TEST_FOLDER}",
    ],
)
def test_a_composed_tree_saves_the_composing(
    overrides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FL_APP_TEST_FOLDER", "of the server")
    wanted = load(shlex.split(overrides))
    text = carried(overrides)
    load(["seed=99"])  # else the last tree is known
    monkeypatch.setenv("FL_APP_TEST_FOLDER", "of the client")
    monkeypatch.setattr(composition, "compose", None)
    found = of_run({"overrides": overrides, "composed": text}, on_client=True)
    assert found.seed == wanted.seed
    expected = json.dumps(wanted.resolved).replace("of the server", "of the client")
    assert found.resolved == json.loads(expected)


def test_a_client_needs_omegaconf_only_where_a_resolver_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overrides = "seed=21 client.learning_rate=0.25"
    text = carried(overrides)
    wanted = load(shlex.split(overrides))
    monkeypatch.setattr(run_config, "OmegaConf", None)
    found = of_run({"overrides": overrides, "composed": text}, on_client=True)
    assert found.resolved == wanted.resolved
    assert found.client.optimizer.options["lr"] == 0.25  # an interpolation
    with pytest.raises(AttributeError):
        of_run({"overrides": "seed=22", "composed": _with_resolver("seed=22")}, on_client=True)


def _with_resolver(overrides: str) -> str:
    carrying = json.loads(carried(overrides))
    carrying["tree"]["records"]["folder"] = "${oc.env:HOME}"
    return json.dumps(carrying)


def test_configurations_with_another_value_have_another_key() -> None:
    first, second = load(["seed=1"]), load(["seed=2"])
    assert first.key != second.key
    assert first.key == load(["seed=1"]).key


@pytest.mark.parametrize("composed", ["", "{", "[]", '{"overrides": "seed=6", "tree": {}}', "3"])
def test_a_tree_of_other_overrides_is_not_used(composed: str) -> None:
    load(["seed=99"])
    assert of_run({"overrides": "seed=5", "composed": composed}).seed == 5


def test_a_composed_tree_is_checked_like_any_other() -> None:
    carrying = json.loads(carried("seed=11"))
    carrying["tree"]["client"]["epochs"] = "many"
    load(["seed=99"])
    with pytest.raises(ConfigError, match=r"client\.epochs"):
        load_text("seed=11", json.dumps(carrying))


def test_what_cannot_be_composed_is_not_carried() -> None:
    assert carried("strategy=nonsense") == ""


def test_a_number_that_the_population_does_not_give_is_asked_for() -> None:
    (problem,) = _problems("strategy=ifca", "population=dirichlet")
    assert problem == (
        "strategy.communities must be a whole number, got None; give it as "
        "strategy.communities=<value>"
    )


def test_all_errors_are_reported_together() -> None:
    problems = _problems(
        "strategy=nonsense",
        "strategy.participation=1.5",
        "client.epochs=many",
        "client.learning_rate=-1",
        "strategy.cluster_round=60",
        "engine.min_success=1000",
    )
    text = "\n".join(problems)
    assert "strategy must be one of" in text
    assert "nonsense" in text
    assert "strategy.participation must be less than or equal to 1, got 1.5" in text
    assert "client.epochs" in text
    assert "got 'many'" in text
    assert "client.learning_rate must be greater than 0, got -1" in text
    assert "strategy.cluster_round must be below rounds=40" in text
    assert "engine.min_success must be at most population.clients=20, got 1000" in text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("strategy.participation=0", "greater than 0"),
        ("strategy.cluster_round=soon", "strategy.cluster_round"),
        ("client.precision=fp8", "client.precision must be 'fp32' or 'bf16', got 'fp8'"),
        ("strategy.speed=1", "strategy.speed"),
        ("rounds=0", "rounds must be greater than 0, got 0"),
        (
            "records.snapshot_rounds=[5,99,40]",
            "records.snapshot_rounds must be at most rounds=40, got [5, 99, 40]; give "
            '"records.snapshot_rounds=[5,40]"',
        ),
        ("strategy.ignore_before=30", "strategy.ignore_before must be at most"),
        (
            "engine.name=quantum",
            "engine.name must be 'inprocess', 'simulation' or 'deployment', got 'quantum'",
        ),
        (
            "client.epochs=1.5",
            "client.epochs must be a whole number, got 1.5; give one, as client.epochs=40",
        ),
        ("rounds=true", "rounds must be a number, got true; give one, as rounds=1"),
        ("client.epochs=true", "client.epochs must be a number, got true; give one"),
        ("population.clients=true", "population.clients must be a number, got true; give one"),
        ("records.report=x", "must be true or false, got 'x'; give one, as records.report=true"),
        ("client.learning_rate=inf", "must be a finite number, got inf; give one, as client.lear"),
        ("records.snapshot_rounds=[a]", "must be a list, each entry a whole number, got 'a'; give"),
        ("records.snapshot_rounds=3", "snapshot_rounds must be a list, got 3; give one, as rec"),
        ("experiment_name=3", "must be text, got 3; give one, as experiment_name=<text>"),
        (
            "rounds=6",
            "got 25; give rounds=6 strategy.cluster_round=3 or rounds=26 or more",
        ),
        ("rounds=1", "so that communities train, got 25; give rounds=26 or more"),
        (
            "client.epochs={low:1,high:3}",
            "client.epochs.share is missing; give it in client.epochs",
        ),
        (
            "client.epochs={low:1,high:3,share:0.5,most:4}",
            "client.epochs.most is not a setting here; remove it",
        ),
        ("client.optimizer=adam", "got 'adam'; give it as client/optimizer=adam"),
        ("population.dynamics=none", "got 'none'; give it as population/dynamics=none"),
        (
            "engine.min_success=9",
            "engine.min_success must be at most the 8 clients that train in a round with "
            "strategy.participation=0.4 of population.clients=20, got 9; lower it or raise",
        ),
    ],
)
def test_one_error_names_key_rule_and_value(override: str, message: str) -> None:
    problems = _problems(override)
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["strategy=communities", "strategy.attribution=wnn", "strategy.bta=1"],
            ["strategy.bta is not a setting of this run; use strategy.beta"],
        ),
        (
            ["network=mlp", "~network.hidden", "engine.nome=1"],
            [
                "engine.nome is not a setting of this run; use engine.name",
                "network.hidden is missing; give it as \\+network.hidden=<value>",
            ],
        ),
        (
            ["client/optimizer=adam", "client.momentum=0.5", "client.learning_rate=0.1"],
            [
                "client.learning_rate is the lr .* and lr=0.001, got 0.1; give client.optimizer.lr",
                "client.momentum is the momentum .* with torch.optim.Adam, got 0.5; remove it",
            ],
        ),
        (
            ["network.hidden=[3]", "network=nope", "round=5"],
            ["network must be one of .*, got nope", "round is not a setting.*; use rounds"],
        ),
        (
            ["strategy=fedavg", "+strategy.participation=1.0", "~strategy.zzz"],
            [
                "strategy.participation is a setting of this run already; give it without \\+, "
                "as strategy.participation=1.0",
                "strategy.zzz is not a setting of this run; remove it or use one of participation",
            ],
        ),
        (
            ["~client.clip_norm", "~client.epochs=7", "~client.nope"],
            [
                "~client.clip_norm must name a setting that is not null, .*=null; remove it",
                "~client.epochs=7 must give the value of client.epochs, .*, or none; give it as",
                "client.nope is not a setting of this run; remove it or use one of epochs",
            ],
        ),
        (
            ["task.metrics=[f1]", "population.dynamics=[3]", "network=mlp", "network.hidden={a:1}"],
            [
                r"task.metrics must be settings by name, got \[f1\]; give each as \+task.metrics.<",
                "population.dynamics must be settings by name, .*; give each as population.dynam",
                "network.hidden must be a list, got {a:1}; give it as network.hidden=",
            ],
        ),
        (
            ["experiment_name='x${now:}'", "client.learning_rate='${nothing}'", "rounds=3"],
            [
                r"experiment_name must have a value that .*, got 'x\$\{now:\}' \(TypeError raised",
                r"client.learning_rate must have a value that .*, got '\$\{nothing\}' \(Interpol",
            ],
        ),
        (
            [
                "attack=zero",
                "attack._target_=tests.user_parts.Partial",
                "attack.part=3",
                "rounds=x",
            ],
            [
                "attack.part is not .*; give it as \\+attack.part=3$",
                "rounds must be a whole number",
                "attack.part is missing; give it as \\+attack.part=<value>",
            ],
        ),
        (
            ["strategy._target_=tests.user_parts.Mean", "strategy.count=3", "rounds=x"],
            [
                "strategy.count is not .*; give it as \\+strategy.count=3 if "
                "tests.user_parts.Mean takes it",
                "rounds must be a whole number",
                "strategy._target_ must name a class or function",
            ],
        ),
    ],
)
def test_no_sound_override_is_blamed_for_another(overrides: list[str], told: list[str]) -> None:
    problems = _problems(*overrides)
    assert len(problems) == len(told), problems
    assert all(re.match(rule, said) for rule, said in zip(told, problems, strict=True)), problems


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["strategy.cluster_round=auto", "strategy.ignore_before=40"],
            "strategy.ignore_before must be below rounds=40 with strategy.cluster_round=auto, got "
            "40; lower it, since communities would not train",
        ),
        (
            ["strategy=ifca", "strategy.restarts=5", "strategy.trial_rounds=5", "rounds=10"],
            "(strategy.restarts + 1) * strategy.trial_rounds must be at most rounds=10, got "
            "(5 + 1) * 5 = 30; raise rounds or lower one of them, since the best of the sets of "
            "initial models is selected after the last one was tried",
        ),
        (
            ["data=blobs", "strategy=kmeans", "strategy.n_init=6", "rounds=5"],
            "strategy.n_init must be at most rounds=5, got 6; raise rounds or lower it, since each "
            "start has at least one round",
        ),
    ],
)
def test_a_schedule_fits_into_the_rounds(overrides: list[str], message: str) -> None:
    assert _problems(*overrides) == [message]


@pytest.mark.parametrize(
    "overrides",
    [
        ["strategy.cluster_round=auto", "strategy.ignore_before=39"],
        ["strategy.cluster_round=25", "strategy.ignore_before=25"],
        ["strategy=ifca", "strategy.restarts=1", "strategy.trial_rounds=5", "rounds=10"],
        ["strategy=ifca", "rounds=2"],
        ["data=blobs", "strategy=kmeans", "strategy.n_init=5", "rounds=5"],
        ["data=blobs", "strategy=central_kmeans", "strategy.n_init=5", "rounds=1"],
    ],
)
def test_a_schedule_that_just_fits_is_accepted(overrides: list[str]) -> None:
    assert load(overrides).strategy.sound


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["population.clients=2000"], "2000 clients of 1 samples need 2000 samples"),
        (["population.groups=6"], "population.groups must be at most half of the 10 classes"),
        (["data=mnist", "data.download=false", "data.root=nowhere"], "point data.root at a folder"),
        (["data=blobs", "network=mlp", "population=dirichlet_rotation"], "needs images of shape"),
        (["data=image_folder", "data.root=nowhere"], "expected .*train/<class>/<image>"),
    ],
)
def test_data_are_checked_with_the_rest(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load([*overrides, "client.epochs=many"], also=problems)
    assert len(caught.value.problems) == 2


def test_a_distance_is_named_or_a_function_of_ones_own() -> None:
    own = "strategy.similarity=fl_app.graph.similarity.cosine_between"
    assert load(["strategy=communities", own]).strategy.sound
    rule = r"'cosine' or the dotted path .*no module nonsense; .*, got 'nonsense.f'"
    with pytest.raises(ConfigError, match=rule):
        load(["strategy=communities", "strategy.similarity=nonsense.f"])


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["attack=zero", "attack._target_=tests.user_parts.Od"],
            "no Od in tests.user_parts, but Odd",
        ),
        (["client.learner=tests.user_parts.Shirt"], "no Shirt in tests.user_parts, but Short"),
        (
            ["strategy=late", "strategy.similarity=fl_app.graph.similarity.cosine_betwen"],
            "no cosine_betwen in fl_app.graph.similarity, but cosine_between",
        ),
        (
            ["strategy=fedem", "network=mixture", "network.of=fl_app.client.networks.mlpp"],
            "no mlpp in fl_app.client.networks, but mlp",
        ),
        (["client.optimizer._target_=torch.optim.Adom"], "no Adom in torch.optim, but Adam"),
        (["task.loss._target_=torch.nn.MSELos"], "no MSELos in torch.nn, but MSELoss"),
    ],
)
def test_a_misspelt_name_of_a_module_is_told_with_the_right_one(
    overrides: list[str], told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(overrides, also=problems)
    assert any(f"there is {told}" in each for each in caught.value.problems)


def test_a_federation_elsewhere_has_its_data_elsewhere() -> None:
    away = ["engine=deployment", "engine.connection=far", "data=mnist", "data.root=nowhere"]
    assert load(away, also=problems).data.options["root"] == "nowhere"


def test_a_connection_that_no_engine_uses_hides_no_fault_of_the_data() -> None:
    with pytest.raises(ConfigError) as error:
        load(["engine.connection=far", "data=mnist", "data.root=nowhere"], also=problems)
    assert len(error.value.problems) == 2
    assert "nowhere" in error.value.problems[1]


def test_configuration_is_composed_again_after_an_error() -> None:
    _problems("strategy=nonsense")
    assert load([]).strategy.path == "fl_app.strategies.flic.Flic"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("data.label=größe", "\"data.label='größe'\""),
        ("data.label=Pressure (mmHg)", "\"data.label='Pressure (mmHg)'\""),
        ("data.exclude=[größe, age]", "\"data.exclude=['größe',age]\""),
        (
            "data.file=a,b.csv",
            "one value; give \"data.file='a,b.csv'\" if it is one, or --multirun",
        ),
        ("task.metrics={f1: {_target_: x}}", 'add it with "++task.metrics={f1: {_target_: x}}"'),
        ("+data.categories.blood pressure=null", "must begin with a setting, of letters"),
        ("+data.categories.größe=null", "write other names as YAML into experiment/<name>.yaml"),
        ("data.categories={größe: [klein]}", "letters, digits, _ and spaces, and quotes around"),
        ("=1", "'=1' must begin with a setting"),
    ],
)
def test_what_hydra_cannot_read_is_told_as_it_is_typed(override: str, told: str) -> None:
    (problem,) = _problems("data=table", override)
    assert told in problem
    if '"' in told:
        typed = told[told.index('"') + 1 : told.rindex('"')]
        assert composition.compose(["data=table", typed])


def test_what_cannot_be_resolved_hides_no_errors_of_other_groups() -> None:
    words = ["client.epochs=${nothing}", "rounds=0", "network.hidden=-1", "network=mlp", "seed=-1"]
    words.append("engine.workers=${client.batch_size}")
    found = _problems(*words)
    assert [each.partition(" ")[0] for each in found] == [
        "client.epochs", "seed", "rounds", "network.hidden",
    ]  # fmt: skip


def test_a_metric_that_is_null_is_not_measured() -> None:
    words = ["task.metrics={mae: null}", "task=regression", "data=table", "data.root=x"]
    assert "mae" not in _metrics([*words, "data.label=y"])
    assert "mae" in _metrics(["task=regression", "data=table", "data.root=x", "data.label=y"])


def _metrics(words: list[str]) -> dict[str, object]:
    found: dict[str, object] = load(words).task.options["metrics"]
    return found


@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_two_runs_that_begin_in_one_second_have_a_folder_each(kind: str) -> None:
    """Otherwise the second is refused, or replaces the first if that one has ended."""
    folder = yaml.safe_load((CONF / "config.yaml").read_text())["hydra"][kind]["dir"]
    times = [datetime(2026, 1, 1, microsecond=moment) for moment in (1, 2)]
    (form,) = re.findall(r"\$\{now:(.*?)\}", folder)
    assert len({time.strftime(form) for time in times}) == 2
