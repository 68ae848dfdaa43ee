"""Flower ClientApp: one client's properties, training and evaluation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import flwr
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
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

from fl_app.uncollected import uncollected

with uncollected():
    from fl_app import client_wiring
    from fl_app.client import local_state
    from fl_app.client.local import LocalClient
    from fl_app.client.memory import Memory
    from fl_app.client.node_memory import NodeMemory
    from fl_app.client.private_losses import TOLD, answers
    from fl_app.client_mods import CLIENT, as_addressed, as_attached, as_private
    from fl_app.config import Config
    from fl_app.ingress.evaluations import METRIC
    from fl_app.ingress.placements import LOSSES, PLACE
    from fl_app.learner_reports import HELD_OUT, OFFERED, Told, asked, packed
    from fl_app.params import from_bytes, to_bytes
    from fl_app.run_config import of_run
    from fl_app.types import Vector
    from fl_app.wiring import kept_by, masking

Hold = Callable[[LocalClient, Vector, int], None]
"""Stores a client's own model (d,) after a round where the client finds it."""
_OK = Status(Code.OK, "")
_LOCAL, _OWN = "local tensors", "own updates"


class ContextMemory:
    """Stores what stays with a client in Flower's state of its node, until the run ends.

    It is stored under a `name`, so that a client can have several.
    """

    def __init__(self, state: RecordDict, name: str = _LOCAL) -> None:
        self.state, self.name = state, name

    def read(self, until: int) -> dict[str, np.ndarray]:
        """Return what was written last; empty for a client that has not trained."""
        stored = self.state.array_records.get(self.name)
        return {} if stored is None else {name: each.numpy() for name, each in stored.items()}

    def write(self, tensors: Mapping[str, np.ndarray], server_round: int) -> None:
        """Replace what is stored."""
        self.state[self.name] = ArrayRecord({name: Array(each) for name, each in tensors.items()})


