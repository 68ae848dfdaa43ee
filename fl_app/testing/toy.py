"""A federation of toy clients: each moves half-way to its group's target; no data, no network."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from flwr.common import Code, FitIns, FitRes, Parameters, Scalar, Status
from flwr.server.client_proxy import ClientProxy

from fl_app.config import load, option
from fl_app.graph.vector_backends import InMemory, VectorBackend
from fl_app.learner_reports import (
    HELD_OUT,
    HELD_OUT_PARTS,
    LARGEST,
    OFFERED,
    Report,
    Told,
    asked,
    packed,
    request,
)
from fl_app.params import Layout, from_bytes, to_bytes
from fl_app.server_wiring import detection
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import FitInstructions
from fl_app.strategies.roster import Identity, Roster
from fl_app.strategies.server_context import ServerContext, largest
from fl_app.types import Vector
from fl_app.wiring import made

TARGETS = np.array([[4, 0, 0, 0, 0, 1], [0, 4, 0, 0, 0, 1], [0, 0, 4, 0, 0, 1]], np.float32)
SIZE = TARGETS.shape[1]
LAYOUT = Layout(("w",), ((2, SIZE // 2),), 1)
CENTROIDS = Layout(("centroids", "counts"), ((1, 5), (1,)), 1)
"""One centroid of five coordinates, and its count: as many numbers as the toy has."""
MIXTURE = Layout(("components.0.w", "components.1.w", "weights"), ((1, 2), (1, 2), (2,)), 2)
"""Two components of two numbers, and their weights."""
LAYOUTS = {"centroids": CENTROIDS, "mixture": MIXTURE}
DETECTION = detection(load([]))
USUAL = {
    "participation": 0.5, "cluster_round": 5, "threshold": 0.5, "malicious": 1, "fallback": False,
}  # fmt: skip
"""Settings for a few rounds of the toy, of which a method gets those that it has."""
Build = Callable[[ServerContext], CommunityStrategy]


def builder(name: str, **changes: Any) -> Build:
    """Return a function that builds the method that `strategy=<name>` selects, for the toy."""
    target = option(f"strategy={name}")
    usual = {key: value for key, value in USUAL.items() if key in target.options}

    def build(given: ServerContext) -> CommunityStrategy:
        kind = getattr(target.resolve(), "model_kind", "network")
        fitting = replace(given, layout=LAYOUTS.get(kind, given.layout))
        built: CommunityStrategy = made(f"strategy={name}", fitting, **(usual | changes))
        return built

    return build


class Proxy(ClientProxy):
    """A client whose replies the tests write."""

    def _none(self, *_: Any, **__: Any) -> Any:
        return None

    get_properties = get_parameters = fit = evaluate = reconnect = _none


Proxy.__abstractmethods__ = frozenset()


def context(**changes: Any) -> ServerContext:
    """Return a context of six parameters and ten rounds, with no bound on updates and samples."""
    values: dict[str, Any] = {
        "seed": 0,
        "rounds": 10,
        "layout": LAYOUT,
        "initial": np.zeros(SIZE, np.float32),
        "min_success": 1,
        "evaluate_every": 5,
        "evaluate_at_most": None,
        "largest_update": None,
        "clip_update": None,
        "sample_cap": inf,
        "detection": DETECTION,
        "vector_backend": in_memory,
        "look_ahead_every": 1,
        "contrast": False,
        "or_own": False,
        "private": False,
        "noise_varies": False,
        "metrics": (),
        "classes": len(TARGETS),
        "inputs": SIZE,
        "has_accuracy": True,
        "least_loss": -LARGEST,
        "benign": largest,
        "fresh": fresh,
        "union": None,
    }
    return ServerContext(**(values | changes))


def in_memory(*, length: int, whole: bool) -> VectorBackend:
    """Return an exact store of vectors in memory."""
    return InMemory()


def fresh(number: int) -> Vector:
    """Return a first model by its number."""
    return np.asarray(np.random.default_rng(number).normal(size=SIZE), np.float32)


def roster(clients: int, groups: int = 3) -> Roster:
    """Return a roster whose node ids are unrelated to the client ids."""
    known = Roster()
    for client in range(clients):
        join(known, client, client % groups)
    return known


def join(known: Roster, client: int, group: int = 0) -> None:
    """Let a client connect, and say who it is."""
    proxy = Proxy(str(7919 * (client + 3) % 10007))
    known.register(proxy)
    known.introduce(proxy, Identity(client, group, 10 + client))


def parts(strategy: CommunityStrategy) -> set[frozenset[int]]:
    """Return the communities of the members."""
    members = strategy.state.communities.members
    return {frozenset(c for c in members if members[c] == row) for row in members.values()}


def honest(client: int, start: Vector, server_round: int) -> FitRes:
    """Train: half-way to the target, with a little noise of the client's own."""
    noise = np.random.default_rng((client, server_round)).normal(0, 0.01, SIZE)
    model = start + 0.5 * (TARGETS[client % len(TARGETS)] - start) + noise
    return reply(model.astype(np.float32), samples=10 + client)


