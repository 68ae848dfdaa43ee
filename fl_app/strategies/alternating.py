"""Methods whose clients choose, or mix, models in every round: their fallback to one model.

All of their models are trained by choices, so that the mean of what comes back is no model that
all clients trained; models with other first weights have no useful mean at all. During a trial,
rounds of the method therefore alternate with rounds in which all sampled clients train one common
model. In the method's rounds clients compare what they use with it: `fl_app.strategies.fallback`.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from flwr.common import Scalar
from flwr.server.client_manager import ClientManager

from fl_app.learner_reports import HOLDS_OUT
from fl_app.records.history import UNDONE
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import Aggregated, FitInstructions, Offer, Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.fallback import EARLIEST, decide
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.trial import JudgedState, begin, beside, note, of_communities
from fl_app.types import Vector, Vectors

WORTH_BEHIND = 0.01
"""The mean gain that is asked for, less than in other trials: the common model is a round ahead."""


@dataclass(kw_only=True)
class AlternatingState(JudgedState):
    """The state of such a method in a checkpoint."""

    judged: bool = False
    """Whether the models are or were on trial, which happens once."""
    one: bool = False
    """Whether they were undone; then there is one model, and it stays the only one."""
    common_next: bool = False
    """Whether the next round of the trial trains the common model; a skipped round is repeated."""


class Alternating(CommunityStrategy):
    """With `fallback`, all models are judged as a whole, once, and undone for good or kept.

    The trial begins when clients use several models, after EARLIEST of the rounds. Its first round
    trains the common model, the next one is the method's own, and so on.
    """

    state: AlternatingState
    judged_freely = False
    judged_whole: ClassVar[bool] = True
    """Whether the models are kept or undone together."""
    recalls: ClassVar[bool] = False
    """Whether models may be trained by a few clients alone, whose samples they then recall."""
    _common_round = False

    def instruct(
        self,
        server_round: int,
        cohort: Sequence[int],
        client_manager: ClientManager,
        task: Mapping[str, Scalar] | None = None,
    ) -> FitInstructions:
        """Begin a round of the method, or one of the common model."""
        self._common_round = self.trains_common
        if self.holds_out(server_round):
            task = {HOLDS_OUT: True, **(task or {})}
        return super().instruct(server_round, cohort, client_manager, task)

    def holds_out(self, server_round: int) -> bool:
        """Whether clients hold out samples before the trial, on which the models are then compared.

        A privacy keeps a model from recalling what it was trained on.
        """
        waits = self.recalls and self.judges and not self.state.judged
        return waits and not self.context.private and not self.late(server_round - 1)

    @property
    def trains_common(self) -> bool:
        """Whether in the next round all clients train the common model, or the one that is left."""
        state = self.state
        return state.one or (state.common is not None and state.common_next)

    def asks_of(self, client_id: int) -> Collection[str]:
        """Return nothing in a round of one model."""
        return () if self._common_round else self.asks

    def offer(self, server_round: int, client_ids: Sequence[int]) -> Offer:
        """Return each client's rows; during a trial the common model instead, or beside them.

        Clients hold out the same samples in both kinds of rounds. With a privacy, losses choose no
        model while they judge: a client trains what it chose last, or else the common model.
        """
        common, used = self.state.common, self.users()
        if common is None:
            return *self.to_train(client_ids), None
        if self._common_round:
            return common[None, :], [(0,)] * len(client_ids), [0] * len(client_ids)
        models, rows = self.to_train(client_ids)
        if self.context.private:
            rows = [(used.get(client, len(models)),) for client in client_ids]
        return beside(self.state, models, rows)

    def to_train(self, client_ids: Sequence[int]) -> tuple[Vectors, list[Rows]]:
        """Return models (m, d), and each client's rows to choose from in a round of the method."""
        return self.attribute(client_ids)

    def compare(self, replies: Replies) -> Replies:
        """Note what clients tell of the two models, and return the replies for the method's own."""
        if self.state.common is None:
            return replies
        self.state.common_next = True
        note(self.state, replies)
        return of_communities(self.state, replies) if self.context.private else replies

    def train_common(self, server_round: int, replies: Replies) -> Aggregated:
        """Train the common model, or the one that is left."""
        now = self.state.communities
        if self.state.one:
            self.aggregator.update(now.models, replies)
            now.members.update(dict.fromkeys(replies.client_ids.tolist(), 0))
        else:
            self.state.common = self.aggregator.aggregate(
                replies.client_ids, replies.models, replies.weights
            )
            self.state.common_next = False
            self.judge(server_round)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}

    def judge(self, server_round: int) -> None:
        """Begin the trial once there is something to judge, or end it."""
        state, used = self.state, self.users()
        if self.judges and not state.judged and self.ready(server_round):
            begin(state, server_round, self.first_common())
            state.judged = state.common_next = True
        # a look after a round of the common model would have no more evidence than one before it
        now = server_round + state.common_next
        found = decide(
            state, now, self.context.rounds, whole=self.judged_whole, members=used,
            worth=WORTH_BEHIND,
        )  # fmt: skip
        state.one = any(event.kind == UNDONE for event in found)
        self.events += found

    def ready(self, server_round: int) -> bool:
        """Whether a trial may begin: clients use several models, and had rounds to choose them."""
        return self.late(server_round) and len(set(self.users().values())) > 1

    def late(self, server_round: int) -> bool:
        """Whether EARLIEST of the rounds are over."""
        return server_round >= EARLIEST * self.context.rounds

    def first_common(self) -> Vector | None:
        """Return the model (d,) from which the common one starts: that of most clients.

        None: the mean of the models, weighted by their clients.
        """
        rows = np.bincount(list(self.users().values()))
        model: Vector = self.state.communities.models[int(rows.argmax())].copy()
        return model

    def users(self) -> Mapping[int, int]:
        """Return the row of the model that each client used last."""
        return self.state.communities.members if self.state.one else self.choices()

    @abstractmethod
    def choices(self) -> Mapping[int, int]:
        """Return the row of the model that each client chose last."""

    def view(self, server_round: int) -> View | None:
        """Return the model that each client uses, None before the first round."""
        used = self.users()
        if not used:
            return None
        ids = sorted(used)
        return View(np.array(ids), np.array([used[client] for client in ids]), None)
