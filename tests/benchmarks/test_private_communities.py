"""The table of communities under DP-SGD: its cells, its theory and its page."""

import sys
from math import inf
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import private_cells
import private_page
from runs import PUBLISHED

from fl_app.config import load

GOOD = {"count": 3, "ari": 1.0, "before": 0.6, "accuracy": 0.9, "noise": 2.0}


def test_every_cell_is_a_sound_configuration_of_its_own() -> None:
    asked = private_cells.cells()
    assert len(asked) == len(set(asked))
    assert asked[:5] == [("label swap", "flic, contrast", 2.0, 4500, seed) for seed in range(5)]
    for setting in (private_cells.MAIN, private_cells.PAPER, *private_cells.OTHERS):
        mine = next(case for case in asked if case[0] == setting)
        rounds = 60 if setting == private_cells.PAPER else private_cells.ROUNDS
        assert load(private_cells.words(*mine)).rounds == rounds


@pytest.mark.parametrize("setting", [private_cells.MAIN, private_cells.PAPER])
@pytest.mark.parametrize("method", private_cells.EVERY)
def test_methods_have_contrast_as_their_names_say(setting: str, method: str) -> None:
    """In spite of the words of all runs, methods as published, which come first."""
    config = load([*PUBLISHED, *private_cells.words(setting, method, 2.0, 4500, 0)])
    assert config.graph.contrast is ("contrast" in method)


def test_noise_beside_signal_is_that_of_a_worked_example() -> None:
    # 2 * sqrt(400) / (10 * sqrt(10 steps)) = 40 / 31.62
    assert private_cells.noise_share(2.0, 10, 400) == pytest.approx(1.264911, abs=1e-6)
    assert private_cells.noise_share(2.0, 20, 400) == private_cells.noise_share(1.0, 10, 400)


def test_the_page_tells_results_refusals_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_page, "FIGURE", tmp_path / "figure.png")
    found = [
        {"case": ["label swap", "flic, contrast", 2.0, 4500, 0], **GOOD},
        {"case": ["label swap", "flic, contrast", 2.0, 4500, 1], **GOOD, "ari": 0.5},
        {"case": ["CIFAR-10", "ifca", inf, 450, 0], "refused": "why", "ari": None,
         "accuracy": None},
    ]  # fmt: skip
    lines = private_page.page(found)
    assert "| 0 | 3 | 1.00 | 0.600 | 0.900 |" in lines
    share = f"{private_cells.noise_share(2.0, 450, 25_450):.2f}"
    told = f"| label swap | 2 | 4,500 | {share} |  | flic, contrast | 0, 1 | 3, 3 | 1.00, 0.50 |"
    assert any(line.startswith(told) for line in lines)
    assert "| CIFAR-10 | inf | 450 |  |  | ifca | 0 |  |  | refused: why |" in lines
    assert any(
        line.startswith(
            "- rotation, epsilon inf, 4,500 samples: seed 0: flic, contrast; flic; ifca"
        )
        for line in lines
    )
    claim = {**GOOD, "case": ["label swap", "fedavg", 10.0, 4500, 2], "count": 1, "ari": None}
    told = "| label swap | fedavg | 2 | 1 |  | 0.900 | 0.900 |"
    assert told in private_page.page([claim])
    assert (tmp_path / "figure.png").stat().st_size > 0


@pytest.mark.parametrize(("dcfl", "cfl", "holds"), [(0.8, 0.7, True), (0.701, 0.7, False)])
def test_the_claim_needs_differences_above_the_margin(dcfl: float, cfl: float, holds: bool) -> None:
    means = {"dcfl": dcfl, "cfl_clusters": cfl, "fedavg": 0.6}
    assert private_page.as_claimed(means) == holds
    assert not private_page.as_claimed({**means, "fedavg": cfl})


def test_the_order_of_means_tells_what_is_equal_to_three_digits() -> None:
    means = {"fedavg": 0.652, "dcfl": 0.778, "cfl": 0.6522}
    assert private_page.order(means) == "dcfl > cfl = fedavg"


def test_share_of_the_signal_is_that_of_a_worked_example() -> None:
    # the groups' means are 30, 0 and -30 along one axis: sqrt((900 + 0 + 900) / 3) = 24.494897
    vectors = np.array([[33.0, 0], [0, 3.0], [-30.0, 0], [27.0, 0], [0, -3.0], [-30.0, 0]])
    assert private_cells.LARGEST == 50.0  # 0.5 * 10 steps * 10 rounds
    assert private_cells.group_share(vectors) == pytest.approx(24.494897 / 50)


def test_mean_cosine_is_that_of_a_worked_example() -> None:
    # 10 rounds: 10 * 0.06^2 / (10 * 0.06^2 + 0.3^2) = 0.036 / 0.126
    assert private_cells.mean_cosine(0.06, 0.3) == pytest.approx(0.285714, abs=1e-6)
    assert private_cells.mean_cosine(0.06, 0.0) == 1.0
    assert private_cells.mean_cosine(0.0, 0.0) == 0.0


def test_the_page_tells_the_limits_of_the_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_page, "FIGURE", tmp_path / "figure.png")
    quiet = {"case": ["label swap", "flic, contrast", inf, 4500, 0], **GOOD, "noise": 0.0}
    # noise_share(sigma, 450, 25,450) = 0.112107 sigma; 159.53 * 0.036 / (0.036 + 0.050272 or more)
    found = [
        {**quiet, "share": 0.06},
        {"case": ["label swap", "flic, contrast", 2.0, 4500, 0], **GOOD},
        {"case": ["label swap", "flic, contrast", 1.0, 4500, 0], **GOOD, "noise": 4.0, "ari": 0.5},
        {"case": ["label swap", "flic, contrast", 0.5, 4500, 0], **GOOD, "noise": 8.0, "ari": 0.0},
    ]
    told = " ".join(private_page.page(found))
    assert "Of 3 runs of `flic, contrast` with noise" in told
    assert "at least 66.6 find exactly the groups, those with at most 6.8 find none" in told
    assert "and the 1 between them" in told
    assert "| label swap | 1 | 4,500 | 0.45 | 24.2 | flic, contrast | 0 | 3 | 0.50 |" in told
