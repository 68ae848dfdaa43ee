"""Two runs side by side: one gets lies, the other does not get what the rules reject.

After every round both must have exactly the same state, and the first must record every liar.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from flwr.common import Code, EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Status
from flwr.server.client_proxy import ClientProxy

sys.path.insert(0, str(Path(__file__).parents[1] / "ingress"))
import rules
from lies import lie_of_evaluation, lie_of_fit

from fl_app.graph.similarity import DISTANCES
from fl_app.params import from_bytes
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.centroid_strategy import CentroidStrategy
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.strategies.server_context import ServerContext
from fl_app.strategies.state import save
from fl_app.testing.toy import (
    SIZE,
    TARGETS,
    Proxy,
    answer_of,
    context,
    fresh,
    honest,
    roster,
    starts,
    told,
)

CLIENTS, LIARS = 12, (1, 4, 7)
HONEST = "honest"
STRANGER = Proxy("5")
MULTIPLE = 1000.0
Build = Callable[[ServerContext], CommunityStrategy]
Reply = tuple[ClientProxy, Any]
Said = list[tuple[str, Reply]]
Asked = list[tuple[ClientProxy, Any]]


@dataclass
class Tally:
    """Replies by kind of lie: the number of all, and of those that were valid."""

    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    valid: Counter[tuple[str, str]] = field(default_factory=Counter)


class Lockstep:
    """Plays rounds of one strategy twice, with lies drawn from `draw`."""

    def __init__(self, build: Build, draw: Random) -> None:
        start = {"initial": fresh(0), "evaluate_every": 1}
        given = context(**start, largest_update=MULTIPLE, clip_update=2.0, sample_cap=10.0)
        self.lied, self.clean = build(given), build(given)
        self.known, self.draw, self.tally = roster(CLIENTS), draw, Tally()
        self.asked: dict[str, FitIns] = {}
        self.still = draw.random() < 0.1  # the honest have come to their end

    def round(self, server_round: int) -> None:
        """Play one round; raises AssertionError if a lie has an effect or is not recorded."""
        named = self._fit(server_round)
        assert set(self.lied.rejections.by_client) == named, (self.lied.rejections.by_client, named)
        named |= self._evaluate(server_round)
        assert set(self.lied.rejections.by_client) == named, (self.lied.rejections.by_client, named)
        assert not self.clean.rejections.by_client, self.clean.rejections.by_client
        assert state(self.lied, server_round) == state(self.clean, server_round)

    def _fit(self, server_round: int) -> set[int | str]:
        first = self.lied.initialize_parameters(self.known)
        asked, same = (
            strategy.configure_fit(server_round, first, self.known)
            for strategy in (self.lied, self.clean)
        )
        assert asked == same
        self.asked = {proxy.cid: ins for proxy, ins in asked}
        said = [
            each
            for proxy, ins in asked
            for each in self._said(proxy, self._trained(proxy, ins, server_round), lie_of_fit)
        ]
        kept, named = self._sorted_out(said, self._is_fit)
        long = self._too_long(kept)
        named |= {self.known.client_id(proxy) for proxy, _ in long}
        kept = [each for each in kept if each not in long]
        self._count("fit", said, kept)
        if kept:
            self._tell_of_fits(server_round, asked, said)
            self.clean.aggregate_fit(server_round, kept, [])
            return named
        # nobody is left but liars: the round is skipped, as the loop does
        with pytest.raises(TooFewRepliesError):
            self._tell_of_fits(server_round, asked, said)
        with pytest.raises(TooFewRepliesError):
            self.clean.aggregate_fit(server_round, kept, [])
        return named

    def _evaluate(self, server_round: int) -> set[int | str]:
        first = self.lied.initialize_parameters(self.known)
        asked, same = (
            strategy.configure_evaluate(server_round, first, self.known)
            for strategy in (self.lied, self.clean)
        )
        assert asked == same
        self.asked = {proxy.cid: ins for proxy, ins in asked}
        rows = {(proxy.cid, ins.config["community"]) for proxy, ins in asked}
        said = [
            each
            for proxy, ins in asked
            for each in self._said(proxy, self._scored(proxy, ins), lie_of_evaluation)
        ]
        kept, named = self._sorted_out(
            said,
            lambda proxy, reply: self._key(proxy, reply) in rows and self._is_score(proxy, reply),
        )
        self._count("evaluation", said, kept)
        self._tell_of_scores(server_round, asked, said)
        self.clean.aggregate_evaluate(server_round, kept, [])
        return named

    def _tell_of_fits(self, server_round: int, asked: Asked, said: Said) -> None:
        self.lied.aggregate_fit(server_round, [reply for _, reply in said], [])

    def _tell_of_scores(self, server_round: int, asked: Asked, said: Said) -> None:
        self.lied.aggregate_evaluate(server_round, [reply for _, reply in said], [])

    def _trained(self, proxy: ClientProxy, ins: FitIns, server_round: int) -> FitRes:
        client = self.known.client_id(proxy)
        trained = answer_of(honest, client, ins, server_round)
        assert trained is not None
        if self.still:
            start = ins.parameters.tensors[trained.metrics["choice"]]
            trained.parameters = Parameters([start], "numpy.ndarray")
        trained.metrics |= told(client % len(TARGETS), self.lied.cohort.asked[proxy.cid].reports)
        return trained

    def _scored(self, proxy: ClientProxy, ins: EvaluateIns) -> EvaluateRes:
        """Score a model as a toy client does: by its distance to the client's target."""
        client = self.known.client_id(proxy)
        target = TARGETS[client % len(TARGETS)]
        loss = float(np.linalg.norm(from_bytes(ins.parameters.tensors[0]) - target))
        metrics = {"accuracy": 1 / (1 + loss), "choice_loss": loss} | {
            "community": ins.config["community"]
        }
        if isinstance(self.lied, CentroidStrategy):
            metrics["table"] = np.array([[client, 6, 4]], np.int64).tobytes()
        return EvaluateRes(Status(Code.OK, ""), loss, 10 + client, metrics)

    def _said(
        self, proxy: ClientProxy, reply: Any, lie: Callable[[Random, Any], tuple[str, Any]]
    ) -> Said:
        """Return the replies to one question: that of its client, and those of others."""
        draw = self.draw
        if self.known.client_id(proxy) not in LIARS:
            return [(HONEST, (proxy, reply))]
        kind, told = lie(draw, reply)
        found = [(kind, (proxy, told))]
        if draw.random() < 0.2:
            found.append(("a second answer", (proxy, reply)))
        if draw.random() < 0.1:
            found.append(("of nobody asked", (STRANGER, reply)))
        if draw.random() < 0.1:
            liars = [self.known.proxies()[client] for client in LIARS]
            found.append(("another's answer", (draw.choice(liars), reply)))
        draw.shuffle(found)
        return found

    def _sorted_out(
        self, said: Said, valid: Callable[[ClientProxy, Any], bool]
    ) -> tuple[list[Reply], set[int | str]]:
        """Return the valid replies, only the first to each question, and the clients to record."""
        kept: list[Reply] = []
        named: set[int | str] = set()
        answered = set()
        for _, pair in said:
            proxy, reply = pair
            key = self._key(proxy, reply)
            if key not in answered and valid(proxy, reply):
                kept.append(pair)
            else:
                asked = proxy.cid in self.asked
                named.add(self.known.client_id(proxy) if asked else f"node {proxy.cid}")
            answered.add(key)
        return kept, named

    @staticmethod
    def _key(proxy: ClientProxy, reply: object) -> tuple[str, int | None]:
        """Return which question a reply answers; one that cannot be read answers none."""
        metrics = reply.metrics if isinstance(reply, EvaluateRes) else None
        said = metrics.get("community") if type(metrics) is dict else None
        return proxy.cid, said if type(said) is int else None

    def _is_fit(self, proxy: ClientProxy, reply: object) -> bool:
        ins = self.asked.get(proxy.cid)
        if ins is None:
            return False
        samples = self.known.samples(self.known.client_id(proxy))
        offers = len(starts(ins))
        reports = self.lied.cohort.asked[proxy.cid].reports
        asked = {name: (each.length, each.low, each.high) for name, each in reports.items()}
        fits = rules.is_fit(reply, size=SIZE, rows=offers, samples=samples, asked=asked)
        return fits and usable(self.lied, reply)

    def _is_score(self, proxy: ClientProxy, reply: Any) -> bool:
        samples = self.known.samples(self.known.client_id(proxy))
        if isinstance(self.lied, CentroidStrategy) and rules.is_score(reply):
            rows, classes = self.lied.k, self.lied.context.classes
            return rules.is_table(reply, rows=rows, classes=classes, samples=samples)
        return rules.is_score(reply)

    def _too_long(self, kept: Sequence[Reply]) -> list[Reply]:
        if self.lied.screens_direction and len(kept) < 3:
            return []
        models = [from_bytes(reply.parameters.tensors[0]) for _, reply in kept]
        offers = [self.asked[proxy.cid].parameters.tensors for proxy, _ in kept]
        starts = [
            from_bytes(tensors[reply.metrics.get("choice", 0)])
            for tensors, (_, reply) in zip(offers, kept, strict=True)
        ]
        part = self.lied.context.layout.direction
        parts = ([] if self.lied.screens_direction else [slice(None)]) + [part] * (len(kept) > 2)
        found = set[int]()
        for each in parts:
            some = [[vector[each] for vector in vectors] for vectors in (models, starts)]
            found |= {*rules.too_long(*some, multiple=MULTIPLE)}
        return [kept[place] for place in sorted(found)]

    def _count(self, what: str, said: Said, kept: Sequence[Reply]) -> None:
        ids = {id(pair) for pair in kept}
        for kind, pair in said:
            if kind != HONEST:
                self.tally.told[what, kind] += 1
                self.tally.valid[what, kind] += id(pair) in ids


def usable(strategy: CommunityStrategy, reply: FitRes) -> bool:
    """Whether a method can use a valid model: see the `check` of each."""
    model = from_bytes(reply.parameters.tensors[0])
    if isinstance(strategy, CentroidStrategy):
        counts = model[strategy.k * strategy.length :].astype(float)
        return bool((counts >= 0).all() and counts.sum() <= reply.num_examples * (1 + 1e-6))
    between = getattr(strategy, "between", None)
    return between is not DISTANCES["trusted"] or bool(model.any())


def state(strategy: CommunityStrategy, server_round: int) -> tuple[Any, ...]:
    """Return the whole state of a strategy, so that two strategies can be compared."""
    arrays, values = save(strategy.state)
    outcome = strategy.outcome(server_round)
    return (
        {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()},
        json.dumps(values, sort_keys=True, allow_nan=False),
        outcome.models.tobytes(),
        outcome.members,
        json.dumps(outcome.notes),
        repr(outcome.scores),
        [repr(event) for event in outcome.events],
        outcome.step,
        outcome.stability,
        outcome.dominance,
        outcome.metrics,
        outcome.training_s,
        sorted(outcome.removed.items()),
        outcome.suspects(strategy.context.benign),
    )
