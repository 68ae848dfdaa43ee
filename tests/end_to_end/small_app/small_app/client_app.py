"""A client that returns the model that it received."""

import time

from flwr.app import Context
from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Status,
)

OK = Status(Code.OK, "")
SAMPLES = 10
WORK_S = 1.0
"""How long a training or a scoring lasts: a test that kills its node needs to hit it."""


class SmallClient(Client):
    """Says who it is, trains nothing, scores one half."""

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Say who this client is."""
        said = {"client_id": self.client_id, "group": -1, "samples": SAMPLES, "malicious": False}
        return GetPropertiesRes(OK, said)

    def fit(self, ins: FitIns) -> FitRes:
        """Return the model as it came."""
        time.sleep(WORK_S)
        metrics = {"loss": 0.5, "train_s": 0.0, "choice": 0}
        return FitRes(OK, ins.parameters, SAMPLES, metrics)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Return the same score for any model."""
        time.sleep(WORK_S)
        return EvaluateRes(OK, 0.5, SAMPLES, {"accuracy": 0.5, "choice_loss": 0.5})


def client_fn(context: Context) -> Client:
    """Build the client of a node: its `partition-id` is the client id."""
    return SmallClient(int(context.node_config["partition-id"]))


app = ClientApp(client_fn)
