"""What a run says of the models that it leaves."""

import json
from pathlib import Path

import pytest

from fl_app.records.serving import no_better_than_chance


@pytest.mark.parametrize(
    ("answers", "classes", "accuracy", "told"),
    [
        ("classification", 10, 0.126, True),
        ("classification", 10, 0.151, False),
        ("classification", 2, 0.54, True),
        ("classification", 2, 0.56, False),
        ("classification", 1, 1.0, False),
        ("regression", 1, 0.0, False),
    ],
)
def test_an_accuracy_near_that_of_guessing_is_told(
    tmp_path: Path, answers: str, classes: int, accuracy: float, told: bool
) -> None:
    served = {"version": 2, "clients": {}, "answers": answers, "classes": classes}
    (tmp_path / "serving.json").write_text(json.dumps(served))
    found = no_better_than_chance(tmp_path, accuracy)
    assert (found is not None) is told
    assert found is None or f"{1 / classes:.3f} with {classes} classes" in found


@pytest.mark.parametrize(
    ("models", "told"), [(["community_0"], True), (["community_0", "community_1"], False)]
)
def test_communities_are_advised_where_one_model_guesses(
    tmp_path: Path, models: list[str], told: bool
) -> None:
    served = {"version": 2, "models": models, "answers": "classification", "classes": 2}
    (tmp_path / "serving.json").write_text(json.dumps({"clients": {}} | served))
    found = no_better_than_chance(tmp_path, 0.5) or ""
    assert found.endswith("but communities can.") is told
    assert found.startswith("This is no better than chance, 0.500 with 2 classes")


def test_nothing_is_told_of_a_run_without_its_models(tmp_path: Path) -> None:
    assert no_better_than_chance(tmp_path, 0.1) is None