def reply(model: Vector, *, samples: int = 10, loss: float = 0.5) -> FitRes:
    """Return a well-formed reply."""
    parameters = Parameters([to_bytes(model)], "numpy.ndarray")
    return FitRes(Status(Code.OK, ""), parameters, samples, {"loss": loss, "train_s": 0.0})


def play(
    strategy: CommunityStrategy,
    known: Roster,
    rounds: range,
    *,
    client: Callable[[int, Vector, int], FitRes | None] = honest,
    reverse: bool = False,
) -> None:
    """Run rounds of a strategy; `reverse` hands the replies over in the opposite order.

    A client that answers None sends no reply.
    """
    parameters: Parameters | None = strategy.initialize_parameters(known)
    for server_round in rounds:
        assert parameters is not None
        instructions: FitInstructions = strategy.configure_fit(server_round, parameters, known)
        results = [
            (proxy, answer)
            for proxy, ins in instructions
            if (answer := answer_of(client, known.client_id(proxy), ins, server_round)) is not None
        ]
        for proxy, answer in results:
            question = strategy.cohort.asked[proxy.cid]
            group = known.groups().get(question.client_id, question.client_id)
            answer.metrics = told(group, question.reports) | answer.metrics
        parameters, _ = strategy.aggregate_fit(
            server_round, results[::-1] if reverse else results, []
        )


def told(group: int, reports: Mapping[str, Report]) -> dict[str, Scalar]:
    """Return the fields of a reply with the reports of the clients of a group, in their ranges."""
    draw, values = np.random.default_rng(group), dict[str, Told]()
    for name, each in reports.items():
        share = draw.uniform(0.25, 0.75, None if each.length is None else int(each.length))
        values[name] = each.low + share * (each.high - each.low)
    return dict(packed(request(reports), values))


def starts(ins: FitIns) -> list[Vector]:
    """Return the models of which a client trains one: without a last one to compare with."""
    models = [from_bytes(tensor) for tensor in ins.parameters.tensors]
    return models if HELD_OUT not in asked(ins.config) else models[:-1] or models


def compared(start: Vector, target: Vector, ins: FitIns) -> dict[str, Scalar]:
    """Return the report on the last model and that which is trained, if it is asked for.

    The losses are their distances to the client's target.
    """
    last = from_bytes(ins.parameters.tensors[-1])
    losses = [np.linalg.norm(model - target) for model in (start, last)]
    told = np.repeat(np.array(losses, np.float32), HELD_OUT_PARTS)
    return dict(packed(ins.config, {HELD_OUT: told}))


def answer_of(
    client: Callable[[int, Vector, int], FitRes | None],
    client_id: int,
    ins: FitIns,
    server_round: int,
) -> FitRes | None:
    """Train the offered model that is nearest to the client's target."""
    models, target = starts(ins), TARGETS[client_id % len(TARGETS)]
    losses = np.array([np.linalg.norm(model - target) for model in models], np.float32)
    choice = int(np.argmin(losses))
    answer = client(client_id, models[choice], server_round)
    if answer is not None:
        told = compared(models[choice], target, ins) | dict(packed(ins.config, {OFFERED: losses}))
        answer.metrics = {"choice": choice, **told, **answer.metrics}
    return answer
