"""Flower ServerApp: runs the strategy and its similarity graph."""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from logging import INFO, getLogger
from pathlib import Path

from flwr.app import Context
from flwr.common.logger import log
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp
from httpx import TransportError

from fl_app import former_run, server_wiring
from fl_app.client_wiring import attack
from fl_app.config import Config, load
from fl_app.data.checks import DataError
from fl_app.data.population import own
from fl_app.engines.carrying import CarryingGrid, simulated_nodes, simulates
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.lost_connection import LostConnectionError
from fl_app.engines.node_ids import NodeOwners
from fl_app.engines.shortage import OF_LAUNCH, NodeWait, too_few_simulated
from fl_app.idle_settings import idle_settings
from fl_app.own import PROJECT
from fl_app.records import output_folder, run_state
from fl_app.records.checkpoint import CheckpointError
from fl_app.records.reading import read_overrides
from fl_app.records.run_state import RunState, SupersededError
from fl_app.records.structured_logs import beside, structured
from fl_app.run_config import of_run
from fl_app.schema import ConfigError
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.types import EngineName

_TOLD = (
    ConfigError, DataError, CheckpointError, TimeoutError, TooFewRepliesError, SupersededError,
)  # fmt: skip
"""Errors whose text is for a user; Flower's log would put dozens of lines of code before it."""


class RunStoppedError(RuntimeError):
    """The run was stopped on request; Flower's processes end properly after an error only."""


class StoppableApp(ServerApp):
    """A ServerApp whose rounds can be interrupted in a process of Flower."""

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the app; only in the user's own process are errors raised unchanged."""
        if isinstance(grid, InProcessGrid):
            self._run(grid, context)
            return
        try:
            self._run(grid, context)
        except KeyboardInterrupt:
            raise RunStoppedError("stopped on request") from None
        except TransportError as error:
            raise LostConnectionError(error) from None
        except _TOLD as error:
            raise error.with_traceback(None) from None

    def _run(self, grid: Grid, context: Context) -> None:
        context.run_config["overrides"] = on_engine(grid, str(context.run_config["overrides"]))
        config = of_run(context.run_config)
        if isinstance(grid, InProcessGrid):
            super().__call__(grid, context)
            return
        if config.records.started_by is None and simulates(grid):
            _check_parts(str(context.run_config["overrides"]))
        beside(getLogger("fl_app"), getLogger("flwr"))  # rounds and result, in Flower's log
        if config.logging.format == "json":
            structured(getLogger("flwr"))
        with _own_folder(config), _noted(config, grid, context):
            super().__call__(with_all_clients(grid, context), context)


def _check_parts(overrides: str) -> None:
    """Raise ConfigError if the parts of a run contradict each other, as the command `fl-app` does.

    Clients would fail one by one, with a privacy without telling the server why. A simulation has
    the data that this needs.
    """
    from fl_app.compatibility import problems  # no other run needs all that it tries

    load(shlex.split(overrides), also=problems)