class FederatedClient(Client):
    """Decodes messages of the server, calls the local client, encodes its reply.

    `hold` stores the model that a newcomer chooses; None: it is only told to the server.
    """

    def __init__(self, local: LocalClient, hold: Hold | None = None) -> None:
        self.local, self.hold = local, hold

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Return the introduction of this client."""
        local = self.local
        return _introduction(
            local.client_id, group=local.group, samples=local.samples, malicious=local.malicious
        )

    def fit(self, ins: FitIns) -> FitRes:
        """Train the received model, or the best of several on the client's data; return it.

        If the losses on held-out samples are asked for, the last model is only compared with.
        """
        starts = [from_bytes(tensor) for tensor in ins.parameters.tensors]
        now = int(ins.config["round"])
        other = starts[-1] if HELD_OUT in asked(ins.config) else None
        starts = starts if other is None else starts[:-1] or starts
        private = self.local.plan is not None
        choose = self._choose_privately if private else self._choose
        choice, told, loss = choose(starts, now, ins.config)
        done = self.local.fit(starts[choice], server_round=now, task=ins.config, other=other)
        model = Parameters([to_bytes(done.model)], "numpy.ndarray")
        loss = loss if private else done.loss
        metrics: dict[str, Scalar] = {
            **({} if loss is None else {"loss": loss}),
            "train_s": done.seconds,
            "choice": choice,
            **done.metrics,
            **packed(ins.config, {**done.reports, **told}),
        }
        return FitRes(_OK, model, done.samples, metrics)

    def _choose(
        self, starts: Sequence[Vector], now: int, task: Mapping[str, Scalar]
    ) -> tuple[int, dict[str, Told], float | None]:
        """Return the index of the best model (d,), and the losses of all if they are asked for."""
        wanted = OFFERED in asked(task)
        if len(starts) == 1 and not wanted:
            return 0, {}, None
        losses = self.local.offered_losses(starts, server_round=now, task=task)
        return int(losses.argmin()), {OFFERED: losses} if wanted else {}, None

    def _choose_privately(
        self, starts: Sequence[Vector], now: int, task: Mapping[str, Scalar]
    ) -> tuple[int, dict[str, Told], float | None]:
        """Return the index of the model (d,) with the least noisy loss, and this loss if asked."""
        if HELD_OUT in asked(task) or not answers(task, len(starts)):
            return 0, {}, None
        losses = self.local.noisy_losses(
            starts, server_round=now, task=task, purpose="losses of a training"
        )
        best = int(losses.argmin())
        return best, {}, float(losses[best]) if task.get(TOLD) else None

    def evaluate(self, ins: EvaluateIns) -> EvaluateRes:
        """Score the received model on test data, and for a choice also on training data.

        With a privacy never on training data. A newcomer instead gets all models at once, and says
        which of them suits it.
        """
        if ins.config.get(PLACE):
            return self._placed(ins)
        model = from_bytes(ins.parameters.tensors[0])
        now, local = int(ins.config["round"]), self.local
        score = local.score(model, train_data=False, server_round=now)
        metrics: dict[str, Scalar] = {}
        if local.plan is None:
            chooses = bool(ins.config["choose"])
            choice = local.score(model, train_data=True, server_round=now) if chooses else score
            metrics["choice_loss"] = choice.loss
        if score.accuracy is not None:
            metrics["accuracy"] = score.accuracy
        metrics |= {f"{METRIC}{name}": value for name, value in score.metrics.items()}
        if score.table is not None:
            metrics["table"] = np.ascontiguousarray(score.table, np.int64).tobytes()
        success = local.attack_success(model, server_round=now)
        if success is not None:
            metrics["attack_success"] = success
        return EvaluateRes(_OK, score.loss, score.samples, metrics)

    def _placed(self, ins: EvaluateIns) -> EvaluateRes:
        """Return the training loss of every model, and hold the one with the least.

        With a privacy the losses are noisy, and so is what they say of the best model.
        """
        models = [from_bytes(tensor) for tensor in ins.parameters.tensors]
        now = int(ins.config["round"])
        if self.local.plan is None:
            losses = self.local.losses(models, server_round=now)
        else:
            losses = self.local.noisy_losses(
                models, server_round=now, task=ins.config, purpose="losses of a newcomer"
            )
        best = int(losses.argmin())
        if self.hold is not None:
            self.hold(self.local, models[best], now)
        metrics: dict[str, Scalar] = {LOSSES: losses.astype("<f4").tobytes()}
        return EvaluateRes(_OK, float(losses[best]), self.local.samples, metrics)


class ClientBeyond(Client):
    """Introduces a client that the run does not have, as of a node that was added for later runs.

    The server is told its id instead of a failure, and can say it once.
    """

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id

    def get_properties(self, ins: GetPropertiesIns) -> GetPropertiesRes:
        """Return the introduction of this client, which has no data in the run."""
        return _introduction(self.client_id, group=-1, samples=0, malicious=False)


def _introduction(client_id: int, *, group: int, samples: int, malicious: bool) -> GetPropertiesRes:
    properties: dict[str, Scalar] = {
        "client_id": client_id,
        "group": group,
        "samples": samples,
        "malicious": malicious,
        "flower": flwr.__version__,
    }
    return GetPropertiesRes(_OK, properties)


def client_fn(context: Context) -> Client:
    """Build the client of a node: its `partition-id` is the client id."""
    config = of_run(context.run_config, on_client=True)
    root = context.node_config.get("data-root")
    client_id = int(context.node_config[CLIENT])
    if client_id >= config.population.options["clients"]:
        return ClientBeyond(client_id)
    data_root = None if root is None else str(root)
    memory = _memory(config, client_id, context)
    local = client_wiring.client(config, client_id, data_root, memory)
    folder = context.node_config.get("model-folder")
    return FederatedClient(local, None if folder is None else _holder(config, folder, data_root))


def _memory(config: Config, client_id: int, context: Context) -> Memory:
    """Return where that stays which never leaves the client.

    Raises ValueError for a run that goes on after a resume or a loss, if the node has no place for
    it that outlives a submission.
    """
    return _place(config, client_id, context, kept_by(config), _LOCAL)


def _own_updates(config: Config, client_id: int, context: Context) -> Memory:
    """Return where a client cumulates its own updates; raises ValueError as `_memory`."""
    return _place(config, client_id, context, f"strategy={config.strategy.path}", _OWN)


def _place(config: Config, client_id: int, context: Context, kept: str, name: str) -> Memory:
    """Return the place of what stays with a client because of the settings `kept`."""
    run, every = config.records.folder, config.records.checkpoint_every
    place = context.node_config.get("state-folder")
    part = "" if name == _LOCAL else name
    # a lost run is submitted again with the settings of its start, so that it says no resume
    goes_on = config.records.resume or config.records.restarts > 0
    if not kept or run is None:
        return ContextMemory(context.state, name)
    if config.engine.name != "deployment":
        return local_state.of_run(Path(run), client_id, every, part)
    if place is not None:
        found = NodeMemory(
            root=Path(str(place)).expanduser(),
            client_id=client_id,
            part=part,
            folder=run,
            run=config.records.id,
            every=every,
        )
        return found.begin(context.run_id, goes_on=goes_on)
    if goes_on:
        raise ValueError(
            f"the node config must have state-folder to resume a run with {kept} or to go on with "
            "one that was lost, got none, so what this client had of its own is lost; start a new "
            "run"
        )
    return ContextMemory(context.state, name)


def _holder(config: Config, folder: object, data_root: str | None) -> Hold:
    from fl_app.held_model import hold  # loads what writes the records of a run

    return partial(hold, config, Path(str(folder)), data_root)


def as_masked(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer without anything of this client alone, if the run has masks."""
    config = of_run(context.run_config, on_client=True)
    if not masking(config.masking).masks:
        return call_next(message, context)
    from fl_app.masked_client import answer  # loads cryptography

    client_id = int(context.node_config[CLIENT])
    memory = partial(_own_updates, config, client_id, context)
    return answer(message, context, call_next, config, memory)


MODS: list[Mod] = [as_addressed, as_attached, as_private, as_masked]
"""What every ClientApp with these clients needs; without it, masks and privacy do not hold."""
app = ClientApp(client_fn, mods=MODS)
