"""A federation of toy clients: each moves half-way to its group's target; no data, no network."""

from collections.abc import Callable
from math import inf

import numpy as np
from flwr.common import Code, FitIns, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy

from fl_app.config import load
from fl_app.params import Layout, from_bytes, to_bytes
from fl_app.server_wiring import detection
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.server_context import ServerContext, largest

TARGETS = np.array([[4, 0, 0, 0, 0, 1], [0, 4, 0, 0, 0, 1], [0, 0, 4, 0, 0, 1]], np.float32)
SIZE = TARGETS.shape[1]
LAYOUT = Layout(("w",), ((2, SIZE // 2),), 1)
DETECTION = detection(load([]))


class Proxy(ClientProxy):
    """A client that the tests answer for."""

    def __init__(self, cid: str) -> None:
        super().__init__(cid)
        self.answer = None

    def _none(self, *_: object, **__: object) -> None:
        return None

    get_properties = get_parameters = fit = evaluate = reconnect = _none


Proxy.__abstractmethods__ = frozenset()


def context(**changes: object) -> ServerContext:
    """Return a context of six parameters and ten rounds, with no bound on updates and samples."""
    values = {"seed": 0, "rounds": 10, "layout": LAYOUT, "min_success": 1, "evaluate_every": 5}
    first = {"initial": np.zeros(SIZE, np.float32), "fresh": fresh, "detection": DETECTION}
    free = {"largest_update": None, "clip_update": None, "sample_cap": inf}
    rest = {"evaluate_at_most": None, "look_ahead_every": 1, "benign": largest}
    return ServerContext(**(values | first | free | rest | changes))


def fresh(number: int) -> np.ndarray:
    """Return a first model by its number."""
    return np.random.default_rng(number).normal(size=SIZE).astype(np.float32)


def roster(clients: int, groups: int = 3) -> Roster:
    """Return a roster whose node ids have nothing to do with the client ids."""
    known = Roster()
    for client in range(clients):
        proxy = Proxy(str(7919 * (client + 3) % 10007))
        known.register(proxy)
        known.introduce(proxy, Identity(client, client % groups, 10 + client))
    return known


def honest(client: int, start: np.ndarray, server_round: int) -> FitRes:
    """Train: half-way to the target, with a little noise of the client's own."""
    noise = np.random.default_rng((client, server_round)).normal(0, 0.01, SIZE)
    model = start + 0.5 * (TARGETS[client % len(TARGETS)] - start) + noise
    return reply(model.astype(np.float32), samples=10 + client)


def reply(model: np.ndarray, *, samples: int = 10, loss: float = 0.5) -> FitRes:
    """Return a well-formed reply."""
    parameters = Parameters([to_bytes(model)], "numpy.ndarray")
    return FitRes(Status(Code.OK, ""), parameters, samples, {"loss": loss, "train_s": 0.0})


def play(
    strategy: CommunityStrategy,
    known: Roster,
    rounds: range,
    *,
    client: Callable[[int, np.ndarray, int], FitRes | None] = honest,
    reverse: bool = False,
) -> None:
    """Run rounds of a strategy; `reverse` hands the replies over in the opposite order.

    A client that answers None sends no reply.
    """
    parameters = strategy.initialize_parameters(known)
    for server_round in rounds:
        instructions: list[tuple[ClientProxy, FitIns]] = strategy.configure_fit(
            server_round, parameters, known
        )
        results = [
            (proxy, answer)
            for proxy, ins in instructions
            if (answer := answer_of(client, known.client_id(proxy), ins, server_round)) is not None
        ]
        parameters, _ = strategy.aggregate_fit(
            server_round, results[::-1] if reverse else results, []
        )


def answer_of(
    client: Callable[[int, np.ndarray, int], FitRes | None],
    client_id: int,
    ins: FitIns,
    server_round: int,
) -> FitRes | None:
    """Of several models train the one that is nearest to the client's target."""
    starts = [from_bytes(tensor) for tensor in ins.parameters.tensors]
    target = TARGETS[client_id % len(TARGETS)]
    choice = int(np.argmin([np.linalg.norm(start - target) for start in starts]))
    answer = client(client_id, starts[choice], server_round)
    if answer is not None:
        answer.metrics.setdefault("choice", choice)
    return answer