@contextmanager
def _own_folder(config: Config) -> Iterator[None]:
    """Hold the folder of a run of Flower's own command, without the results of an earlier run.

    The command `fl-app` does so for its runs. Raises ConfigError if the folder has files of the
    user, or if another run uses it. A run that was submitted again may find its former process.
    """
    records = config.records
    if records.folder is None or records.started_by is not None or records.restarts:
        yield
        return
    folder = Path(records.folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(output_folder.held(folder))
        except output_folder.InUseError as error:
            raise ConfigError([str(error)]) from error
        if not records.resume:
            _clear(folder)
        yield


def _clear(folder: Path) -> None:
    """Remove the results of an earlier run; raises ConfigError if the user has files there."""
    if fault := output_folder.foreign(folder, former_run.REPLACED):
        raise ConfigError([fault])
    former_run.remove(folder)


@contextmanager
def _noted(config: Config, grid: Grid, context: Context) -> Iterator[None]:
    """Note in the folder of a run on real nodes which run it is, and that it has ended by itself.

    A killed process leaves the run unfinished, and so does one that its SuperLink has given up, or
    that has lost its SuperLink or the room on its disk: these may be back soon.
    """
    folder = config.records.folder
    if folder is None or simulates(grid):
        yield
        return
    place, run_id = Path(folder), context.run_id
    former = run_state.read(place)
    if former is None or former.run_id != run_id:  # Flower's own command has submitted it
        overrides, limit = str(context.run_config["overrides"]), config.engine.restarts
        run_state.write(place, RunState(run_id, overrides, limit, restarts=config.records.restarts))
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in output_folder.NO_ROOM
        if not (full or isinstance(error, TransportError)):
            run_state.finish(place, run_id)
        raise
    run_state.finish(place, run_id)


def on_engine(grid: Grid, overrides: str) -> str:
    """Return the overrides with the engine that runs them, if they name none.

    Flower's own command submits runs without it. On real nodes it is a deployment, with its limit
    for a round.
    """
    words = shlex.split(overrides)
    if isinstance(grid, InProcessGrid) or any(word.startswith("engine=") for word in words):
        return overrides
    engine: EngineName = "simulation" if simulates(grid) else "deployment"
    return shlex.join([f"engine={engine}", *words])


def with_all_clients(grid: Grid, context: Context) -> Grid:
    """Return a Grid with a node for each client, also in a simulation of fewer nodes.

    Raises TooFewNodesError if clients have data of their own, which no other node has.
    """
    overrides = str(context.run_config["overrides"])
    config = of_run(context.run_config)
    clients: int = config.population.options["clients"]
    nodes = simulated_nodes(grid, clients)
    if nodes is None or len(nodes) >= clients:
        return grid
    if config.population.resolve() is own:
        raise too_few_simulated(overrides, len(nodes), clients)
    log(INFO, "%d simulated nodes carry %d clients", len(nodes), clients)
    return CarryingGrid(grid, nodes, clients)


def server_fn(context: Context) -> ServerAppComponents:
    """Build the server of a run from the overrides in its run_config."""
    overrides = str(context.run_config["overrides"])
    config = of_run(context.run_config)
    loop = server_wiring.server(config)
    loop.messenger.introducer.planted = attack(config)[1]
    if config.engine.node_ids is not None:
        loop.messenger.introducer.owners = _owners(config.engine.node_ids)
    recorder = loop.recorder
    if config.records.started_by is None:  # fl-app writes those that it was given by itself
        given = shlex.split(overrides)
        recorder.overrides = [each for each in given if not each.startswith(OF_LAUNCH)]
    if config.engine.name == "deployment":  # of others, a run.json is that of an earlier run
        recorder.superseded = partial(run_state.superseded, recorder.folder, context.run_id)
    if not (config.records.resume or config.records.restarts):  # goes on without lost nodes
        loop.connections.node_wait = _node_wait(config, overrides, recorder.folder)
    for each in idle_settings(config):
        getLogger(__name__).warning(each)
    log(INFO, "results of this run: %s", recorder.folder.resolve())
    if recorder.resumes:
        log(INFO, "%s", recorder.resumes)
    return ServerAppComponents(server=loop, config=ServerConfig(num_rounds=config.rounds))


def _node_wait(config: Config, overrides: str, folder: Path) -> NodeWait:
    """Return a wait for nodes whose remedies have what the user gave, and not what fl-app added."""
    by_flwr, copy = config.records.started_by is None, folder.resolve() / PROJECT
    given = None if by_flwr else read_overrides(folder)
    return NodeWait(
        overrides if given is None else shlex.join(given),
        by_flwr=by_flwr,
        timeout_s=config.engine.nodes_timeout_s,
        project=copy if copy.is_dir() and not by_flwr else None,
    )


def _owners(path: str) -> NodeOwners:
    """Return which client each node must be; raises ConfigError for a file of another form."""
    try:
        return NodeOwners(Path(path))
    except ValueError as error:
        told = f"engine.node_ids: {error}; correct it, or remove the setting"
        raise ConfigError([told]) from error


app = StoppableApp(server_fn=server_fn)
