"""The code of the documentation's pages is run as it stands there."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from fl_app.one_run import run

PAGES = Path(__file__).parents[2] / "docs" / "extend"
QUICK = ["client.epochs=2", "population.train_samples=80", "population.test_samples=20",
         "records.figures=false", "tracking=none"]  # fmt: skip
"""What a page leaves at its default and a test need not wait for."""


def _code(page: str) -> tuple[str, str]:
    """Return name and text of the file that a page shows."""
    found = re.findall(r'```python title="(\w+\.py)"\n(.*?)```', page, re.DOTALL)
    assert len(found) == 1
    return found[0]


def _overrides(page: str) -> list[str]:
    """Return what the page's command gives to scripts/run."""
    (command,) = re.findall(r"```bash\n(PYTHONPATH=\. .*?)```", page, re.DOTALL)
    path, script, *overrides = shlex.split(command.replace("\\\n", " "))
    assert (path, script) == ("PYTHONPATH=.", "scripts/run")
    return overrides


def _results(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a page's command with the page's file, and return the summary with the rounds."""
    text = (PAGES / page).read_text()
    name, code = _code(text)
    (folder / name).write_text(code)
    monkeypatch.syspath_prepend(folder)
    try:
        run([*_overrides(text), *QUICK], folder / "run")
    finally:
        sys.modules.pop(name.removesuffix(".py"), None)
    rounds = [json.loads(line) for line in (folder / "run/rounds.jsonl").read_text().splitlines()]
    return json.loads((folder / "run/summary.json").read_text()) | {"records": rounds}


def test_the_method_finds_the_planted_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _results("method.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["communities"]["sizes"] == [3, 3, 3]
    assert found["communities"]["ari"] == 1.0
    checkpoint = load_file(tmp_path / "run" / "checkpoint" / "checkpoint.safetensors")
    assert checkpoint["graph.stored.vectors"].shape[0] == 9


def test_the_distance_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("distance.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["communities"]["count"] > 1


def test_the_attack_reaches_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("attack.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["records"][-1]["attack"]["recall"] is not None


def test_the_learner_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("learner.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["accuracy"]["mean"] > 0.6  # SGD comes to 0.13 at this learning rate


def test_the_state_stays_with_each_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("state.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    for client in range(4):
        kept = np.load(tmp_path / "run" / "clients" / str(client) / "3.npz")
        assert {name: kept[name].tolist() for name in kept} == {"rounds": [3.0]}


def test_the_data_are_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("dataset.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["accuracy"]["mean"] > 0.4  # of four classes


def test_the_partitions_of_a_flower_project_are_clients_and_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _results("flower.md", tmp_path, monkeypatch)
    assert found["clients"]["names"] == {str(k): str(k) for k in range(6)}
    assert found["communities"]["assignment"] == {str(k): k % 2 for k in range(6)}
    assert found["accuracy"]["mean"] > 0.9


def test_the_population_has_the_groups_that_it_plants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _results("population.md", tmp_path, monkeypatch)
    assert found["communities"]["sizes"] == [4, 4]
    assert found["communities"]["ari"] == 1.0


def test_the_loss_trains_and_the_metric_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _results("task.md", tmp_path, monkeypatch)
    assert found["accuracy"]["mean"] > 0.6
    assert 0 < found["metrics"]["worst_recall"]["mean"] < found["accuracy"]["mean"]


def test_every_page_shows_one_file_and_its_command() -> None:
    pages = sorted(PAGES.glob("*.md"))
    assert len(pages) == 11
    for page in pages:
        if page.name != "index.md":
            assert _code(page.read_text())[0] in page.read_text()
            assert "rounds=" in " ".join(_overrides(page.read_text()))


def test_the_network_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _results("network.md", tmp_path, monkeypatch)
    assert found["status"] == "completed"
    assert found["clients"]["failed"] == 0
    assert found["accuracy"]["mean"] > 0.3  # of ten classes
