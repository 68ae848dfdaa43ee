"""A damaged file of an output folder is named, whatever is wrong with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl_app.records.models import read_model, read_models
from fl_app.records.newcomers import read_first, read_newcomers
from fl_app.records.reading import read_config, read_overrides
from fl_app.records.serving import read_serving
from fl_app.records.summary import read_summary

READERS: dict[str, Callable[[Path], Any]] = {
    "summary.json": read_summary,
    "serving.json": read_serving,
    "newcomers.json": read_newcomers,
    "first_clients.json": read_first,
    "config.yaml": read_config,
    "overrides.yaml": read_overrides,
    "models.safetensors": read_models,
}
DAMAGES: dict[str, Callable[[Path], Any]] = {
    "garbage": lambda path: path.write_bytes(b"\x00\xff\xfe{]" * 20),
    "half": lambda path: path.write_text('{"version": [1, 2'),
    "empty": lambda path: path.write_text(""),
    "null": lambda path: path.write_text("null"),
    "numbers": lambda path: path.write_text("[1, 2]"),
    "a folder": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_named_with_a_remedy(tmp_path: Path, name: str, damage: str) -> None:
    DAMAGES[damage](tmp_path / name)
    with pytest.raises(ValueError, match=rf"{name} must be .*; copy the folder again"):
        READERS[name](tmp_path)


def test_a_missing_file_of_models_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"models.safetensors must be the models of a run"):
        read_model(tmp_path, "global")


def test_what_is_whole_is_read(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "completed"}')
    (tmp_path / "overrides.yaml").write_text("- rounds=3\n")
    (tmp_path / "config.yaml").write_text("rounds: 3\n")
    assert read_summary(tmp_path) == {"status": "completed"}
    assert read_overrides(tmp_path) == ["rounds=3"]
    assert read_config(tmp_path) == {"rounds": 3}


def test_absent_files_are_no_damage(tmp_path: Path) -> None:
    assert read_summary(tmp_path) is None
    assert read_serving(tmp_path) is None
    assert read_newcomers(tmp_path) == {}
    assert read_first(tmp_path) == set()
    assert read_overrides(tmp_path) is None
    assert read_config(tmp_path) == {}
