"""The folder of a client with its own model, in the form of a finished run."""

from pathlib import Path

from fl_app import own
from fl_app.client.local import LocalClient
from fl_app.config import Config
from fl_app.records.models import StateForm, write_models
from fl_app.records.serving import Served, write_serving
from fl_app.types import Vector
from fl_app.wiring import use_of

HELD = "held"
"""The name of the model in its folder."""


def hold(
    config: Config,
    folder: Path,
    data_root: str | None,
    local: LocalClient,
    model: Vector,
    server_round: int,
) -> None:
    """Write a client's model (d,) to a folder for `load_run`; replaces the one before."""
    folder = folder.expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    own.keep(config.resolved, folder / own.PROJECT)
    flat = local.learner.flat
    write_models(folder, {HELD: model}, flat.layout, StateForm.of(flat))
    used = Served({local.client_id: (HELD,)})
    write_serving(folder, used, [HELD], use_of(config, data_root), server_round)
