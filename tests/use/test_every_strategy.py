"""For every option of conf/strategy: the folder of a run is enough to repeat its scores."""

from pathlib import Path

import pytest

from fl_app.composition import choices
from fl_app.config import option
from fl_app.one_run import run
from fl_app.records.history import read_rounds
from fl_app.use.evaluate import evaluate
from fl_app.use.run import load_run

TINY = ["rounds=3", "population.clients=6", "population.train_samples=40",
        "population.test_samples=20", "client.threads=1",
        "records.figures=false", "records.report=false", "tracking=none"]  # fmt: skip
POINTS = ["network=centroids", "population=iid"]
GROUPS = ["population=label_swap", "population.groups=2", "network=mlp", "client.batch_size=20"]
ALL = "strategy.participation=1.0"


def _overrides(name: str) -> list[str]:
    chosen = option(f"strategy={name}")
    method = chosen.resolve()
    points = getattr(method, "clusters_points", False)
    settings = [ALL] if "participation" in chosen.options else []
    if "cluster_round" in chosen.options:
        settings.append("strategy.cluster_round=2")
    if "restarts" in chosen.options:
        settings.append("strategy.restarts=0")
    if not points and name != "cfl":
        settings = [each.replace("1.0", "0.5") if name == "late" else each for each in settings]
    if getattr(method, "model_kind", "") == "mixture":
        settings.append("network=mixture")
    return [f"strategy={name}", *TINY, *(POINTS if points else GROUPS), *settings]


def _by_client(name: str) -> bool:
    """Whether the server learns the accuracy of each client, which masks hide."""
    return not getattr(option(f"strategy={name}").resolve(), "needs_masks", False)


@pytest.mark.parametrize("name", filter(_by_client, choices("strategy")))
def test_the_folder_repeats_what_was_recorded(name: str, tmp_path: Path) -> None:
    run(_overrides(name), tmp_path)
    last = read_rounds(tmp_path)[-1]
    found = evaluate(tmp_path, [])
    assert found["recorded"]["round"] == found["round"] == last["round"]
    assert found["recorded"]["largest_difference"] <= 1e-6
    assert last["accuracy"]["clients"].keys() == found["accuracy"]["clients"].keys()
    assert len(found["accuracy"]["clients"]) == 6
    assert set(load_run(tmp_path).clients) == set(range(6))
