"""The benchmark of all methods: its plan, how it continues, what its results say, its pages."""

import csv
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import all_methods
import method_guide as guide
import method_page as page
import method_runs as runs
from method_cells import (
    BUDGET,
    METHODS,
    NIGHT,
    OTHERS,
    QUICK,
    Cell,
    Method,
    cell_named,
    cells,
    with_unlisted,
    words,
)

from fl_app.composition import choices
from fl_app.config import load

CELL = cell_named("mnist/label_swap/full/static")
VALUES = {
    "worst": 0.5, "ari": 1.0, "communities": 4, "rounds": 6, "megabytes": 10.0, "client_s": 1.0,
    "server_s": 0.1, "unseen": 0.8, "unlabelled": 0.4, "wall_s": 10.0,
}  # fmt: skip


def _result(
    cell: Cell, method: str, accuracy: float, *, seed: int = 0, tried: int = 0, **changes: Any
) -> runs.Found:
    purpose = changes.pop("purpose", runs.final(3))
    key = ["night", cell.name, method, tried, seed, purpose]
    return {"key": key, "accuracy": accuracy, **(VALUES | changes)}


def _grid(accuracies: dict[str, list[float]], count: int = 6) -> list[runs.Found]:
    """Return one result of each method in each of the first cells of MNIST."""
    places = cells(["mnist/*"])[:count]
    return [
        _result(cell, method, each[row])
        for method, each in accuracies.items()
        for row, cell in enumerate(places)
    ]


def test_every_method_that_groups_clients_is_in_the_benchmark() -> None:
    named = {word for each in METHODS.values() for word in each.words}
    assert {f"strategy={name}" for name in {*choices("strategy")} - OTHERS} <= named
    assert {*choices("strategy")} >= OTHERS
    assert all(len(each.tried) == BUDGET for each in METHODS.values())


def test_a_new_method_needs_no_entry_in_the_benchmark() -> None:
    listed = {"flic": METHODS["flic"]}
    found = with_unlisted(listed, ["flic", "krum", "a_new_one"])
    rates = tuple((f"client.learning_rate={rate}",) for rate in (0.1, 0.05, 0.2))
    assert found == {**listed, "a_new_one": Method(("strategy=a_new_one",), rates, "ours")}


PLACES = {
    "fashion_mnist/rotation/partial/newcomers": NIGHT,
    "table/quantity_skew/full/drift": QUICK,
    "cifar10/label_skew/full/static": QUICK,
}


@pytest.mark.parametrize("name", list(METHODS))
def test_each_run_is_a_configuration(name: str) -> None:
    for tried, (place, scale) in enumerate(PLACES.items()):
        cell = cell_named(place)
        given = words(cell, name, tried, 1, scale=scale, data=Path("d"), out=Path("o"))
        config = load(given)
        dynamics = config.dynamics
        assert config.rounds + 1 in dynamics.join_rounds  # the unseen never come
        joins = dynamics.newcomers * len(dynamics.join_rounds)
        assert config.population.options["clients"] - joins == scale.clients


def test_cells_are_chosen_by_patterns_and_a_table_is_not_rotated() -> None:
    assert len(cells()) == 4 * 4 * 2 * 3 - 6
    assert [each.name for each in cells(["table/*/full/static"])] == [
        "table/label_skew/full/static",
        "table/label_swap/full/static",
        "table/quantity_skew/full/static",
    ]
    with pytest.raises(ValueError, match=r"--cells must fit .* got nothing/"):
        cells(["nothing/*"])


