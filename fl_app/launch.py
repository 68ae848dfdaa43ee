"""Starts a run with a checked configuration on its engine."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import UserConfig
from rich.console import Console

from fl_app.client_wiring import fuses, workers
from fl_app.composition import CONF
from fl_app.config import Config
from fl_app.engines import signals, stop_request
from fl_app.own import PROJECT
from fl_app.progress import Live, live
from fl_app.run_config import carried
from fl_app.schema import EngineConfig
from fl_app.types import EngineName

if TYPE_CHECKING:
    from fl_app.engines.flower import RunResult


class RunFailedError(RuntimeError):
    """Flower reports that a run did not complete."""


def launch(config: Config, overrides: str, folder: Path, console: Console) -> None:
    """Run the configuration on its engine."""
    engines: Mapping[EngineName, Callable[[Config, str, Path, Live], None]] = {
        "inprocess": _launch_inprocess,
        "simulation": _launch_simulation,
        "deployment": _launch_deployment,
    }
    with live(folder, rounds=config.rounds, console=console) as view:
        engines[config.engine.name](config, overrides, folder, view)


def here(engine: EngineConfig) -> bool:
    """Whether the server of a run is on this machine, as far as this process knows."""
    from fl_app.engines.deployment import home_of

    return engine.connection is None or (
        engine.folder is not None and home_of(Path(engine.folder)) is not None
    )


def federation_folder(config: Config, folder: Path) -> Path:
    """Return the folder of keys and nodes of a federation of ours, for a run in `folder`."""
    return Path(config.engine.folder or folder / "federation")


def _launch_inprocess(config: Config, overrides: str, folder: Path, view: Live) -> None:
    from fl_app.client_app import app as client_app
    from fl_app.engines.inprocess import InProcessGrid, app_context
    from fl_app.engines.memory import keep_freed_pages
    from fl_app.server_app import app as server_app

    keep_freed_pages()
    run_config: UserConfig = {"overrides": overrides}
    nodes = config.population.options["clients"]
    grid = InProcessGrid(
        client_app,
        nodes=nodes,
        run_config=run_config,
        workers=workers(config),
        gathers=fuses(config),
    )
    try:
        server_app(grid, app_context(run_config))
    finally:
        grid.close()


def _launch_simulation(config: Config, overrides: str, folder: Path, view: Live) -> None:
    from fl_app.engines.bundle import app_folder
    from fl_app.engines.simulation import run_simulation

    with _failures_told(), app_folder(CONF, folder / PROJECT) as app:
        outcome = run_simulation(
            app,
            overrides=overrides,
            composed=carried(overrides),
            nodes=config.population.options["clients"],
            cpus_per_client=config.engine.cpus_per_client,
            gpus_per_client=config.engine.gpus_per_client,
            ray_address=config.engine.ray_address,
            log=folder / "flower.log",
            on_tick=partial(_tick, folder, view),
        )
    _must_be_ok(outcome, folder)


def _launch_deployment(config: Config, overrides: str, folder: Path, view: Live) -> None:
    from fl_app.engines.bundle import packed_folder
    from fl_app.engines.deployment import Order, run_deployment

    with _failures_told(), packed_folder(CONF, folder / PROJECT) as app:
        order = Order(
            app=app,
            overrides=overrides,
            composed=carried,
            folder=folder,
            restarts=config.engine.restarts,
            log=folder / "flower.log",
            on_tick=partial(_tick, folder, view),
        )
        outcome = run_deployment(
            order,
            nodes=config.population.options["clients"],
            warm=config.engine.warm,
            folder=federation_folder(config, folder),
            connection=config.engine.connection,
        )
    _must_be_ok(outcome, folder)


@contextmanager
def _failures_told() -> Iterator[None]:
    """Raise what Flower and its processes report as the one sentence of a failed run."""
    from fl_app.engines.flower_commands import FlowerError
    from fl_app.engines.processes import ProcessError

    try:
        yield
    except (FlowerError, ProcessError) as error:
        raise RunFailedError(str(error)) from error


def _tick(folder: Path, view: Live) -> None:
    """Show new rounds; after a request to stop, interrupt once the loop has ended."""
    view.tick()
    if signals.asked() and stop_request.is_over(folder, signals.asked_for()):
        signals.interrupt()


def _must_be_ok(outcome: "RunResult", folder: Path) -> None:
    if signals.asked():
        signals.interrupt()
    if not outcome.ok:
        raise RunFailedError(f"{outcome.status}: {outcome.detail}; log: {folder / 'flower.log'}")
