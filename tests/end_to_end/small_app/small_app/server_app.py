"""The round loop of fl_app with FedAvg over six parameters."""

from pathlib import Path

from flwr.app import Context
from flwr.server import ServerAppComponents, ServerConfig
from flwr.serverapp import ServerApp

from fl_app.engines.loop import RoundLoop
from fl_app.records.recorder import Recorder
from fl_app.testing.toy import context as toy_context
from fl_app.wiring import made


def server_fn(context: Context) -> ServerAppComponents:
    """Build the loop; its records go to the folder in the run_config."""
    given = context.run_config
    rounds = int(given["rounds"])
    toy = toy_context(rounds=rounds, evaluate_every=3)
    loop = RoundLoop(
        strategy=made("strategy=fedavg", toy, participation=1.0),
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
