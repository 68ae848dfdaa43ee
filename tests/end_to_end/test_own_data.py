"""Data as people have them, from a file to a run with natural clients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl_app import load_run
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run

SMALL = [
    "population=by_column", "population.clients=4", "strategy=fedavg", "strategy.participation=1.0",
    "rounds=6", "client.epochs=4", "client.learning_rate=0.3", "records.figures=false",
    "tracking=none",
]  # fmt: skip


def _hospitals(root: Path, *, draw: np.random.Generator) -> None:
    """Write patients of four hospitals; whether one is sick depends on age and ward."""
    lines = ["age,pressure,ward,hospital,sick"]
    for row in range(400):
        age, pressure, ward = draw.integers(20, 90), draw.normal(120, 10), draw.integers(3)
        risk = (age - 55) / 15 + (ward == 2) * 2 - 0.5
        sick = "yes" if risk > 0 else "no"
        shown = "" if row % 20 == 0 else f"{pressure:.1f}"
        lines.append(f"{age},{shown},{'ABC'[ward]},{'nesw'[row % 4]},{sick}")
    (root / "patients.csv").write_text("\n".join(lines) + "\n")


def _run(folder: Path, *overrides: str) -> dict[str, Any]:
    run([*SMALL, *overrides], folder / "run")
    found: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return found


def test_a_table_with_gaps_and_words_is_learnt_by_its_hospitals(tmp_path: Path) -> None:
    _hospitals(tmp_path, draw=np.random.default_rng(0))
    found = _run(
        tmp_path, "data=table", f"data.root={tmp_path}", "data.file=patients.csv",
        "data.label=sick", "data.client=hospital", "data.missing=median", "data.standardise=true",
        "network=mlp", "network.hidden=[16]",
    )  # fmt: skip
    assert found["status"] == "completed"
    assert found["clients"] == found["clients"] | {"total": 4, "failed": 0, "rejected": 0}
    assert found["accuracy"]["mean"] > 0.9


def test_no_rows_for_test_is_an_error_before_the_run(tmp_path: Path) -> None:
    _hospitals(tmp_path, draw=np.random.default_rng(0))
    given = ["data=table", f"data.root={tmp_path}", "data.file=patients.csv", "data.label=sick",
             "data.client=hospital", "data.missing=mean", "network=mlp"]  # fmt: skip
    load([*SMALL, *given], also=problems)
    with pytest.raises(ConfigError, match=r"must have samples for test .*got none in patients"):
        load([*SMALL, *given, "data.test_share=0"], also=problems)
    with pytest.raises(ConfigError, match=r"at least two classes .*, got 1 in patients; give data"):
        load([*SMALL, *given, "data.label=null"], also=problems)


def test_without_a_label_nothing_is_said_of_what_follows_from_it(tmp_path: Path) -> None:
    _hospitals(tmp_path, draw=np.random.default_rng(0))
    given = ["data=table", f"data.root={tmp_path}", "data.file=patients.csv", "data.missing=mean"]
    for also, told in (
        (["population=label_swap", "task=regression"], []),
        (["population=majority_class", "privacy=sample_dp"], []),
        (["population=by_column"], ["population=by_column needs data that name the client of"]),
        (["population=label_swap", "network=small_cnn"], ["a CNN needs images of shape"]),
    ):
        with pytest.raises(ConfigError) as error:
            load([*given, "network=mlp", *also], also=problems)
        starts = ("data must have at least two classes", *told)
        found = error.value.problems
        assert len(found) == len(starts)
        assert all(each.startswith(start) for each, start in zip(found, starts, strict=True))


def test_points_without_labels_need_a_population_without_classes(tmp_path: Path) -> None:
    _hospitals(tmp_path, draw=np.random.default_rng(0))
    given = ["data=table", f"data.root={tmp_path}", "data.file=patients.csv", "data.missing=mean"]
    points = ["network=centroids", "network.k=2", "strategy=kmeans"]
    load([*given, *points, "population=iid"], also=problems)
    with pytest.raises(ConfigError, match=r"label_swap needs data with one of at least 2 classes"):
        load([*given, *points, "population=label_swap"], also=problems)


def test_a_table_of_names_alone_is_named(tmp_path: Path) -> None:
    (tmp_path / "hollow.csv").write_text("age,sick\n")
    given = ["data=table", f"data.root={tmp_path}", "data.file=hollow.csv", "data.label=sick"]
    with pytest.raises(ConfigError, match=r"samples for training, got none in hollow; fill the"):
        load([*SMALL, *given, "population=iid", "network=mlp"], also=problems)


def _reviews(root: Path, *, draw: np.random.Generator) -> None:
    """Write reviews of four shops, one of whose words says whether they are good."""
    said = {"bad": ["awful", "poor", "Boring!"], "good": ["great", "Fine,", "lovely"]}
    lines = ["text,label,shop"]
    for row in range(400):
        label = ("bad", "good")[draw.integers(2)]
        words = [f"word{number}" for number in draw.integers(30, size=draw.integers(3, 9))]
        words.insert(draw.integers(3), str(draw.choice(said[label])))
        lines.append(f'"{" ".join(words)}",{label},shop{row % 4}')
    (root / "texts.csv").write_text("\n".join(lines) + "\n")


def test_texts_are_classified_by_their_shops(tmp_path: Path) -> None:
    _reviews(tmp_path, draw=np.random.default_rng(0))
    given = ["data=text", f"data.root={tmp_path}", "data.client=shop", "data.length=12",
             "network=text_classifier", "network.width=16", "client.learning_rate=1.0"]  # fmt: skip
    found = _run(tmp_path, *given)
    assert found["status"] == "completed"
    assert found["accuracy"]["mean"] > 0.9
    with pytest.raises(ConfigError, match=r"int64 in .*39, .*an embedding needs 40 rows \(netw"):
        load([*SMALL, *given, "network.vocabulary=39"], also=problems)


def test_texts_are_private_sample_by_sample(tmp_path: Path) -> None:
    _reviews(tmp_path, draw=np.random.default_rng(0))
    found = _run(
        tmp_path, "data=text", f"data.root={tmp_path}", "data.client=shop", "data.length=12",
        "network=text_classifier", "network.width=16", "privacy=sample_dp", "privacy.epsilon=30",
        "client.learning_rate=1.0",
    )  # fmt: skip
    assert found["status"] == "completed"
    assert found["accuracy"]["mean"] > 0.9


def test_integer_sequences_train_as_a_cohort_too(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    lines = ["label,text,who"]
    for row in range(200):
        label = int(draw.integers(3))
        tokens = [*draw.integers(100, 200, size=4), 1000 + label, *draw.integers(100, 200, size=3)]
        lines.append(f"{label},{' '.join(map(str, tokens))},{row % 4}")
    (tmp_path / "texts.csv").write_text("\n".join(lines) + "\n")
    given = ["data=text", f"data.root={tmp_path}", "data.client=who", "data.tokens=spaces",
             "data.length=8", "network=text_classifier", "client.learning_rate=1.0"]  # fmt: skip
    for cohort in ("single", "fused"):
        found = _run(tmp_path / cohort, *given, f"client.cohort={cohort}")
        assert found["accuracy"]["mean"] > 0.8, cohort


def _symptoms(root: Path, *, draw: np.random.Generator) -> None:
    """Write patients with two symptoms, which two of four hospitals record in reverse."""
    lines = ["heat,noise,pain,ward,fever,cough"]
    for row in range(600):
        heat, pain, noise = draw.normal(size=3)
        fever, cough = heat > 0.4, pain + heat > 0
        if row % 4 >= 2:
            fever, cough = not fever, not cough
        lines.append(f"{heat:.3f},{noise:.3f},{pain:.3f},{'nesw'[row % 4]},{fever:d},{cough:d}")
    (root / "symptoms.csv").write_text("\n".join(lines) + "\n")


def test_several_labels_are_learnt_and_scored_by_communities(tmp_path: Path) -> None:
    _symptoms(tmp_path, draw=np.random.default_rng(0))
    found = _run(
        tmp_path, "data=table", f"data.root={tmp_path}", "data.file=symptoms.csv",
        "data.label=[fever,cough]", "data.target=multilabel", "data.client=ward",
        "task=multilabel", "task.class_weights=balanced", "strategy=flic",
        "strategy.cluster_round=2", "network=mlp", "network.hidden=[16]",
    )  # fmt: skip
    assert found["status"] == "completed"
    assert found["clients"] == found["clients"] | {"total": 4, "failed": 0, "rejected": 0}
    groups = found["communities"]["assignment"]
    assert groups["0"] == groups["1"] != groups["2"] == groups["3"]
    assert found["accuracy"]["mean"] > 0.85
    assert found["metrics"]["f1"]["mean"] > 0.85

    right, columns = [], np.genfromtxt(tmp_path / "symptoms.csv", delimiter=",", skip_header=1)
    finished = load_run(tmp_path / "run")
    for client, ward in finished.client_names.items():
        rows = columns["nesw".index(ward) :: 4]
        with torch.inference_mode():
            answers = finished.model(client=client)(torch.from_numpy(rows[:, :3]).float())
        right.append(((answers > 0).numpy() == rows[:, 4:]).mean())
    assert np.mean(right) > 0.85