def test_the_plan_has_the_same_budget_for_each_method_and_tunes_each_place_once() -> None:
    chosen = cells(["mnist/label_swap/*"])
    tuning = runs.tuning(chosen, ["fedavg", "flux"], 3, NIGHT)
    assert len(tuning) == 2 * 3
    assert {job.cell for job in tuning} == {CELL}
    assert {job.seed for job in tuning} == {runs.TUNING_SEED}
    assert runs.tuning(chosen, ["fedavg"], 1, NIGHT) == []
    final = runs.finals(chosen, ["fedavg", "flux"], [0, 1], NIGHT, 3)
    assert len(final) == len({tuple(job.key) for job in final}) == 6 * 2 * 2
    assert [job.seed for job in final] == [0] * 12 + [1] * 12


def test_the_best_setting_of_the_tuning_is_used_when_all_are_there() -> None:
    cell = cell_named("mnist/label_swap/partial/drift")
    (job,) = runs.finals([cell], ["flux"], [0], NIGHT, 3)
    told = [
        _result(CELL, "flux", value, tried=k, seed=1000, purpose=runs.TUNING)
        for k, value in enumerate([0.5, 0.7])
    ]
    others = [_result(CELL, "fedavg", 0.9, tried=2, seed=1000, purpose=runs.TUNING)]
    assert runs.chosen(told + others, job, 3) is None
    failed = {"key": ["night", CELL.name, "flux", 2, 1000, runs.TUNING], "error": "no"}
    assert runs.chosen([*told, failed], job, 3) == 1
    assert runs.chosen([], job, 1) == 0


def test_after_its_time_no_run_is_started(tmp_path: Path) -> None:
    jobs = runs.finals([CELL], ["fedavg"], [0], QUICK, 3)
    log = tmp_path / "results.jsonl"
    all_methods.play(jobs, log, tmp_path, tmp_path, 1, until=-np.inf)
    assert not log.exists()


def test_the_file_of_results_has_six_decimals() -> None:
    found = runs.short({"key": ["night"], "accuracy": 2 / 3, "rounds": None})
    assert found == {"key": ["night"], "accuracy": 0.666667, "rounds": None}


def test_the_rest_takes_as_long_as_the_runs_of_the_same_method() -> None:
    found = [
        _result(CELL, "flux", 0.5, wall_s=10.0), _result(CELL, "flux", 0.5, wall_s=20.0),
        _result(CELL, "ifca", 0.5, wall_s=60.0),
    ]  # fmt: skip
    jobs = runs.finals([CELL], ["flux", "ifca", "dcfl"], [5], NIGHT, 3)
    assert runs.remaining_s(found, jobs, 2) == pytest.approx((15 + 60 + 30) / 2)
    assert runs.remaining_s([], jobs, 2) is None
    assert runs.remaining_s(found, [], 2) == 0


def test_measures_of_a_run_by_hand() -> None:
    def record(number: int, accuracy: dict[str, float] | None) -> dict[str, Any]:
        scores = None if accuracy is None else {
            "mean": float(np.mean(list(accuracy.values()))), "clients": accuracy,
        }  # fmt: skip
        return {
            "round": number, "accuracy": scores, "communities": {"ari": 0.5, "count": 2},
            "bytes": {"down": 1_000_000, "up": 500_000},
            "time": {"training_s": 2.0, "server_s": 0.25},
        }  # fmt: skip

    records = [record(1, None), record(2, {"0": 0.9, "1": 0.7}), record(3, {"0": 1.0, "1": 0.4})]
    assert runs.measures(records) == {
        "accuracy": 0.7, "worst": 0.4, "ari": 0.5, "communities": 2, "rounds": 2,
        "megabytes": 4.5, "client_s": 6.0, "server_s": 0.75,
    }  # fmt: skip


