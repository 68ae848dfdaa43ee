"""The same configuration and seed on every engine: same communities, same model.

The ServerApp of the deployment is killed after the first round: the run goes on by itself.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import door

from fl_app.engines.flower import Connection
from fl_app.engines.processes import Supervisor
from fl_app.engines.simulation import NOT_STARTED, _start_superlink
from fl_app.records import run_state
from fl_app.records.checkpoint import read
from fl_app.records.history import read_rounds
from fl_app.records.models import read_models
from fl_app.records.newcomers import read_newcomers
from fl_app.types import ENGINES
from fl_app.use.run import load_run

pytestmark = pytest.mark.waits

REPO = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
SHORT = ["rounds=3", "strategy.cluster_round=2", "records.evaluate_every=3"]
SHORT += ["records.checkpoint_every=1", "records.figures=false", "records.report=false"]
ATTACK = ["attack=minus_grad", "attack.clients=[0]", "attack.start=3"]
"""In the last round, when the communities stand: it must turn the same update on every engine."""
KILLED = Path("/proc/self/environ").exists()
"""Whether the ServerApp of the deployment can be found and killed."""
OWN = {
    "conf/network/own.yaml": "_target_: own_network.made\nwidth: 1.0\n",
    "own_network.py": "from own_parts import small_cnn as made\n",
    "own_parts.py": (
        "from torch import nn\n"
        "from fl_app.client import networks\n"
        "def small_cnn(shape, classes, *, width: float):\n"
        "    plain = networks.small_cnn(shape, classes, width=width)\n"
        "    return nn.Sequential(nn.BatchNorm2d(shape[0]), plain)\n"
    ),
}
"""Files of a user, in the folder in which the runs are started."""
OURS = "inprocess"
RECIPE = [
    "client.batch_norm=local", "client/optimizer=adam", "client.optimizer.lr=0.003",
    "client/scheduler=cosine", "client.epochs={low: 2, high: 5, share: 0.5}",
    "+task.metrics.f1._target_=torchmetrics.classification.MulticlassF1Score",
]  # fmt: skip


def _serverapps(folder: Path) -> list[int]:
    """Return the ServerApp processes of the federation in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            named = b"flwr-serverapp" in (entry / "cmdline").read_bytes()
            if named and os.fsencode(folder) in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has ended
            continue
    return found


def _until_round(number: int, run: door.Opened, folder: Path) -> None:
    """Wait until a run in this folder has recorded so many rounds."""
    rounds, deadline = folder / "rounds.jsonl", time.monotonic() + 300
    while not rounds.exists() or rounds.read_text().count("\n") < number:
        assert not run.ended(), run.said()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _kill_serverapp(run: door.Opened, folder: Path) -> None:
    """Kill the ServerApp of a run in this folder once its first round is recorded."""
    _until_round(1, run, folder)
    (pid,) = _serverapps(folder)
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("engines")
    for name, text in OWN.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    found = {}
    for engine in ENGINES:
        folder = top / engine
        words = ["experiment=federation_demo", "--config-dir", "conf", "network=own"]
        words += [f"engine={engine}", f"hydra.run.dir={folder}", *SHORT, *ATTACK, *RECIPE]
        run = door.Opened(words, top)
        if engine == "deployment" and KILLED:
            _kill_serverapp(run, folder)
        done = run.wait()
        assert done.returncode == 0, f"{engine}: {done.stdout}{done.stderr}"
        found[engine] = folder
    return found


@pytest.mark.skipif(not KILLED, reason="finds processes by /proc")
def test_a_killed_serverapp_was_replaced(folders: dict[str, Path]) -> None:
    summary = json.loads((folders["deployment"] / "summary.json").read_text())
    assert (summary["status"], summary["rounds"], summary["restarts"]) == ("completed", 3, 1)
    events = [event for line in read_rounds(folders["deployment"]) for event in line["events"]]
    assert [event["kind"] for event in events].count("restarted") == 1


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_communities_and_models_equal_those_of_the_inprocess_engine(
    folders: dict[str, Path], engine: str
) -> None:
    ours, theirs = (
        json.loads((folders[name] / "summary.json").read_text()) for name in ("inprocess", engine)
    )
    assert theirs["status"] == "completed"
    assert theirs["engine"] == engine
    assert ours["communities"] == theirs["communities"]
    assert ours["communities"]["assignment"] == {"0": 0, "1": 1, "2": 0}
    largest = max(
        float(np.abs(first[name] - second[name]).max())
        for first, second in zip(
            read_models(folders["inprocess"]), read_models(folders[engine]), strict=True
        )
        for name in first
    )
    print(f"{engine}: largest parameter difference {largest:.3g}")
    assert largest <= TOLERANCE


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_every_round_samples_the_same_clients_and_nobody_fails(
    folders: dict[str, Path], engine: str
) -> None:
    lines = {
        name: [
            json.loads(line)
            for line in (folders[name] / "rounds.jsonl").read_text().split("\n")[:-1]
        ]
        for name in ("inprocess", engine)
    }
    for ours, theirs in zip(lines["inprocess"], lines[engine], strict=True):
        assert ours["sampled"] == theirs["sampled"]
        assert theirs["failed"] == theirs["rejected"] == {}
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
        assert theirs["attack"]["malicious"] == 1
        assert ours["attack"] == theirs["attack"]
    ours, theirs = lines["inprocess"][-1], lines[engine][-1]
    assert ours["accuracy"]["clients"] == pytest.approx(theirs["accuracy"]["clients"], abs=1e-6)
    f1 = ours["metrics"]["f1"]["clients"]
    assert f1 == pytest.approx(theirs["metrics"]["f1"]["clients"], rel=1e-6)
    assert len(f1) == 3


