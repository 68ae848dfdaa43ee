"""The benchmarks of lies begin with every method that they are for."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import Array

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import early_lies
import fuzz
import honest_updates
import long_replies
import lying
from methods import STRATEGIES, builder

from fl_app.compatibility import problems
from fl_app.composition import choices
from fl_app.config import load
from fl_app.params import from_bytes, to_bytes
from fl_app.testing.toy import context, play, roster


def _benchmark(name: str) -> ModuleType:
    """Return the benchmark from its file: a module of the tests is called `lies` too."""
    spec = importlib.util.spec_from_file_location(
        f"benchmark_{name}", Path(fuzz.__file__).with_name(f"{name}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


LIES = _benchmark("lies")
with pytest.MonkeyPatch.context() as patch:
    patch.setitem(sys.modules, "lies", LIES)
    TOLD = _benchmark("told_lies")
    patch.delitem(sys.modules, "lies")  # that of the tests is meant
    FUZZ_RUNS = _benchmark("fuzz_runs")

MASKED, POINTS = {"secure_flic"}, {"central_kmeans", "kfed", "kmeans"}


def test_they_have_all_methods_but_those_under_masks() -> None:
    every = {*choices("strategy")} - MASKED
    assert {name.partition(" ")[0] for name in LIES.methods()} == every
    assert {*long_replies.methods()} == every - POINTS
    names = [name for _, name, *_ in fuzz.tasks(100, 0)]
    assert {*names} == every | {*STRATEGIES}


@pytest.mark.parametrize("name", LIES.methods())
def test_their_words_are_right(name: str) -> None:
    long = [*long_replies.SETTINGS, *lying.words_of(name, long_replies.GIVEN)]
    for words in (
        long if name in long_replies.methods() else [],
        LIES.overrides(name),
        [*FUZZ_RUNS.SETTINGS, *fuzz.words(name.partition(" ")[0])],
    ):
        load(words, also=problems)  # with the strategy itself


@pytest.mark.parametrize("name", early_lies.compared())
def test_the_words_of_early_lies_are_right(name: str) -> None:
    load([*early_lies.SETTINGS, *lying.words_of(name, early_lies.GIVEN)], also=problems)


def test_the_largest_loss_of_early_lies_is_told_beside_the_mean() -> None:
    method, *_ = early_lies.compared()
    found = [
        {"case": [method, lie, seed], "accuracy": 0.9}
        for lie in early_lies.CASES
        for seed in range(early_lies.SEEDS)
    ]
    found[-1] |= {"accuracy": 0.6}
    last = early_lies.lines(found)[-1]
    assert last == f"| {method} | 0.900 | 0.900 | +0.000, +0.000 | **+0.100, +0.300** |"


def test_the_first_model_of_a_run_is_sent_again() -> None:
    sent = []
    for server_round in (1, 2, 1):
        start = np.full(4, 10.0 + server_round, np.float32)
        content: Any = {"fitres.parameters": {"0": Array("", (), "", to_bytes(start + 1))}}
        asked = lying.Asked(lying.TRAIN, server_round, 0, start + len(sent), 3, content)
        lying.PULLS["first model"](asked)
        sent.append(from_bytes(content["fitres.parameters"]["0"].data).tolist())
    assert sent == [[11, 11, 11, 12], [11, 11, 11, 13], [13, 13, 13, 12]]


@pytest.mark.parametrize("name", TOLD.METHODS)
def test_the_words_of_told_lies_are_right(name: str) -> None:
    load(TOLD.overrides(name), also=problems)


def test_a_cell_holds_if_little_is_lost_and_nobody_else_is_rejected() -> None:
    method, *others = long_replies.methods()
    found = [
        {"case": [each, lie, seed], "accuracy": 0.9, "rejected": [long_replies.LIAR]}
        for each in (method, others[0])
        for lie in long_replies.CASES
        for seed in range(long_replies.SEEDS)
    ]
    found[-1] |= {"accuracy": 0.5, "rejected": [2]}
    told = long_replies.lines(found)
    held = told.index("9 of 10 cells held.")
    first, second = told[held - 3 : held - 1]
    assert first.startswith(f"| {method} | 0.900 | 0.900 | +0.000 |")
    assert second.endswith("| **+0.200 (1)** |")


def test_the_loss_by_updates_that_are_turned_around_has_its_standard_error() -> None:
    accuracy = {
        long_replies.CLEAN: [0.9] * 8,
        long_replies.SILENT: [0.8] * 4 + [0.9] * 4,
        long_replies.TURNED: [0.8] * 8,
    }
    found = [
        {"case": ["late", lie, seed], "accuracy": each, "rejected": []}
        for lie, every in accuracy.items()
        for seed, each in enumerate(every)
    ]
    # 4 losses of 0 and 4 of 0.1: 0.05 / sqrt(7)
    assert long_replies.lines(found)[-1] == "| late | 0.900 | 0.850 | +0.050 ± 0.019 |"
    found[-1]["accuracy"] = 0.7
    assert long_replies.lines(found)[-1] == "| late | 0.900 | 0.850 | **+0.062 ± 0.026** |"


def test_the_updates_of_honest_clients_are_looked_at_in_every_round() -> None:
    seen = honest_updates.Seen()
    with honest_updates._spying(seen):
        play(builder("fedavg", participation=1.0)(context()), roster(4), range(1, 3))
    assert (seen.rounds, seen.updates, seen.longer) == (2, 8, 0)
    assert 1 < seen.honest < 3
