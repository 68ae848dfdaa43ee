"""Runs in this process with a given client app, for benchmarks with many short runs."""

import logging
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, Message

from fl_app.client_wiring import fuses, workers
from fl_app.command_words import override
from fl_app.config import load
from fl_app.engines.inprocess import InProcessGrid, app_context
from fl_app.records.history import read_rounds
from fl_app.server_app import app as server_app

App = Callable[[Message, Context], Message]
PUBLISHED = ("fallback=false", "graph.contrast=false")
"""Methods as published, so that tables compare these; later words such as `fallback=true` count."""
QUIET = ("tracking=none", "records.figures=false", "records.report=false", "records.snapshots=0")
"""Overrides of a run of which only the records are wanted."""


@contextmanager
def silenced(*names: str) -> Iterator[None]:
    """Let the loggers of these names write nothing for a while."""
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def run(overrides: Sequence[str], folder: Path, app: App) -> list[dict[str, Any]]:
    """Run a configuration in-process with `app` as the client app; return the rounds' records.

    What was in the folder is removed first. Warnings are not shown.
    """
    shutil.rmtree(folder, ignore_errors=True)
    words = [*PUBLISHED, *overrides, *QUIET, override("records.folder", str(folder))]
    config, run_config = load(words), {"overrides": shlex.join(words)}
    grid = InProcessGrid(
        app,  # type: ignore[arg-type]
        nodes=config.population.options["clients"],
        run_config=run_config,
        workers=workers(config),
        gathers=fuses(config),
    )
    try:
        with silenced("flwr", "fl_app"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server_app(grid, app_context(run_config))
    finally:
        grid.close()
    return read_rounds(folder)
