"""Runs the app over gRPC: on a private federation of this machine, or on one that is running."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fl_app.engines import federation_lock, flower
from fl_app.engines.federation import Federation
from fl_app.engines.flower import Connection, RunResult
from fl_app.engines.processes import Supervisor
from fl_app.engines.restarts import Supervised
from fl_app.records import output_folder

RUNS = "runs"
"""Folder of a federation with a link to the folder of each run on it that has not ended."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A run over gRPC: the app, its overrides, its output folder, and `engine.restarts`.

    `composed` returns the composed tree of overrides, see `flower.submit`. Flower's log is written
    to `log`, and `on_tick` is called several times a second.
    """

    app: Path
    overrides: str
    composed: Callable[[str], str]
    folder: Path
    restarts: int
    log: Path
    on_tick: Callable[[], None]


def run_deployment(
    order: Order,
    *,
    nodes: int,
    warm: bool,
    folder: Path,
    connection: str | None = None,
    data_root: Path | None = None,
) -> RunResult:
    """Run the app over gRPC and return its outcome.

    With `connection`, the app runs on a running federation: the one that `scripts/deploy up`
    started in `folder`, else a connection of the user's Flower home. Without it, the app runs on
    a private federation of `nodes` SuperNodes that ends with the run; see `Federation` for `warm`.
    A run that is lost is submitted again: see `Supervised`.
    """
    order.log.parent.mkdir(parents=True, exist_ok=True)
    if connection is not None:
        home = home_of(folder)
        target = Connection(connection, home)
        link = linked(None if home is None else folder, order.folder)
        with Supervisor(target.environment()) as supervisor, link:
            return _supervised(target, order, supervisor, order.on_tick)
    if fault := output_folder.problem(folder):
        raise ValueError(fault.replace("the output folder", "engine.folder", 1))
    federation = Federation(folder, nodes=nodes, warm=warm, data_root=data_root)
    mark = federation.supervisor.token
    with federation_lock.held_by_run(folder.resolve(), mark), federation:

        def tick() -> None:
            federation.check()
            order.on_tick()

        return _supervised(federation.connection, order, federation.supervisor, tick)


def home_of(folder: Path) -> Path | None:
    """Return the Flower home of the federation of `scripts/deploy up` in a folder, if any."""
    home = folder.resolve() / "home"
    return home if (home / "config.toml").exists() else None


def _supervised(
    target: Connection, order: Order, supervisor: Supervisor, on_tick: Callable[[], None]
) -> RunResult:
    log = order.log.resolve()

    def follow(run_id: int) -> RunResult:
        if log.exists():  # of an earlier submission; Flower sends a log from its beginning
            log.replace(log.with_name(f"{log.stem}.former{log.suffix}"))
        return flower.follow(target, run_id, log=log, on_tick=on_tick, supervisor=supervisor)

    def submit(overrides: str) -> int:
        composed = order.composed(overrides)
        return flower.submit(
            target, order.app, overrides=overrides, composed=composed, federation={}
        )

    return Supervised(
        folder=order.folder,
        limit=order.restarts,
        submit=submit,
        look=lambda run_id: flower.status(target, run_id),
        follow=follow,
        on_tick=on_tick,
    ).run(order.overrides)


@contextmanager
def linked(federation: Path | None, run: Path) -> Iterator[None]:
    """Link to the folder of a run from that of its federation while the run goes on.

    The link stays if this process is killed; then the keeper of the federation continues the run.
    """
    if federation is None:
        yield
        return
    name = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
    link = federation.resolve() / RUNS / name
    link.parent.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        link.symlink_to(run.resolve())
    try:
        yield
    finally:
        link.unlink(missing_ok=True)
