"""Flower ClientApp: one client's properties, training and evaluation."""

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import (
    Code,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    GetPropertiesRes,
    Parameters,
    Scalar,
    Status,
)

from fl_app import client_wiring
from fl_app.client.local import LocalClient
from fl_app.config import load_text_on_client
from fl_app.data.population import own
from fl_app.ingress.carried import read_address
from fl_app.ingress.evaluations import METRIC
from fl_app.learner_reports import packed
from fl_app.params import from_bytes, to_bytes

_OK = Status(Code.OK, "")
_LOCAL = "local tensors"
_CLIENT, _NODES = "partition-id", "num-partitions"


class ContextMemory:
    """Stores what stays with a client in Flower's state of its node, as every engine does."""

    def __init__(self, state: RecordDict) -> None:
        self.state = state

    def read(self) -> dict[str, np.ndarray]:
        """Return what was written last; empty for a client that has not trained."""
        stored = self.state.array_records.get(_LOCAL)
        return {} if stored is None else {name: each.numpy() for name, each in stored.items()}

    def write(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Replace what is stored."""
        self.state[_LOCAL] = ArrayRecord({name: Array(each) for name, each in tensors.items()})


class FederatedClient(Client):
    """Decodes messages of the server, calls the local client, encodes its reply."""

    def __init__(self, local: LocalClient) -> None:
        self.local = local

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Return the introduction of this client."""
        local = self.local
        properties: dict[str, Scalar] = {
            "client_id": local.client_id,
            "group": local.group,
            "samples": local.samples,
            "malicious": local.malicious,
        }
        return GetPropertiesRes(_OK, properties)

    def fit(self, ins: FitIns) -> FitRes:
        """Train the received model, or the best of several on the client's data; return it."""
        starts = [from_bytes(tensor) for tensor in ins.parameters.tensors]
        now = int(ins.config["round"])
        choice = self.local.choose(starts, server_round=now)
        done = self.local.fit(starts[choice], server_round=now, task=ins.config)
        model = Parameters([to_bytes(done.model)], "numpy.ndarray")
        metrics: dict[str, Scalar] = {
            "loss": done.loss,
            "train_s": done.seconds,
            "choice": choice,
            **done.metrics,
            **packed(ins.config, done.reports),
        }
        return FitRes(_OK, model, done.samples, metrics)

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Score the received model on test data, and for a choice also on training data."""
        model = from_bytes(ins.parameters.tensors[0])
        now, local = int(ins.config["round"]), self.local
        score = local.score(model, train_data=False, server_round=now)
        choice = score
        if ins.config["choose"]:
            choice = local.score(model, train_data=True, server_round=now)
        metrics: dict[str, Scalar] = {"choice_loss": choice.loss}
        if score.accuracy is not None:
            metrics["accuracy"] = score.accuracy
        metrics |= {f"{METRIC}{name}": value for name, value in score.metrics.items()}
        if score.table is not None:
            metrics["table"] = np.ascontiguousarray(score.table, np.int64).tobytes()
        success = local.attack_success(model, server_round=now)
        if success is not None:
            metrics["attack_success"] = success
        return EvaluateRes(_OK, score.loss, score.samples, metrics)


def client_fn(context: Context) -> Client:
    """Build the client of a node: its `partition-id` is the client id."""
    config = load_text_on_client(str(context.run_config["overrides"]))
    root = context.node_config.get("data-root")
    client_id = int(context.node_config[_CLIENT])
    data_root = None if root is None else str(root)
    memory = ContextMemory(context.state)
    return FederatedClient(client_wiring.client(config, client_id, data_root, memory))


def as_addressed(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the client that a message names, on a simulated node that carries several.

    Each of them has its own part of the node's state.
    """
    config = load_text_on_client(str(context.run_config["overrides"]))
    client_id = read_address(
        message.content,
        clients=config.population.options["clients"],
        nodes=int(context.node_config.get(_NODES, 0)),
        own_data=config.population.resolve() is own,
    )
    if client_id is None:
        return call_next(message, context)
    mark = f"client {client_id}: "
    held = {name: record for name, record in context.state.items() if name.startswith(mark)}
    client = Context(
        context.run_id,
        context.node_id,
        {**context.node_config, _CLIENT: client_id},
        RecordDict({name.removeprefix(mark): record for name, record in held.items()}),
        context.run_config,
    )
    reply = call_next(message, client)
    for name, record in client.state.items():
        context.state[mark + name] = record
    return reply


app = ClientApp(client_fn, mods=[as_addressed])
