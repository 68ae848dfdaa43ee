"""The Flower app that `flwr run` starts."""

from pathlib import Path

from fl_app import own

own.use(Path(__file__).resolve().parent.parent)  # before the app reads its options

from flwr.app import Context  # noqa: E402
from flwr.client import Client  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from fl_app import client_app  # noqa: E402
from fl_app.server_app import app as server  # noqa: E402

__all__ = ["client", "server"]


def client_fn(context: Context) -> Client:
    """Build the client of a node; a function of this module, so that Ray's workers import it."""
    return client_app.client_fn(context)


client = ClientApp(client_fn, mods=client_app.MODS)