@pytest.mark.timeout(1800)
def test_one_step_of_federated_kmeans_is_the_same_as_flower_users_type_it(
    tmp_path: Path,
) -> None:
    step = ["experiment=kmeans_demo", "rounds=1", "population.clients=3", "strategy.init=random"]
    step += ["strategy.learning_rate=1", "records.figures=false", "engine.connect_timeout_s=1200"]
    connection = Connection("local", tmp_path / "home")
    with Supervisor(connection.environment()) as supervisor:
        # Flower would start this SuperLink itself, at a fixed port, and leave it running
        port = _start_superlink(supervisor, tmp_path, tmp_path / "superlink.log")
        connection.write(address=f"127.0.0.1:{port}", root_certificates=None)
        words = " ".join([*step, f"records.folder='{tmp_path / 'flwr run'}'"])
        typed = ["flwr", "run", ".", "--stream", "--run-config", f'overrides="{words}"']
        ours = door.Opened(
            [*step, "engine=inprocess", f"hydra.run.dir={tmp_path / OURS}"], tmp_path
        )
        log = NOT_STARTED
        while NOT_STARTED in log:  # on a busy machine: Ray has a fixed limit
            done = subprocess.run(
                typed, check=False, cwd=REPO, env=connection.environment(),
                capture_output=True, text=True,
            )  # fmt: skip
            log = done.stdout + done.stderr
            assert done.returncode == 0, log
        assert ours.wait().returncode == 0
    for run in (OURS, "flwr run"):
        ended = json.loads((tmp_path / run / "summary.json").read_text())
        assert ended["status"] == "completed", ended["ended"]
    assert "2 simulated nodes carry 3 clients" in log
    found = {run: read_models(tmp_path / run)[0]["centroids"] for run in (OURS, "flwr run")}
    assert np.isfinite(found[OURS]).all()
    np.testing.assert_allclose(found["flwr run"], found[OURS], rtol=0, atol=1e-6)


JOINED = [
    "experiment=federation_demo", "rounds=900", "strategy.cluster_round=1", "graph.resolution=3",
    "population.dynamics.newcomers=1", "population.dynamics.join_rounds=[3]",
    "engine.place_newcomers=true", "records.checkpoint_every=800", "records.evaluate_every=800",
    "records.figures=false", "records.report=false",
]  # fmt: skip
"""Clients 0 and 1 are of two groups. Client 2, of the group of client 0, joins in round 3."""


@pytest.fixture(
    scope="module", params=[("simulation", signal.SIGINT), ("deployment", signal.SIGTERM)]
)
def interrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, Path]:
    """Return the exit status and the folder of a run that a signal ended after round 3."""
    engine, number = request.param
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    words = [f"engine={engine}", *JOINED, f"hydra.run.dir={folder}"]
    words += ["fallback=false"]  # with a trial, clients without a community train too
    run = door.Opened(words, folder.parent)
    _until_round(3, run, folder)
    os.kill(run.pid, number)
    return run.wait().returncode, folder


def test_a_signal_leaves_a_summary_and_a_checkpoint_and_no_process(
    interrupted: tuple[int, Path],
) -> None:
    status, folder = interrupted
    assert status == 130
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["rounds"] == read(folder / "checkpoint").round >= 3
    assert run_state.unfinished([folder]) == []  # nobody continues what was stopped on purpose
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(folder) not in listed.stdout


def test_a_newcomer_gets_the_model_of_its_community_without_training(
    interrupted: tuple[int, Path],
) -> None:
    folder = interrupted[1]
    rounds = read_rounds(folder)
    trained = {client for each in rounds[:3] for client in each["sampled"]}
    assert trained == {0, 1}
    placed = [e for each in rounds[:3] for e in each["events"] if e["kind"] == "placed"]
    assert placed == [each for each in rounds[2]["events"] if each["kind"] == "placed"]
    assert [each["clients"] for each in placed] == [[2]]
    found, run = read_newcomers(folder)[2], load_run(folder)
    assert found.model == run.name(client=0) != run.name(client=1)
    assert found.values[found.model] < min(v for m, v in found.values.items() if m != found.model)
    assert run.name(client=2) == found.model
