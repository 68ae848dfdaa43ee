"""A resumed run, also with more clients, serves what it evaluated last."""

from pathlib import Path

import pytest
import yaml

from fl_app import one_run
from fl_app.use.evaluate import evaluate
from fl_app.use.run import load_run

TINY = ["rounds=2", "population.clients=4", "population.groups=2", "population.train_samples=40",
        "population.test_samples=20", "network.width=0.25", "strategy.participation=0.5",
        "records.figures=false", "records.report=false", "tracking=none",
        "client.threads=1"]  # fmt: skip


@pytest.mark.parametrize("name", ["ifca", "communities_wnn"])
def test_more_rounds_and_clients_are_served(name: str, tmp_path: Path) -> None:
    given = ["strategy.restarts=0"] if name == "ifca" else []
    one_run.run([f"strategy={name}", *given, *TINY], tmp_path)
    one_run.resume(tmp_path, ["rounds=4", "population.clients=6"])
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["population"]["clients"] == 6
    found = evaluate(tmp_path, [])
    assert found["recorded"] == {"round": 4, "largest_difference": 0.0}
    clients = load_run(tmp_path).clients
    assert sorted(clients) == list(range(6))
    one_run.resume(tmp_path, [])  # it has nothing to do, and forgets no choice
    assert load_run(tmp_path).clients == clients


def test_a_run_that_stopped_after_its_evaluation_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from fl_app.use.commands import evaluate as command

    one_run.run(["strategy=fedavg", *TINY], tmp_path)
    serving = (tmp_path / "serving.json").read_text()
    (tmp_path / "serving.json").write_text(serving.replace('"round": 2', '"round": 3'))
    command([str(tmp_path)])
    assert "the last evaluation was after round 2, and the models are those after round 3" in (
        capsys.readouterr().out
    )
