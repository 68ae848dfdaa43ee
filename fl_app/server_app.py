"""Flower ServerApp: runs the strategy and its similarity graph."""

from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import Grid, ServerApp

from fl_app import server_wiring
from fl_app.config import load_text
from fl_app.engines.inprocess import InProcessGrid


class RunStoppedError(RuntimeError):
    """The run was stopped on request; Flower's processes end properly after an error only."""


class StoppableApp(ServerApp):
    """A ServerApp whose rounds can be interrupted in a process of Flower."""

    def __call__(self, grid: Grid, context: Context) -> None:
        """Run the app; only in the user's own process is an interrupt raised unchanged."""
        try:
            super().__call__(grid, context)
        except KeyboardInterrupt as stop:
            if isinstance(grid, InProcessGrid):
                raise
            raise RunStoppedError("stopped on request") from stop


def server_fn(context: Context) -> ServerAppComponents:
    """Build the server of a run from the overrides in its run_config."""
    config = load_text(str(context.run_config["overrides"]))
    return ServerAppComponents(
        server=server_wiring.server(config), config=ServerConfig(num_rounds=config.rounds)
    )


app = StoppableApp(server_fn=server_fn)
