"""Flower ServerApp: hosts the strategy and its similarity graph."""

from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fl_app import server_wiring
from fl_app.config import load_text


def server_fn(context: Context) -> ServerAppComponents:
    """Build the server of a run from the overrides in its run_config."""
    config = load_text(str(context.run_config["overrides"]))
    return ServerAppComponents(
        server=server_wiring.server(config), config=ServerConfig(num_rounds=config.rounds)
    )


app = ServerApp(server_fn=server_fn)
