"""The tables of attackers: what is seen of updates, what is kept of a run, and the page."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_app.config import load
from fl_app.strategies.cfl import Cfl

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import attack_page
import attack_tables
import update_cosines

COSINES = np.array(
    [
        [1.0, 0.8, -0.2, 0.0],
        [0.8, 1.0, -0.4, 0.1],
        [-0.2, -0.4, 1.0, 0.5],
        [0.0, 0.1, 0.5, 1.0],
    ]
)
PROBE = "150 samples in batches of 25"
SEEN = {
    "loyal": 0.4, "malicious": 0.2, "across": -0.1, "alpha_cross": 0.1, "loyal_norm": 0.1,
    "malicious_norm": 0.3, "mean_norm": 0.05, "attackers": 6, "parted": 6, "caught": 6,
}  # fmt: skip


def test_a_look_has_the_cosines_within_and_across_and_the_bipartition() -> None:
    shifted = COSINES + 1.0 - 2.0 * np.eye(4)
    norms = np.array([1.0, 1.0, 2.0, 2.0])
    found = update_cosines.look(shifted, norms, np.array([False, False, True, True]))
    assert found["loyal"] == pytest.approx(0.8)
    assert found["malicious"] == pytest.approx(0.5)
    assert found["across"] == pytest.approx((-0.2 + 0.0 - 0.4 + 0.1) / 4)
    assert found["closest"] == pytest.approx(0.1)
    assert found["alpha_cross"] == pytest.approx(0.1)
    assert (found["attackers"], found["parted"], found["caught"]) == (2, 2, 2)
    assert (found["loyal_norm"], found["malicious_norm"]) == (1.0, 2.0)
    # |sum|^2 = 1 + 1 + 4 + 4 + 2 (0.8 + 4 * 0.5 + 2 (-0.2 + 0.0 - 0.4 + 0.1)) = 13.6
    assert found["mean_norm"] == pytest.approx(13.6**0.5 / 4)


def test_a_look_without_attackers_has_no_pairs_across() -> None:
    shifted = COSINES + 1.0 - 2.0 * np.eye(4)
    found = update_cosines.look(shifted, np.ones(4), np.zeros(4, bool))
    assert found["across"] is found["closest"] is found["malicious"] is None
    assert found["malicious_norm"] is None
    assert (found["attackers"], found["caught"]) == (0, 0)


def test_a_federation_is_looked_at_in_each_round_and_left_as_it_was(tmp_path: Path) -> None:
    split = Cfl._split
    with update_cosines.looking({0}) as looks:
        attack_tables.run(
            ["strategy=cfl", "population=iid", "population.clients=3", "rounds=2",
             "population.train_samples=20", "population.test_samples=10", "client.epochs=1",
             "strategy.alpha_threshold=-0.99", "engine.workers=1"],
            tmp_path, attack_tables.app,
        )  # fmt: skip
    assert [each["round"] for each in looks] == [1, 2]
    assert all(each["attackers"] == 1 and -1 <= each["alpha_cross"] <= 1 for each in looks)
    assert Cfl._split is split


def _record(number: int, phase: str, loyal: float | None, recall: float) -> dict[str, Any]:
    attack = {
        "loyal_accuracy": loyal, "recall": recall, "loyal_lost": 1, "pure_share": 0.5,
        "loyal_sizes": [7],
    }  # fmt: skip
    accuracy = None if loyal is None else {"mean": loyal - 0.1}
    return {"round": number, "phase": phase, "accuracy": accuracy, "attack": attack}


def test_the_scores_are_the_last_ones_and_those_before_the_clustering() -> None:
    records = [
        _record(1, "federated", 0.3, 0.0),
        _record(2, "federated", 0.4, 0.5),
        _record(3, "clustered", None, 1.0),
        _record(4, "clustered", 0.9, 1.0),
    ]
    assert attack_tables.scores(records) == {
        "accuracy": pytest.approx(0.8), "loyal": 0.9, "recall": 1.0, "loyal_lost": 1,
        "cleared": 3, "before": 0.4, "pure": 0.5, "sizes": [7],
    }  # fmt: skip
    assert set(attack_tables.scores([]).values()) == {None}


def test_every_kind_of_case_is_a_sound_configuration() -> None:
    asked = attack_tables.cases()
    assert len(asked) == len(set(asked)) == 6 + 3 * (2 * 4 * 2 + 4)
    for case in [
        *asked[:7],
        ("flic", 0.3, 0),
        ("flic", 0.6, 2),
        ("cfl", "fashion_mnist", "none", "cfl", 1),
    ]:
        config = load(attack_tables.words(*case))
        options = config.population.options
        if case[0] == "flic":
            assert config.rounds == (150 if case[1] == 0.6 else 300)
        small = case[0] == "why" and case[1].startswith("150")
        assert options["train_samples"] == (150 if small else 600)


def test_the_page_has_means_over_seeds_beside_the_paper() -> None:
    cfl = {"loyal": 0.9, "recall": 1.0, "loyal_lost": 0, "cleared": 5}
    flic = {"before": 0.2, "loyal": 0.9, "pure": 1.0, "sizes": [70]}
    found = [
        {"case": ["cfl", "mnist", "noisy", "cfl", 0], "accuracy": 0.5, **cfl},
        {"case": ["cfl", "mnist", "noisy", "cfl", 1], "accuracy": 0.7, **cfl, "cleared": None},
        {"case": ["cfl", "fashion_mnist", "none", "cfl", 0], "accuracy": None, **cfl},
        {"case": ["why", PROBE], "looks": [{"round": 1, **SEEN}]},
        {"case": ["flic", 0.5, 0], **flic},
    ]
    lines = attack_page.page(found)
    assert (
        "| mnist | noisy | cfl | 2 | 0.600 ± 0.100 | 0.900 ± 0.000 | 1.000 ± 0.000 | 0.0 ± 0.0 "
        "| 5, never | 0.974 |" in lines
    )
    assert "| fashion_mnist | none | cfl | 1 | None |  |  |  |  |  |" in lines
    assert "| 50% | 1 | 0.200 | 0.900 | 1.000 | 70 | 0.91 |" in lines
    assert any(line.startswith(f"| {PROBE} | 0.400 | 0.200 | -0.100 |") for line in lines)


def test_the_explanation_names_the_first_round_below_the_threshold() -> None:
    looks = [{"round": number, **SEEN} for number in (1, 2, 3)]
    looks[1] |= {"alpha_cross": 0.0}
    looks[2] |= {"alpha_cross": 0.2, "parted": 1, "caught": 1}
    cells = attack_page.explained(looks)
    assert cells[3:7] == ["0.100", "0.000", "2", "2 of 3"]
    looks[1] |= {"alpha_cross": attack_page.THRESHOLD}
    assert attack_page.explained(looks)[5] == "never"


def test_diverged_runs_are_counted_in_a_mean() -> None:
    assert attack_page.spread([0.5, None]) == "0.500 (1 of 2)"
    assert attack_page.spread([None]) == "None"
    assert attack_page.spread([]) == ""
