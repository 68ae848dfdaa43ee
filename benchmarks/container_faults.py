"""Kills, stops, cuts and removes the containers of docker-compose.yml in a run."""

from collections.abc import Callable, Sequence

from composed import ROUNDS, SUPERNODES, Composed
from continued import ended, same_models
from table import row

SERVERS = ["superlink", "serverapp", "runs"]
HELD_S = 45.0
"""How long a container stands still or has no network.

Flower takes a node for lost 60 s after its last heartbeat, and heartbeats come every 24 s or so.
"""


def killed_nodes(federation: Composed) -> list[str]:
    """Kill each SuperNode and the SuperLink in one run, one after the other."""
    services = [*SUPERNODES, "superlink"]
    run_id = federation.submit("killed", "engine.min_success=1", rounds=2 * len(services) + ROUNDS)
    for place, service in enumerate(services):
        federation.after("killed", 2 * place + 1)
        federation.kill(service)
    status = federation.ended(run_id)
    rounds = federation.rounds("killed")
    federation.all_online()
    what = f"{len(rounds)} rounds; lost in the last one: {rounds[-1]['lost']}"
    return [row("kill -9 of each SuperNode, then of the SuperLink, in one run", status, what)]


def killed_serverapp(federation: Composed) -> list[str]:
    """Kill the service `runs` and the ServerApp; when it is back, it submits the run again."""
    federation.submit("serverapp", rounds=ROUNDS)
    federation.after("serverapp", 2)
    federation.kill("runs")
    federation.kill("serverapp")
    return [
        continued(federation, "serverapp", "kill -9 of the ServerApp and of the service `runs`")
    ]


def down_and_up(federation: Composed) -> list[str]:
    """Take all down in mid-run and up again; the service `runs` submits the run again."""
    federation.submit("down", rounds=ROUNDS)
    federation.after("down", 2)
    federation.compose("down")
    federation.up()
    return [continued(federation, "down", "`docker compose down` and `up` in mid-run")]


def stopped_nodes(federation: Composed) -> list[str]:
    """Stop each SuperNode for a while, as a machine that stands still."""
    return _held(federation, SUPERNODES, federation.stop, "stopped")


def stopped_servers(federation: Composed) -> list[str]:
    """Stop each container of the server for a while."""
    return _held(federation, SERVERS, federation.stop, "stopped")


def cut_nodes(federation: Composed) -> list[str]:
    """Take each SuperNode off the network for a while."""
    return _held(federation, SUPERNODES, federation.cut, "cut")


def cut_servers(federation: Composed) -> list[str]:
    """Take each container of the server off the network for a while."""
    return _held(federation, SERVERS, federation.cut, "cut")


def _held(
    federation: Composed, services: Sequence[str], hold: Callable[[str, float], None], told: str
) -> list[str]:
    """Hold one container after the other in one run, each after another round."""
    run = f"{told}-{services[0]}"
    federation.submit(run, rounds=ROUNDS)
    for place, service in enumerate(services):
        federation.after(run, place + 1)
        hold(service, HELD_S)
    ways = {"stopped": "stopped (`docker pause`)", "cut": "taken off their network"}
    what = f"{', '.join(services)} {ways[told]} for {HELD_S:g} s each, one after the other"
    line = continued(federation, run, what)
    lost = [each["round"] for each in federation.rounds(run) if each["lost"]]
    return [f"{line[:-2]}; rounds without a node: {lost} |"]


def lost_node(federation: Composed) -> list[str]:
    """Remove a node for good in mid-run."""
    run_id = federation.submit("lost", rounds=ROUNDS)
    federation.after("lost", 1)
    federation.compose("rm", "--stop", "--force", "supernode-2")
    status = federation.ended(run_id)
    rounds = federation.rounds("lost")
    what = f"{len(rounds)} rounds; lost in the last one: {rounds[-1]['lost']}"
    return [row("a SuperNode removed for good", status, what)]


def continued(federation: Composed, name: str, what: str, *, like: str = "plain") -> str:
    """Wait until a run has ended by itself; return its row. `like` is an undisturbed run."""
    folder = federation.checkout / "outputs" / name
    status, seen = ended(folder, federation.until)
    return row(what, status, f"{seen}; {same_models(folder, like)}")


FAULTS = (
    killed_nodes,
    killed_serverapp,
    down_and_up,
    stopped_nodes,
    stopped_servers,
    cut_nodes,
    cut_servers,
)
