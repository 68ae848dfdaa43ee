"""Places clients that join later: they get all community models and say which one suits them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.attribution import margin
from fl_app.engines.availability import Availability
from fl_app.ingress.admission import admit
from fl_app.ingress.placements import PLACE, PlacementAnswer, PlacementQuestion, read_placement
from fl_app.ingress.rejection import RejectionError
from fl_app.params import COMMUNITY
from fl_app.records.newcomers import (
    Placed,
    read_first,
    read_newcomers,
    write_first,
    write_newcomers,
)
from fl_app.records.serving import Served, community_name
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.encoding import encode
from fl_app.strategies.outcome import Event
from fl_app.strategies.replies import ClientFailure, RejectedReply
from fl_app.types import Vectors

log = getLogger(__name__)
ASKED = 3
"""How often a newcomer is asked if it does not answer, or answers nonsense."""
_OF = "placement: "
PLACED = "placed"
"""Kind of the event that names a client which has answered."""
OF_ALL = -2
"""The `community` of a question about all of them."""
Send = Callable[
    [int, Sequence[tuple[ClientProxy, EvaluateIns]]],
    tuple[list[tuple[ClientProxy, EvaluateRes]], list[ClientFailure]],
]


class Newcomers:
    """The clients of a run that joined after its start, and where they were placed.

    A newcomer is asked once, in one exchange and without training: it gets the models of all
    communities and answers with its training loss for each. Ghosh et al., NeurIPS 2020, algorithm
    1: the choice of an IFCA client. The method decides by itself as soon as the client trains.

    `now` has the rows of the clients that were placed after the last round, and `events` what
    became of those that were asked last; the malformed answers among them are `refused`. Without
    `places` nobody is asked.

    With a privacy no evaluation compares models. With `unplaced` the clients with neither a
    community nor a choice are asked instead, also if they are not new. The answer is noisy and
    booked, and the client keeps its choice. Nobody is asked if noise would hide what suits it.
    """

    def __init__(
        self,
        method: CommunityStrategy,
        availability: Availability,
        folder: Path,
        *,
        places: bool,
        unplaced: bool = False,
    ) -> None:
        self.method, self.folder, self.places = method, folder, places
        self.unplaced = unplaced
        self.availability, self.roster = availability, availability.roster
        self.now: dict[int, int] = {}
        self.events: list[Event] = []
        self.refused: list[RejectedReply] = []
        self._known: set[int] = set()
        self._asked: dict[int, int] = {}

    def begin(self, server_round: int, rounds: Sequence[Mapping[str, Any]]) -> None:
        """Take the clients of earlier rounds as known, or without any those that are here."""
        if not self._active:
            return
        self.availability.show_members(server_round)
        if rounds:  # a run without the file of the first clients is an older one
            first = read_first(self.folder) or set(_seen(rounds))
            self._known = first.union(_placed(rounds))
        else:
            self._known = set(self.roster.proxies())
            write_first(self.folder, self._known)
        done = rounds[-1]["round"] if rounds else 0
        if (budget := self.availability.budget) is not None:
            self._asked = dict(budget.questions)  # each is a release, also before a resume
        private, ended = self.method.context.private, done >= self.method.context.rounds
        for client, each in read_newcomers(self.folder).items() if rounds else ():
            row = int(each.model.removeprefix(COMMUNITY))
            if private and each.round >= done and not ended:
                continue  # no record has what it released; it is asked again
            if each.round == done:  # the models are still those that it chose from
                self.now[client] = row
        self.method.chose(self.now)  # not in a checkpoint of that round, which is older
        self._known |= self.now.keys()

    def waiting(self) -> list[int]:
        """Return the newcomers that are to be asked."""
        settled = {*self.method.state.communities.members, *self.method.state.removed}
        if self.method.context.private:
            settled |= self.method.state.evaluated.keys()
        present = [c for c in self.roster.proxies() if c not in settled]
        new = {c for c in present if c not in self._known} if self.places else set[int]()
        if self.unplaced and not self.method.compares:  # else they choose when they train
            new |= self._with_a_choice(present)
        return [c for c in present if c in new and self._asked.get(c, 0) < ASKED]

    @property
    def _active(self) -> bool:
        return self.places or self.unplaced

    def _with_a_choice(self, clients: Sequence[int]) -> set[int]:
        """Return the clients that would get several models."""
        _, rows = self.method.attribute(clients)
        return {client for client, each in zip(clients, rows, strict=True) if len(each) > 1}

    def asks(self) -> bool:
        """Whether newcomers that are present now are to be asked before the next round."""
        models = self.method.state.communities.models
        return self._active and _differ(models) and bool(self.waiting())

    def place(self, server_round: int, send: Send, *, ended: bool = False) -> None:
        """Ask the newcomers, if there is a choice or the run has `ended` after this round."""
        self.events, self.refused = [], []
        if not self._active:
            return
        self.availability.show_members(server_round)
        models = self.method.state.communities.models
        clients = self.waiting() if ended or _differ(models) else []
        found = self._ask(server_round, clients, models, send) if clients else {}
        done = server_round if ended else server_round - 1
        found = {client: replace(each, round=done) for client, each in found.items()}
        if found:
            write_newcomers(self.folder, read_newcomers(self.folder) | found)
        placed = {c: int(each.model.removeprefix(COMMUNITY)) for c, each in found.items()}
        self.method.chose(placed)
        self.now = {**self.now, **placed} if ended else {}

    def served(self, found: Served) -> Served:
        """Return the models of clients with those of the newcomers."""
        placed = {client: (community_name(row),) for client, row in self.now.items()}
        return replace(found, clients={**found.clients, **placed})

    def _ask(
        self, server_round: int, clients: Sequence[int], models: Vectors, send: Send
    ) -> dict[int, Placed]:
        """Return where the clients that answered belong."""
        given: dict[str, Scalar] = {PLACE: True, "round": max(1, server_round), "community": OF_ALL}
        told = {client: self._told(server_round, client, len(models)) for client in clients}
        clients = [client for client in clients if told[client] is not None]
        encoded = encode(*models)
        proxies = {client: self.roster.proxy(client) for client in clients}
        least = self.method.context.least_loss
        asked = {p.cid: PlacementQuestion(c, len(models), least) for c, p in proxies.items()}
        for client in clients:
            self._asked[client] = self._asked.get(client, 0) + 1
        questions = [
            (proxy, EvaluateIns(encoded, {**given, **(told[client] or {})}))
            for client, proxy in proxies.items()
        ]
        results, failures = send(server_round, questions) if questions else ([], [])
        for failure in failures:
            self._tell(Event("not placed", str(failure), [int(failure.client_id)]))
            if isinstance(failure, RejectedReply):
                self.refused.append(RejectedReply(failure.client_id, _OF + failure.reason))
        keyed = [(proxy.cid, reply) for proxy, reply in results]
        answers = admit(keyed, asked, read_placement, self._reject)
        return {each.client_id: self._settle(each, server_round) for each in answers}

    def _told(self, server_round: int, client: int, models: int) -> Mapping[str, Scalar] | None:
        """Return what a question says of privacy; None, and an event: it would be of no use."""
        budget = self.availability.budget
        if budget is None:
            return {}
        found = budget.question(server_round, client, models, self.roster)
        if found is None:
            self._asked[client] = ASKED
            why = "noise would hide which model suits it, or its budget is spent"
            self._tell(Event("not placed", f"client {client}: {why}", [client]))
        return found

    def _reject(self, node: str, question: PlacementQuestion | None, error: RejectionError) -> None:
        client: int | str = f"node {node}" if question is None else question.client_id
        who = client if isinstance(client, str) else f"client {client}"
        told = [] if question is None else [question.client_id]
        self._tell(Event("not placed", f"{who}: {error}", told))
        self.refused.append(RejectedReply(client, f"{_OF}{error}"))

    def _settle(self, answer: PlacementAnswer, server_round: int) -> Placed:
        client, row = answer.client_id, int(answer.losses.argmin())
        values = {community_name(k): float(loss) for k, loss in enumerate(answer.losses)}
        budget = self.availability.budget
        spent = None if budget is None else budget.spent(client)
        found = Placed(server_round, community_name(row), margin(answer.losses), values, spent)
        self._known.add(client)
        sure = "" if found.margin is None else f", margin to the second {found.margin:.1%}"
        self._tell(Event(PLACED, f"client {client} in {found.model}{sure}", [client]))
        return found

    def _tell(self, event: Event) -> None:
        log.info("%s: %s", event.kind, event.detail)
        self.events.append(event)


def _differ(models: Vectors) -> bool:
    """Return whether there is a choice; after the first clustering all models may be equal."""
    return any(not np.array_equal(each, models[0]) for each in models[1:])


def _seen(rounds: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    """Return the clients that earlier rounds trained or evaluated."""
    for each in rounds:
        yield from each["sampled"]
        yield from map(int, (each["accuracy"] or {}).get("clients", ()))


def _placed(rounds: Iterable[Mapping[str, Any]]) -> Iterable[int]:
    """Return the clients that were placed before earlier rounds, and need not have trained."""
    for each in rounds:
        for event in each.get("events") or ():
            if event["kind"] == PLACED:
                yield from event["clients"]