def test_entries_have_means_over_seeds_of_the_right_runs_only() -> None:
    found = [
        _result(CELL, "flux", 0.5, tried=2), _result(CELL, "flux", 0.7, seed=1, tried=2),
        _result(CELL, "flux", 0.0, purpose=runs.final(1)),
        _result(CELL, "flux", 0.0, purpose=runs.TUNING),
        {"key": ["night", CELL.name, "ifca", 0, 0, runs.final(3)], "error": "ValueError: no"},
    ]  # fmt: skip
    every = guide.entries(found, NIGHT, 3)
    entry = every[CELL, "flux"]
    assert (entry.seeds, entry.tried, entry.error) == ([0, 1], 2, None)
    assert entry.mean("accuracy") == pytest.approx(0.6)
    assert entry.deviation("accuracy") == pytest.approx(0.1 * np.sqrt(2))
    assert page.shown(entry, "accuracy") == "0.600 ± 0.141"
    assert every[CELL, "ifca"].error == "ValueError: no"
    assert guide.entries(found, QUICK, 3) == {}


def test_the_standing_and_the_advice_by_hand() -> None:
    clear = {
        "fedavg": [0.50, 0.51, 0.52, 0.53, 0.54, 0.55],
        "flic": [0.60, 0.61, 0.62, 0.63, 0.64, 0.65],
        "flux": [0.90, 0.91, 0.92, 0.93, 0.94, 0.95],
    }
    every = guide.entries(_grid(clear), NIGHT, 3)
    now = guide.standing(every, lambda cell: True)
    assert now is not None
    assert now.methods == ["fedavg", "flic", "flux"]
    np.testing.assert_array_equal(now.mean_ranks, [3, 2, 1])
    assert now.differ
    # 2.343 * root(3 * 4 / 36) = 1.353
    assert now.critical == pytest.approx(1.353, abs=1e-3)
    assert [now.methods[k] for k in now.equals()] == ["flux", "flic"]
    first = guide.advice(every)[0]
    assert (first.situation, first.cells, first.best) == ("all cells", 6, "flux")
    assert first.equals == ("flic",)
    assert first.gain == pytest.approx(0.4)
    assert first.p == pytest.approx(np.exp(-6))


def test_means_are_over_cells_that_all_methods_have_in_common() -> None:
    found = _grid({"fedavg": [0.2, 0.4], "flux": [0.6, 0.8]}, count=2)
    alone = _result(Cell("table", "label_skew", "full", "static"), "flux", 0.0)
    every = guide.entries([*found, alone], NIGHT, 3)
    means = page._means(every)
    assert means[0] == "Over the cells in which every method has a result."
    assert [line.split(" | ")[:3] for line in means[4:]] == [
        ["| `fedavg`", "2", "0.300"],
        ["| `flux`", "2", "0.700"],
    ]
    assert {name: right for name, _, right in page._dots(every)} == pytest.approx(
        {"fedavg": 0.3, "flux": 0.7}
    )
    apart = guide.entries([found[0], alone], NIGHT, 3)
    assert page._means(apart)[0].startswith("No cell has a result of every measured method")


def test_no_difference_and_too_few_cells_are_told() -> None:
    same = {name: [0.5, 0.6, 0.7, 0.8, 0.9, 1.0] for name in ("fedavg", "flic", "flux")}
    first = guide.advice(guide.entries(_grid(same), NIGHT, 3))[0]
    assert first.best == "fedavg"
    assert first.equals == ("flic", "flux")
    few = guide.advice(guide.entries(_grid(same, count=guide.FEWEST - 1), NIGHT, 3))
    assert all(each.best is None for each in few)
    assert few[0].cells == guide.FEWEST - 1


def test_a_cell_in_which_a_method_failed_does_not_count_and_cheap_methods_are_named() -> None:
    found = _grid({"fedavg": [0.5] * 6, "ifca": [0.8] * 6, "flux": [0.8] * 6})
    for each in found:
        each["megabytes"] = 40.0 if each["key"][2] == "ifca" else 10.0
    (failed,) = [e for e in found if e["key"][2] == "flux" and e["key"][1] == found[0]["key"][1]]
    del failed["accuracy"]
    failed["error"] = "RuntimeError: x"
    every = guide.entries(found, NIGHT, 3)
    now = guide.standing(every, lambda cell: True)
    assert now is not None
    assert len(now.cells) == 5
    first = guide.advice(every)[0]
    assert (first.best, first.equals[0], first.cheapest) == ("ifca", "flux", "flux")


