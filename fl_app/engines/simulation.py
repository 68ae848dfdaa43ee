"""Flower's simulation: a private SuperLink in a temporary folder, on Ray, for one run."""

import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from logging import getLogger
from pathlib import Path

from fl_app.engines import flower, flower_commands
from fl_app.engines.flower import Connection, RunResult
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.ports import free_ports
from fl_app.engines.processes import Supervisor, tail, wait_for_port

logger = getLogger(__name__)
_STARTS = 4
NOT_STARTED = "The current node timed out during startup"
"""How Ray says that its own node was not ready in time."""
NICENESS = "RAY_worker_niceness"
"""Ray's own value is 15: beside other work, clients would get hardly any processor time."""
_LINES = 400
_START_TIMEOUT_S = 120.0
_CLUSTER_S = 10.0
_TEMPORARY_LENGTH = 18


def run_simulation(
    app: Path,
    *,
    overrides: str,
    composed: str,
    nodes: int,
    cpus_per_client: float,
    gpus_per_client: float,
    ray_address: str | None,
    log: Path,
    on_tick: Callable[[], None],
) -> RunResult:
    """Run the app in `app` on `nodes` simulated nodes and return its outcome.

    The SuperLink runs in a temporary folder, so that Ray's workers import the bundle and not the
    files of the working directory. All processes end, and only `log` stays on disk.
    `gpus_per_client` 0 hides CUDA from clients. With `ray_address` the clients run on that Ray
    cluster, and the temporary folder is beside `log`, where all machines must find it. Raises
    FlowerError if the cluster does not answer.
    """
    if ray_address is not None:
        _must_answer(ray_address)
    log = log.resolve()
    log.parent.mkdir(parents=True, exist_ok=True)
    at = _short_temporary_folder() if ray_address is None else log.parent
    folder = Path(tempfile.mkdtemp(prefix="fl-app-", dir=at))
    connection = Connection("simulation", folder / "home")
    environment = connection.environment() | of_ray(folder, ray_address)
    with Supervisor(environment, scratch=folder) as supervisor:
        port = _start_superlink(supervisor, folder, log.with_suffix(".superlink.log"))
        connection.write(address=f"127.0.0.1:{port}", root_certificates=None)
        resources = {
            "num-supernodes": nodes,
            "client-resources-num-cpus": cpus_per_client,
            "client-resources-num-gpus": gpus_per_client,
        }

        def play() -> RunResult:
            run_id = flower.submit(
                connection, app, overrides=overrides, composed=composed, federation=resources
            )
            return flower.follow(
                connection, run_id, log=log, on_tick=on_tick, supervisor=supervisor
            )

        return started(play, log)


def of_ray(folder: Path, ray_address: str | None) -> dict[str, str]:
    """Return the variables for Ray: its place, and the priority of workers if the user set none."""
    place = {"RAY_TMPDIR": str(folder)} if ray_address is None else {"RAY_ADDRESS": ray_address}
    return {**place, NICENESS: os.environ.get(NICENESS, "0")}


def started(play: Callable[[], RunResult], log: Path) -> RunResult:
    """Play a run, and again if Ray did not start, as on a busy machine; return its outcome.

    Ray gives its own node 30 s to start, which is not a setting. No round was played then.
    """
    for attempt in range(1, _STARTS + 1):
        result = play()
        if result.ok or NOT_STARTED not in tail(log, lines=_LINES):
            return result
        logger.warning("Ray did not start within 30 s (attempt %d of %d)", attempt, _STARTS)
    return replace(
        result,
        detail=f"Ray must start its node within 30 s, got none in {_STARTS} attempts; stop other "
        "work on this machine, or give the address of a running cluster as engine.ray_address",
    )


def _must_answer(ray_address: str) -> None:
    host, _, port = ray_address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CLUSTER_S).close()
    except OSError as error:
        raise FlowerError(
            f"engine.ray_address must be that of a running Ray cluster, got {ray_address}: "
            f"{error}; start one with ray start --head --port={port}, or remove the setting"
        ) from error


def _short_temporary_folder() -> str:
    """Return a folder for Ray's sockets, whose paths have at most 107 characters, 70 for Ray."""
    usual = tempfile.gettempdir()
    return usual if len(usual) <= _TEMPORARY_LENGTH else "/tmp"


def _start_superlink(supervisor: Supervisor, folder: Path, log: Path) -> int:
    (port,) = free_ports(1)
    words = [flower_commands.executable("flower-superlink"), "--insecure", "--simulation"]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    words += ["--disable-runtime-dependency-installation"]
    superlink = supervisor.start("the SuperLink", words, log=log, cwd=folder)
    wait_for_port(superlink, port, timeout_s=_START_TIMEOUT_S)
    return port
