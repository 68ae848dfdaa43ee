"""The same runs on three engines: what a deployment draws, and what its row compares."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import engines

from fl_app.compatibility import problems
from fl_app.config import load

PRIVATE = "ifca privacy=sample_dp"
BOOKED = {"epsilon": {"clients": {"0": 2.0}}, "answered": {"0": {"losses": True}}}


def run_of(out: Path, engine: str, privacy: object, assignment: dict[str, int]) -> None:
    folder = out / "ifca-privacy-sample_dp" / engine
    folder.mkdir(parents=True)
    summary = {
        "status": "completed", "accuracy": {"mean": 0.5}, "time": {"total_s": 1.0},
        "communities": {"sizes": [1], "assignment": assignment},
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "rounds.jsonl").write_text(json.dumps({"privacy": privacy}) + "\n")


@pytest.mark.parametrize(
    "name", ["ifca privacy=sample_dp", "flic cluster_round=auto privacy=sample_dp"]
)
def test_only_a_deployment_draws_noise_that_the_server_does_not_know(name: str) -> None:
    words = engines.cases()[name]
    assert engines.unkeyed(words, "deployment") == ["privacy.randomness=system"]
    assert engines.unkeyed(words, "simulation") == engines.unkeyed(words, "inprocess") == []
    assert engines.unkeyed(engines.cases()["ifca"], "deployment") == []
    for engine in engines.ENGINES:
        load([*words, *engines.unkeyed(words, engine), f"engine={engine}"])


@pytest.mark.parametrize("name", engines.cases())
def test_the_words_of_each_case_are_right(name: str) -> None:
    load(engines.cases()[name], also=problems)


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "apart", lambda ours, theirs: 0.0)


def test_a_deployment_with_a_privacy_is_compared_by_its_ledger_alone(tmp_path: Path) -> None:
    run_of(tmp_path, "inprocess", BOOKED, {"0": 0})
    run_of(tmp_path, "deployment", BOOKED, {"0": 1})
    deployed = list(engines.compared(PRIVATE, tmp_path))[2]
    told = "| [1] | yes | other noise; the ledger | 0.5000 | 1.0 |"
    assert deployed == f"| `{PRIVATE}` | deployment {told}"


@pytest.mark.parametrize(("engine", "at"), [("simulation", 1), ("deployment", 2)])
def test_a_ledger_that_lacks_an_answer_is_not_equal(tmp_path: Path, engine: str, at: int) -> None:
    run_of(tmp_path, "inprocess", BOOKED, {"0": 0})
    run_of(tmp_path, engine, {**BOOKED, "answered": {}}, {"0": 0})
    assert "| **no** |" in list(engines.compared(PRIVATE, tmp_path))[at]


def test_other_communities_of_a_keyed_run_are_not_equal(tmp_path: Path) -> None:
    run_of(tmp_path, "inprocess", BOOKED, {"0": 0})
    run_of(tmp_path, "simulation", BOOKED, {"0": 1})
    assert "| **no** | 0 |" in list(engines.compared(PRIVATE, tmp_path))[1]
