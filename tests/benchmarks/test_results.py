"""The results of a benchmark: kept line by line, continued, and written as a page."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import contrast
import contrast_methods
import huge_population
import kmeans
import never_worse
import private_communities
import private_page
import ray_cluster
import results
import secure
import secure_communities


def test_results_survive_a_line_that_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "new" / "results.jsonl"
    first, second = {"case": ["flux"], "accuracy": 0.5}, {"case": ["fedavg"], "accuracy": 0.25}
    results.append(log, first)
    with log.open("a") as file:
        file.write(json.dumps(second)[:20])
    assert results.read(log) == [first]
    results.append(log, second)
    assert results.read(log) == [first, second]
    assert results.read(tmp_path / "none.jsonl") == []


def test_only_missing_cases_are_measured_and_each_is_kept_at_once(tmp_path: Path) -> None:
    log, asked = tmp_path / "log.jsonl", list[results.Case]()
    results.append(log, {"case": ["a", 1, float("inf")], "value": 7})

    def measure(case: results.Case) -> results.Found:
        asked.append(case)
        if case[0] == "c":
            raise KeyboardInterrupt
        return {"value": len(results.read(log))}

    cases: list[results.Case] = [("a", 1, float("inf")), ("b", 2, 0.5), ("c", 3, 0.5)]
    with pytest.raises(KeyboardInterrupt):
        results.measure_missing(cases, measure, log)
    assert asked == cases[1:]
    assert [each["value"] for each in results.read(log)] == [7, 1]


def test_after_its_minutes_nothing_is_measured(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    results.measure_missing([("a",)], lambda case: {}, log, minutes=-1)
    assert not log.exists()


@pytest.mark.parametrize(
    ("benchmark", "pages", "words"),
    [
        (kmeans, "RESULTS", "tables --data {0} --out {0}/none --write"),
        (kmeans, "RESULTS", "participation --data {0} --out {0}/none --write"),
        (ray_cluster, "PAGE", "--out {0}/none.jsonl --page"),
    ],
)
def test_a_page_without_results_stays_as_it_is(
    benchmark: ModuleType, pages: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "results"
    monkeypatch.setattr(benchmark, pages, place)
    monkeypatch.setattr(sys, "argv", ["benchmark", *words.format(tmp_path).split()])
    monkeypatch.setattr(ray_cluster.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit, match="which is not there; the page stays as it is"):
        benchmark.main()
    assert not place.exists()


def test_a_population_has_enough_clients_for_its_hundredth(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["huge_population.py", "--clients", "9999"])
    with pytest.raises(SystemExit):
        huge_population.main()
    assert "--clients must be at least 10000, got 9999" in capsys.readouterr().err


def test_the_page_has_what_was_measured_before_and_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    results.append(page.with_suffix(".jsonl"), {"case": [1], "square": 1})
    monkeypatch.setattr(sys, "argv", ["page.py", "--data", "there", "--out", str(tmp_path / "out")])

    def measure(number: int, *, data: Path, out: Path) -> results.Found:
        assert (data.is_absolute(), data.name, out.is_dir()) == (True, "there", True)
        return {"square": number**2}

    def lines(found: list[results.Found]) -> list[str]:
        return [f"{each['case'][0]} {each['square']}" for each in found]

    results.write_page("about", page, lambda: [(1,), (3,)], measure, lines, data=True)
    assert page.read_text() == "1 1\n3 9\n"


@pytest.mark.parametrize(
    ("benchmark", "cases"),
    [
        (contrast, contrast.cases()), (contrast_methods, contrast_methods.cases()),
        (never_worse, never_worse.wanted()), (private_communities, private_communities.cells()),
        (secure, secure.cells()), (secure_communities, secure_communities.cells()),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)  # fmt: skip
def test_a_page_can_be_written_of_any_part_of_the_results(
    benchmark: Any, cases: list[results.Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a figure in the checkout would make it differ from its commit while other tests look
    monkeypatch.setattr(private_page, "FIGURE", tmp_path / "figure.png")
    log = benchmark.PAGE.with_suffix(".jsonl")
    found = results.read(log)
    assert set(results.by_case(found)) <= set(cases)
    for some in ([], found[:1], found):
        assert benchmark.page(some)[0]
