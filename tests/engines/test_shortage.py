"""A run with fewer nodes than clients ends early, with a command that mends it."""

import shlex
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from fl_app import server_app
from fl_app.config import load
from fl_app.engines import shortage
from fl_app.engines.shortage import NodeWait, TooFewNodesError, too_few_simulated


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(shortage.time, "monotonic", lambda: now[0])
    return now


def test_it_waits_while_nodes_come_and_not_longer(clock: list[float]) -> None:
    wait = NodeWait("engine=deployment records.folder='/a b' rounds=4", by_flwr=False, timeout_s=10)
    for now, nodes in ((0, ()), (9, ("a",)), (18, ("a", "b")), (27, ())):
        clock[0] = now
        wait.check(nodes, 3)
    clock[0] = 28
    with pytest.raises(TooFewNodesError) as raised:
        wait.check(("a", "b"), 3)
    assert str(raised.value) == (
        "3 clients need 3 nodes, got 2 and no new one in 10 s; run with these: "
        "fl-app engine=deployment rounds=4 population.clients=2; or wait longer for the others: "
        "fl-app engine=deployment rounds=4 engine.nodes_timeout_s=300"
    )
    wait.check((), 2)


def test_fewer_clients_than_a_run_needs_are_no_remedy(clock: list[float]) -> None:
    wait = NodeWait("rounds=4", by_flwr=False, timeout_s=10)
    wait.check(("a", "b"), 5, {0, 4}, least=3)
    clock[0] = 11
    with pytest.raises(TooFewNodesError, match="5 clients need 5 nodes, got 2") as raised:
        wait.check(("a", "b"), 5, {0, 4}, least=3)
    assert "run with" not in str(raised.value)
    assert str(raised.value).endswith("fl-app rounds=4 engine.nodes_timeout_s=300")


def test_a_node_that_is_lost_for_a_while_has_connected(clock: list[float]) -> None:
    wait = NodeWait("rounds=4", by_flwr=False, timeout_s=10)
    wait.check(("a", "b"), 3)
    wait.check(("b", "c"), 3)
    clock[0] = 99
    wait.check(("b",), 3)
    with pytest.raises(TooFewNodesError, match="4 clients need 4 nodes, got 3"):
        wait.check(("b",), 4)


def test_the_command_finds_the_options_and_modules_of_the_user(
    clock: list[float], tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "overrides.yaml").write_text("[experiment=risk, engine=deployment]")
    given = f"engine=deployment engine.node_ids={tmp_path}/federation/nodes.json"
    config = load(["engine=deployment", "records.started_by=me"])
    wait = server_app._node_wait(config, given, tmp_path)
    wait.check((), 3)
    clock[0] = config.engine.nodes_timeout_s + 1
    with pytest.raises(TooFewNodesError) as raised:
        wait.check((), 3)
    project = tmp_path / "project"
    assert str(raised.value).endswith(
        f"PYTHONPATH={project} fl-app --config-dir {project}/conf experiment=risk "
        "engine=deployment engine.nodes_timeout_s=300"
    )


def test_nodes_whose_client_ids_have_gaps_get_a_command_that_keeps_them(
    clock: list[float],
) -> None:
    """With population.clients=2 the node of client 2 would be refused."""
    wait = NodeWait("engine.connect_timeout_s=60 rounds=4", by_flwr=False, timeout_s=10)
    wait.check(("a", "b"), 4, {0, 2})
    clock[0] = 11
    with pytest.raises(TooFewNodesError) as raised:
        wait.check(("a", "b"), 4, {0, 2})
    assert str(raised.value) == (
        "4 clients need 4 nodes, got 2 and no new one in 10 s; run without clients [1, 3]: "
        "fl-app rounds=4 engine.nodes_timeout_s=9999 engine.connect_timeout_s=15; or wait longer "
        "for the others: fl-app engine.connect_timeout_s=60 rounds=4 engine.nodes_timeout_s=300"
    )


def test_flowers_command_is_one_that_flower_reads(clock: list[float]) -> None:
    given = "population=own data.root='/a b' records.folder=/x"
    wait = NodeWait(given, by_flwr=True, timeout_s=10)
    wait.check((), 3)
    clock[0] = 11
    with pytest.raises(TooFewNodesError) as raised:
        wait.check((), 3)
    command, _, note = str(raised.value).partition("for the others: ")[2].partition(" (")
    assert note == "<connection>: the one that you gave to flwr run)"
    words = shlex.split(command)
    assert words[:6] == ["flwr", "run", ".", "<connection>", "--stream", "--run-config"]
    given = str(parse_config_args([words[6]])["overrides"])
    expected = ["population=own", "data.root=/a b", "records.folder=/x"]
    assert shlex.split(given) == [*expected, "engine.nodes_timeout_s=300"]


def test_a_simulation_is_told_how_many_nodes_it_needs() -> None:
    told = str(too_few_simulated("population=own", 2, 3))
    assert "3 clients with population=own need 3 nodes, got 2" in told
    assert told.endswith(
        "run: flwr run . --stream --run-config 'overrides=\"population=own\"' "
        "--federation-config 'num-supernodes=3'"
    )
