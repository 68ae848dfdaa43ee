"""The notebook's cells run on a finished run, and it is committed executed."""

import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from fl_app.main import run

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "a_run.ipynb"
SMALL = ["rounds=4", "population.clients=6", "strategy.cluster_round=2", "client.epochs=1",
         "strategy.participation=1.0", "records.snapshot_rounds=[1]", "records.snapshots=0",
         "records.evaluate_every=2",
         "records.figures=false"]  # fmt: skip


def _cells() -> list[dict[str, Any]]:
    return [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]


def test_the_cells_run_on_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(SMALL, tmp_path / "run")
    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    names: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        for cell in _cells():
            exec("".join(cell["source"]), names)
    assert names["summary"]["status"] == "completed"
    assert [snapshot.round for snapshot in names["read_snapshots"](tmp_path / "run")] == [1, 2]
    assert len(names["models"]) == names["found"]["count"]
    assert set(names["gains"]) == {str(client) for client in range(6)}


def test_it_is_executed_small_and_of_no_machine() -> None:
    outputs = [cell["outputs"] for cell in _cells()]
    assert all(outputs[1:])
    assert sum("image/png" in o.get("data", {}) for each in outputs for o in each) == 2
    text = NOTEBOOK.read_text()
    assert len(text) < 200_000
    here = (NOTEBOOK.parents[2], Path.home(), Path(tempfile.gettempdir()))
    assert not any(f"{place}/" in text for place in here)
