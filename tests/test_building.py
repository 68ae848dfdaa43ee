"""What a user's constructor raises is one sentence before the run, with setting and target."""

import sys
from logging import LogRecord
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where raising_parts is
sys.path.insert(0, str(Path(__file__).parent / "end_to_end"))
import door

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run
from fl_app.reasons import LONGEST, reason_of
from fl_app.records.structured_logs import Once

SMALL = ["data=digits", "network=mlp", "population=iid", "population.clients=4",
         "population.train_samples=20", "population.test_samples=10", "strategy=fedavg",
         "strategy.participation=1", "rounds=2"]  # fmt: skip
SAID = "RuntimeError: no licence for this ward"


@pytest.mark.parametrize(
    ("setting", "part", "more"),
    [
        ("network._target_", "network", []),
        ("client.optimizer._target_", "Optimizer", ["client/optimizer=adam"]),
        ("client.scheduler._target_", "Scheduler", []),
        ("task.loss._target_", "Loss", []),
        ("+task.metrics.recall._target_", "Recall", []),
        ("client.transform._target_", "Transform", []),
        ("data._target_", "data", []),
        ("client.learner", "Learner", []),
        ("client.learner", "OtherLearner", ["strategy=feddrift"]),
        ("attack._target_", "Attack", []),
        ("privacy._target_", "Privacy", []),
    ],
)
def test_it_names_setting_and_class_and_what_was_raised(
    setting: str, part: str, more: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        load([*SMALL, *more, f"{setting}=raising_parts.{part}"], also=problems)
    (told,) = error.value.problems
    assert setting.strip("+").removesuffix("._target_") in told.split(" must ")[0]
    assert f"raising_parts.{part}" in told
    assert SAID in told
    assert "\n" not in told


def test_a_population_that_raises_is_one_sentence() -> None:
    sampled = ("population.train", "population.test")
    words = [each for each in SMALL if not each.startswith(sampled)]
    given = ["~population.draw", "~population.train_samples", "~population.test_samples"]
    with pytest.raises(ConfigError, match=f"population._target_ .*_parts.people with {SAID}"):
        load([*words, *given, "population._target_=raising_parts.people"], also=problems)


@pytest.mark.parametrize("engine", ["inprocess", "simulation", "deployment"])
def test_a_strategy_that_raises_ends_every_engine_before_its_start(
    engine: str, tmp_path: Path
) -> None:
    given = ["strategy._target_=raising_parts.Strategy", f"engine={engine}"]
    with pytest.raises(ConfigError, match=f"strategy._target_ .*raising_parts.Strategy .*{SAID}"):
        run([*SMALL, *given], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_object_of_another_kind_is_refused() -> None:
    given = ["privacy._target_=raising_parts.Other"]
    with pytest.raises(ConfigError, match=r"must name a subclass of .*Privacy, got raising_parts"):
        load([*SMALL, *given], also=problems)


def test_a_constructor_that_ends_the_program_is_told_too() -> None:
    with pytest.raises(ConfigError, match=r"raising_parts.Leaving .*SystemExit: usage: leaving"):
        load([*SMALL, "privacy._target_=raising_parts.Leaving"], also=problems)


def test_a_reason_is_one_line_that_ends() -> None:
    assert reason_of(KeyError()) == "KeyError"
    assert reason_of(ValueError("a\n  b")) == "ValueError: a b"
    assert len(reason_of(ValueError("a" * 10_000))) == LONGEST + 3


def test_a_warning_is_told_once_and_an_error_always() -> None:
    def record(level: int, text: str) -> LogRecord:
        return LogRecord("fl_app", level, "", 0, "%s", (text,), None)

    once = Once()
    told = [record(30, "odd"), record(30, "odd"), record(30, "other"), record(40, "bad")]
    assert [once.filter(each) for each in [*told, record(40, "bad")]] == [1, 0, 1, 1, 1]


def test_a_command_prints_a_warning_of_its_checks_once(tmp_path: Path) -> None:
    given = ["client.learner=user_parts.Remembering"]
    tests = str(Path(__file__).parent)
    script = f"import sys; sys.path.insert(0, {tests!r}); from fl_app.main import main; main()"
    quiet = ["records.figures=false", "records.report=false", "tracking=none"]
    done = door.run(door.SCRIPT, script, *SMALL, *quiet, *given, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("training changes the attribute last of the learner") == 1
