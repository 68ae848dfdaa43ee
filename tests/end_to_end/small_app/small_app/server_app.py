"""The round loop of fl_app with FedAvg over six parameters."""

from math import inf
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fl_app.config import load
from fl_app.engines.loop import RoundLoop
from fl_app.params import Layout
from fl_app.records.recorder import Recorder
from fl_app.server_wiring import detection
from fl_app.strategies.server_context import ServerContext, largest
from fl_app.wiring import made


def server_fn(context: Context) -> ServerAppComponents:
    """Build the loop; its records go to the folder in the run_config."""
    given = context.run_config
    rounds = int(given["rounds"])
    context = ServerContext(
        seed=0,
        rounds=rounds,
        layout=Layout(("w",), ((2, 3),), 1),
        initial=np.zeros(6, np.float32),
        min_success=1,
        evaluate_every=3,
        evaluate_at_most=None,
        largest_update=None,
        clip_update=None,
        sample_cap=inf,
        detection=detection(load([])),
        look_ahead_every=1,
        benign=largest,
    )
    loop = RoundLoop(
        strategy=made("strategy=fedavg", context, participation=1.0),
        recorder=Recorder(
            Path(str(given["folder"])),
            identity={"strategy": "fedavg", "engine": "deployment", "seed": 0},
            config_yaml="",
            checkpoint_every=1,
            snapshot_rounds=(),
            resume=False,
        ),
        clients=int(given["clients"]),
        round_timeout_s=float(given["round_timeout_s"]) or None,
        connect_timeout_s=300,
        figures=False,
    )
    return ServerAppComponents(server=loop, config=ServerConfig(num_rounds=rounds))


app = ServerApp(server_fn=server_fn)