def test_a_method_without_a_value_is_left_out_of_its_ranks_alone() -> None:
    found = _grid({"fedavg": [0.5] * 6, "local": [0.9] * 6, "flux": [0.8] * 6})
    for each in found:
        each["unseen"] = None if each["key"][2] == "local" else each["accuracy"]
    every = guide.entries(found, NIGHT, 3)
    unseen = guide.standing(every, lambda cell: True, "unseen")
    assert unseen is not None
    assert unseen.methods == ["fedavg", "flux"]
    advice = {each.situation: each for each in guide.advice(every)}
    assert advice["unseen clients, with labels"].best == "flux"
    assert advice["all cells"].best == "local"


def test_the_pages_have_every_result_and_name_what_is_missing(tmp_path: Path) -> None:
    found = _grid({"fedavg": [0.5, 0.6], "flux": [0.9, 0.8]}, count=2)
    for each in found:
        each["cpu_s"] = 600.0
    found[0] = {"key": found[0]["key"], "error": "ValueError: <b>bad</b>"}
    paths = page.write_pages(found, NIGHT, 3, tmp_path)
    assert [each.name for each in paths] == ["benchmark.md", "benchmark.csv", page.SORTABLE]
    markdown, table, html = (each.read_text() for each in paths)
    first, second = (each.name for each in cells(["mnist/*"])[:2])
    assert f"| `{second}` | 0.600 | 0.800 |" in markdown
    assert f"- `{first}` fedavg: ValueError" in markdown
    assert f"- `{second}`: local, ditto" in markdown
    assert "- `table/label_skew/full/static`\n" in markdown
    assert "3 settings of each method" in markdown
    assert f"4 runs in 2 of {len(cells())} cells, with the tuning, in 0.5 hours" in markdown
    assert "`strategy.split_below=1.0` | 1.0 the paper's, 0.2 and 0.5 ours |" in markdown
    assert "`strategy.radius_scale=1.25`; `strategy.radius_scale=1.0`; " in markdown
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == 4
    assert {r["setting"] for r in rows} == {
        "client.learning_rate=0.1",
        "strategy.radius_scale=1.25",
    }
    assert {(r["method"], r["accuracy"]) for r in rows} == {
        ("fedavg", ""), ("fedavg", "0.6"), ("flux", "0.9"), ("flux", "0.8"),
    }  # fmt: skip
    assert html.count("<tr>") == 4 + 1 + len(guide.advice({})) + 1
    assert "&lt;b&gt;bad" in html
    assert "- Participation: all clients in every round, or 30% of them. So fedgwc has" in html
    assert "hardly differ there.\n- Changes: in" in html
    assert "The same results" not in html
    assert not re.search(r"(?:src|href)=|https?://|@import|url\(", html)


def test_the_command_of_a_cell_is_told_with_the_setting_that_was_chosen() -> None:
    found = [
        _result(CELL, "flux", value, tried=k, seed=1000, purpose=runs.TUNING)
        for k, value in enumerate([0.5, 0.6, 0.9])
    ]
    jobs = runs.finals([CELL], ["flux"], [4], NIGHT, 3)
    (told,) = all_methods.commands(jobs, found, 3, Path("out"))
    assert told.startswith("fl-app experiment=benchmark data=mnist data.root=<data> ")
    assert told.endswith(" strategy.radius_scale=1.5 seed=4")
    (told,) = all_methods.commands(jobs, found, 3, Path("out"), Path("/my data"))
    assert "data.root='/my data'" in shlex.split(told)


def test_pages_without_any_result_can_be_written(tmp_path: Path) -> None:
    markdown = page.write_pages([], QUICK, 1, tmp_path)[0].read_text()
    assert "No cell has a result" in markdown
    assert "Seeds: none" in markdown
