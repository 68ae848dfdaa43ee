"""Runs the app over gRPC: on a private federation of this machine, or on one that is running."""

from collections.abc import Callable
from pathlib import Path

from fl_app.engines import flower
from fl_app.engines.federation import Federation
from fl_app.engines.flower import Connection, RunResult
from fl_app.engines.processes import Supervisor


def run_deployment(
    app: Path,
    *,
    overrides: str,
    nodes: int,
    warm: bool,
    folder: Path,
    connection: str | None = None,
    data_root: Path | None = None,
    log: Path,
    on_tick: Callable[[], None],
) -> RunResult:
    """Run the app over gRPC and return its outcome.

    With `connection`, the app runs on a running federation: the one that `scripts/deploy up`
    started in `folder`, else a connection of the user's Flower home. Without it, the app runs on
    a private federation of `nodes` SuperNodes that ends with the run; see `Federation` for `warm`.
    """
    log = log.resolve()
    log.parent.mkdir(parents=True, exist_ok=True)
    if connection is not None:
        home = folder.resolve() / "home"
        known = (home / "config.toml").exists()
        target = Connection(connection, home if known else None)
        with Supervisor(target.environment()) as supervisor:
            run_id = flower.submit(target, app, overrides=overrides, federation={})
            return flower.follow(target, run_id, log=log, on_tick=on_tick, supervisor=supervisor)
    with Federation(folder, nodes=nodes, warm=warm, data_root=data_root) as federation:

        def tick() -> None:
            federation.check()
            on_tick()

        target = federation.connection
        run_id = flower.submit(target, app, overrides=overrides, federation={})
        return flower.follow(
            target, run_id, log=log, on_tick=tick, supervisor=federation.supervisor
        )
