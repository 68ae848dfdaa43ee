"""Methods that first train one model, cluster the clients once, and train one per community."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from flwr.common import Parameters
from flwr.server.client_manager import ClientManager

from fl_app.records.history import FELL_BACK, UNDONE
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import (
    Aggregated,
    FitFailures,
    FitInstructions,
    FitReplies,
    Offer,
    Rows,
)
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import LOOKS, decide
from fl_app.strategies.graph_use import add_updates
from fl_app.strategies.outcome import Event, Outcome, clustering
from fl_app.strategies.regrouping import inside, regrouped, split_by, splits
from fl_app.strategies.replies import Replies
from fl_app.strategies.roster import roster
from fl_app.strategies.trial import begin, learn, of_communities, offered
from fl_app.strategies.two_phase_state import TwoPhaseState
from fl_app.types import Labels

HEARD = 4.0
"""Where not all train in a round, the rounds in which a client trains on average before the own
graph is asked beside contrast. Contrast sees more with each of them, and little of groups that the
own graph has mixed: each community has few replies in a round. It waits no longer than until the
last round after which enough are left to judge what it finds."""


class TwoPhase(CommunityStrategy):
    """`federated` up to the clustering round, then `clustered`: FedAvg in each community.

    A method defines what it stores of the replies, when it clusters, and how it finds
    communities. Clients that were never sampled before belong to no community. In every
    evaluation they try all community models on their training data and choose the best one. They
    do not train: an event names them. With `joining`, which the papers do not have, they train the
    model that they choose and join its community; with a privacy, only one that they chose before.
    With contrast, one community means that no groups are to be seen yet: the sums of updates show
    more with every round, so that communities are looked for again 1, 2, 3, 4, 5, 7, 9, 12, 15, ...
    rounds after the clustering, until there are several.
    With `contrast=both`, where the method itself clusters, the communities are those of its own
    graph if contrast finds one, or only joins some of them, as if attackers hide what else there
    is. Where not all train in a round, the own graph waits: see HEARD. Contrast goes on looking,
    also after these were undone, from the fifth round on also at each of them by itself. Those that
    it then splits are as it says, the others stay (`split_by`), and all are judged anew.
    Until then each community has its own common drift: see `ChangingCommunities`.
    With `fallback`, the clustering is judged after some rounds: see `fl_app.strategies.fallback`.
    After it was undone, the server stores replies again, and clusters anew when as many rounds have
    passed as before the last clustering, if the run has enough left to judge it.
    """

    state: TwoPhaseState
    compares = False
    joining = False
    _without: tuple[int, ...] = ()

    @abstractmethod
    def remember(self, server_round: int, replies: Replies) -> None:
        """Store what the clustering needs, before the replies are aggregated."""

    @abstractmethod
    def is_due(self, server_round: int) -> bool:
        """Whether the clients are clustered after this round."""

    @abstractmethod
    def find(self) -> tuple[Labels, Labels]:
        """Return the sorted ids of the known clients (n,), and their communities (n,).

        There can be none, as cohorts below FEWEST show no common drift: see `add_updates`.
        """

    def find_own(self) -> tuple[Labels, Labels]:
        """Return the same of the method's own graph, which contrast=both needs too."""
        return self.find()

    def look(self, *, own: bool) -> tuple[Labels, Labels, bool]:
        """Return what `find` does, and whether it is of the method's own graph.

        With `own`, the communities of that graph are taken where they only split those of contrast,
        which can be one, or none of cohorts below FEWEST.
        """
        ids, labels = self.find()
        if own and self.context.or_own:
            known, found = self.find_own()
            mine, theirs = _members(known, found), _members(ids, labels)
            if not theirs or (splits(mine, theirs) and not splits(theirs, mine)):
                return known, found, True
        return ids, labels, False

    def cumulate(self, server_round: int, replies: Replies) -> None:
        """With contrast, add the clients' updates to the sums."""
        if self.context.contrast:
            sums, sent = self.state.sums, self.cohort.sent
            add_updates(sums, self.context, server_round, replies, sent, replies.starts)

    @property
    def asks_own(self) -> bool:
        """Whether the method's own graph is to find communities."""
        awaited = self.state.afresh or self.state.waits
        return not self.context.contrast or (self.context.or_own and awaited)

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> FitInstructions:
        """Sample from all clients while there is one model, and then from each community."""
        present, self._without = list(roster(client_manager).proxies()), ()
        if len(self.state.communities.models) == 1:
            cohort = self.sampler.draw(server_round, present, "all")
        else:
            members, count = self.state.communities.members, len(self.state.communities.models)
            cohort = []
            for row in range(count):
                others = row if self.state.open and row == count - 1 else None
                inside = [client for client in present if members.get(client, others) == row]
                cohort += self.sampler.draw(server_round, inside, f"community {row}")
            new = [client for client in present if client not in members]
            if self.state.common is None:
                new = [] if self.state.open else self._joining(new)
            cohort += self.sampler.draw(server_round, new, "no community")
        found = self.instruct(server_round, sorted(cohort), client_manager)
        self._tell_idle()
        return found

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> Aggregated:
        """Store the replies, aggregate per community, and cluster if it is due."""
        replies = self.receive(server_round, results, failures)
        if self._seeks:
            self.remember(server_round, replies)
        learn(self.state, replies, self.aggregator.rule, self.context.clip_update)
        mine = of_communities(self.state, replies)
        self.aggregator.update(self.state.communities.models, mine)
        self._join(mine)
        if not (self.clusters_after(server_round) and self._cluster(server_round)):
            self._judge(server_round)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def outcome(self, server_round: int) -> Outcome:
        """Request an evaluation at the clustering round, for the accuracy before clustering."""
        measures = server_round == self.state.clustered_at
        return replace(super().outcome(server_round), measures=measures)

    @property
    def _seeks(self) -> bool:
        """Whether communities are still to be found."""
        awaited = self.state.by_own or not self.state.grouped
        return self.state.afresh or (self.context.contrast and awaited)

    def clusters_after(self, server_round: int) -> bool:
        """Whether communities are looked for after this round."""
        return self.clusters_anew(server_round) or self._looks_again(server_round)

    def clusters_anew(self, server_round: int) -> bool:
        """Whether the method itself clusters after this round, for the first time or again."""
        at, undone = self.state.clustered_at, self.state.undone_at
        if at is None:
            return self.is_due(server_round)
        left = self.context.rounds - server_round
        if self.state.waits:
            return left >= LOOKS[-1] and not self._is_to_wait(server_round)
        return undone is not None and server_round - undone >= at and left >= LOOKS[-1]

    def _is_to_wait(self, server_round: int) -> bool:
        """Whether the own graph waits, and is not asked after this round: see `HEARD`."""
        share, left = self.sampler.participation, self.context.rounds - server_round
        early = self.context.or_own and share < 1 and share * server_round < HEARD
        return early and left > LOOKS[-1]

    def _looks_again(self, server_round: int) -> bool:
        """Whether contrast looks for groups again after this round."""
        return self.state.since is not None and self._seeks and server_round >= self.state.look_at

    def _joining(self, new: Sequence[int]) -> list[int]:
        """Return which clients without a community train and join one; the others are idle."""
        chosen = self.state.evaluated if self.context.private else new
        found = [client for client in new if client in chosen] if self.joining else []
        self._without = tuple(client for client in new if client not in found)
        return found

    def _join(self, mine: Replies) -> None:
        """Let clients join the community whose model they trained.

        While a split is on trial, nobody joins.
        """
        members, several = self.state.communities.members, len(self.state.communities.models) > 1
        joins = self.joining and several and self.state.common is None and not self.state.open
        for client, row in zip(mine.client_ids.tolist(), mine.starts.tolist(), strict=True):
            if joins and client not in members:
                members[client] = row
                detail = f"client {client} in community {row}"
                self.events.append(Event("joined a community", detail, [client]))
        self.state.idle = sorted({*self._without, *self.state.idle})

    def _tell_idle(self) -> None:
        """Tell of clients that train no model, until a round that is not skipped has told of them.

        In a skipped round they can be all that are left.
        """
        if idle := sorted({*self._without} - {*self.state.idle}):
            remedy = "" if self.joining else "; strategy.joining=true lets them join one"
            detail = f"clients {idle} have no community and do not train{remedy}"
            self.events.append(Event("idle", detail, idle))

    def _judge(self, server_round: int) -> None:
        """Judge a clustering that is on trial."""
        found = decide(self.state, server_round, self.context.rounds)
        for event in found:
            self.state.open = event.kind == FELL_BACK
            if event.kind == UNDONE:
                self.state.undone_at, self.state.look_at = server_round, server_round + 1
        self.events += found

    def _cluster(self, server_round: int) -> bool:
        """Split the clients into communities; return whether they are new.

        Of no known client there are none: they are looked for after the next round.
        """
        state, anew = self.state, self.clusters_anew(server_round)
        if anew:
            state.waits = len(state.sums) > 0 and self._is_to_wait(server_round)
        ids, labels, own = self.look(own=anew and not state.waits)
        if not len(ids):
            return False
        state.search(server_round, anew=anew)
        members, several = _members(ids, labels), bool(labels.any())
        if len(state.communities.models) > 1:
            members, several = self._split(server_round, ids, members), True
        if members:
            state.found(anew=anew, several=several, own=own)
        if not members or (state.searches > 1 and not several):
            return False
        self._begin(server_round, members)
        return True

    def _split(
        self, server_round: int, client_ids: Labels, found: Mapping[int, int]
    ) -> dict[int, int]:
        """Return the communities, of which those that contrast splits are as it says; else none."""
        before = self.state.communities.members
        if not splits(found, before) and server_round - (self.state.since or 0) >= LOOKS[0]:
            found = inside(self.state.sums, client_ids, before)
        return split_by(found, before) if splits(found, before) else {}

    def _begin(self, server_round: int, members: Mapping[int, int]) -> None:
        """Let each community begin with a model of its own, on trial if there are several."""
        state = self.state
        if len(state.communities.models) > 1:
            state.evaluated = {}  # its rows are those of the models before
        state.communities = regrouped(state.communities, members)
        state.clustered_at, state.open = server_round, False
        if self.judges and len(state.communities.models) > 1:
            begin(state, server_round)
        labels = np.array(list(state.communities.members.values()), int)
        self.events.append(clustering(labels))

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's row; while the clustering is on trial, also the common model.

        The clients without a community train it, also once a part of the others fell back to it.
        """
        if self.state.common is not None:
            return offered(self.state, client_ids)
        models, rows, _ = super().offer(server_round, client_ids)
        if self.state.open:
            last: Rows = (len(models) - 1,)
            members = self.state.communities.members
            rows = [
                each if client in members else last
                for client, each in zip(client_ids, rows, strict=True)
            ]
        return models, rows, None

    def known(self) -> tuple[Labels, Labels]:
        """Return the sorted ids of the members (n,) and their communities (n,)."""
        members = self.state.communities.members
        ids = np.array(sorted(members), int)
        return ids, np.array([members[client] for client in ids.tolist()], int)


def _members(client_ids: Labels, labels: Labels) -> dict[int, int]:
    return dict(zip(client_ids.tolist(), labels.tolist(), strict=True))
