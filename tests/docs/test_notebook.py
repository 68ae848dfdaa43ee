"""The notebooks' cells run on a finished run, and they are committed executed."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from fl_app.one_run import run

DOCS = Path(__file__).parents[2] / "docs"
RUN, USE = (DOCS / "notebooks" / f"{name}.ipynb" for name in ("a_run", "use"))
SMALL = ["rounds=4", "population.clients=6", "strategy.cluster_round=2", "client.epochs=1",
         "strategy.participation=1.0", "records.snapshot_rounds=[1]", "records.snapshots=0",
         "records.evaluate_every=2",
         "records.figures=false"]  # fmt: skip
QUICK = ["records.figures=false", "records.report=false", "tracking=none", "client.threads=1"]


def _cells(notebook: Path) -> list[dict[str, Any]]:
    return [c for c in json.loads(notebook.read_text())["cells"] if c["cell_type"] == "code"]


def _executed(notebook: Path) -> dict[str, Any]:
    """Return the names that the cells of a notebook define."""
    names: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        for cell in _cells(notebook):
            exec("".join(cell["source"]), names)
    return names


def test_the_cells_run_on_a_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(SMALL, tmp_path / "run")
    monkeypatch.setenv("RUN", str(tmp_path / "run"))
    names = _executed(RUN)
    assert names["summary"]["status"] == "completed"
    assert [snapshot.round for snapshot in names["read_snapshots"](tmp_path / "run")] == [1, 2]
    assert len(names["models"]) == names["found"]["count"]
    assert set(names["gains"]) == {str(client) for client in range(6)}


def test_models_are_used_as_the_page_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    page = (DOCS / "use.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python title=\"example.py\"\n(.*?)```", page, re.DOTALL)[1], {})  # type: ignore[index]
    command = re.search(r"```bash\nfl-app (.*?)hydra\.run\.dir=run\n", page, re.DOTALL)[1]  # type: ignore[index]
    run([*command.replace("\\\n", " ").split(), *QUICK], tmp_path / "run")
    capsys.readouterr()
    (tmp_path / "made").mkdir()
    made, real = str(tmp_path / "made"), tempfile.mkdtemp
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *given: real(*given) if given else made)
    names = _executed(USE)
    assert names["found"]["recorded"]["largest_difference"] == 0.0
    assert names["personal"].models == ("personal",)
    told = capsys.readouterr().out
    shown = "".join(o["text"] for c in _cells(USE) for o in c["outputs"] if "text" in o)
    same = [line for line in shown.splitlines() if line.startswith(("models", "client "))]
    assert len(same) == 5
    assert all(line in told for line in same)


@pytest.mark.parametrize(("notebook", "pictures"), [(RUN, 2), (USE, 1)])
def test_it_is_executed_small_and_of_no_machine(notebook: Path, pictures: int) -> None:
    outputs = [cell["outputs"] for cell in _cells(notebook)]
    assert all(outputs[1:])
    assert sum("image/png" in o.get("data", {}) for each in outputs for o in each) == pictures
    text = notebook.read_text()
    assert len(text) < 200_000
    here = (notebook.parents[2], Path.home(), Path(tempfile.gettempdir()))
    assert not any(f"{place}/" in text for place in here)
