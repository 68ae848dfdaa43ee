"""Runs with `records.evaluate_at_most=0`, in which nothing of test data leaves a client."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import masked_runs
from carried_runs import APART, CARRIED, Watched, run

from fl_app.config import load
from fl_app.schema import ConfigError

NOBODY = "records.evaluate_at_most=0"
PRIVATE = ("strategy=fedavg", "privacy=local_dp", "privacy.noise_multiplier=8",
           "privacy.epsilon=1.2")  # fmt: skip


@pytest.mark.parametrize("how", [APART, CARRIED])
@pytest.mark.parametrize(
    "words",
    [
        ("strategy=flic", "strategy.cluster_round=2"),  # wants the accuracy before the clustering
        ("strategy=communities",),
        PRIVATE,  # ends when the budget is spent
    ],
    ids=["flic", "communities", "a spent budget"],
)
def test_no_client_evaluates(tmp_path: Path, words: tuple[str, ...], how: str) -> None:
    watched = Watched()
    records = run(tmp_path, *words, how, NOBODY, watched=watched)
    kinds = {kind for kind, _ in watched.seen}
    assert "train" in kinds
    assert "evaluate" not in kinds
    assert not sum(watched.attached.values())
    assert (len(records) < 4) is (words is PRIVATE)  # it ends when the budget is spent
    assert [each["accuracy"] for each in records] == [None] * len(records)


def test_no_client_evaluates_under_masks(tmp_path: Path) -> None:
    watched = masked_runs.Watched()
    records = masked_runs.run(tmp_path, watched, NOBODY)
    assert watched.seen
    assert not [kind for _, _, kind, _ in watched.seen if kind == "evaluate"]
    assert [each["accuracy"] for each in records] == [None, None]


def test_a_method_that_needs_scores_is_refused() -> None:
    with pytest.raises(ConfigError, match="evaluate_at_most must be null or 1 or more"):
        load(["strategy=kmeans", "network=centroids", NOBODY])
