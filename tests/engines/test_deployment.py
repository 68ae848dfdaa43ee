"""What a deployment says before it starts anything."""

import json
from pathlib import Path

import pytest

from fl_app import deploy, one_run
from fl_app.config import ConfigError
from fl_app.engines import federation_lock
from fl_app.engines.deployment import Order, run_deployment
from fl_app.engines.processes import ProcessError


def _order(folder: Path) -> Order:
    return Order(
        app=folder,
        overrides="",
        composed=str,
        folder=folder / "run",
        restarts=0,
        log=folder / "flower.log",
        on_tick=lambda: None,
    )


def test_a_folder_for_the_federation_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^engine[.]folder must be one into which files can"):
        run_deployment(_order(tmp_path), nodes=1, warm=False, folder=tmp_path / "file" / "f")


def test_a_run_has_no_federation_of_its_own_where_another_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with federation_lock.file_of(tmp_path).open("w") as keeper:
        assert federation_lock.lock(keeper)
        keeper.write(json.dumps({"pid": 5, "up": True, "nodes": [0], "mark": "x"}))
        keeper.flush()
        monkeypatch.setattr(federation_lock, "_TRIES", 1)
        told = r"scripts/deploy up runs \(process 5\); run on it with scripts/deploy run --folder "
        with pytest.raises(ProcessError, match=told):
            run_deployment(_order(tmp_path), nodes=1, warm=False, folder=tmp_path)
        where = ["engine=deployment", f"engine.folder={tmp_path}"]
        with pytest.raises(ConfigError, match=told):
            one_run.run(["strategy=fedavg", *where], tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["federation.pid"]


def test_two_runs_do_not_share_the_folder_of_their_federations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with federation_lock.held_by_run(tmp_path, "mark"):
        assert "that of a run runs (process" in str(federation_lock.problem(tmp_path))
        for action, status in {"up": 1, "keep": 1, "status": 3, "down": 1}.items():
            assert deploy.main([action, "--folder", str(tmp_path)]) == status
    assert capsys.readouterr().out.count("a run has a federation of its own in") == 4
    assert federation_lock.problem(tmp_path) is None
