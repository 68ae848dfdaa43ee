"""The clients that are asked to train in a round, and their valid replies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.common import FitIns, FitRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress import screen
from fl_app.ingress.admission import admit
from fl_app.ingress.fits import FitAnswer, FitQuestion, read_fit
from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.sent import Sent
from fl_app.learner_reports import LARGEST, Report, of_losses, request
from fl_app.params import Layout
from fl_app.strategies.encoding import encode
from fl_app.strategies.rejections import Rejections
from fl_app.strategies.roster import Roster
from fl_app.types import Vector, Vectors, Weights

Rows = Sequence[int]
"""Rows of the models that one client receives; it chooses the best of several."""
Offer = tuple[Vectors, list[Rows], list[int] | None]
"""Models (m, d), each client's rows of them, and the row with which each compares, if any does."""
FitReplies = list[tuple[ClientProxy, FitRes]]
FitFailures = list[tuple[ClientProxy, FitRes] | BaseException]
FitInstructions = list[tuple[ClientProxy, FitIns]]
Aggregated = tuple[Parameters, dict[str, Scalar]]
"""The parameters and the metrics that `aggregate_fit` returns to Flower."""
Check = Callable[[Vector, int], None]


@dataclass(frozen=True)
class Screened:
    """The norms (n,) of one `part` of n updates, of the received models, and the usual ones."""

    part: slice
    norms: Weights
    received: Weights
    usual: Weights


class Cohort:
    """Stores the questions of a round, and the models of its valid answers in one array.

    Updates of models of this `layout` longer than `largest_update` times the usual one are
    rejected, those longer than `clip_update` times are shortened to it; None: none. So is the
    layout's direction by itself, since buffers can be many times as long. Without
    `clips` only their `unseen` entries are shortened, those that no distance of clients shows, by
    default the buffers; `bounded` shortens copies of them, and `shares` has the factor by which
    each of the others is too long, by client id. With
    `screens_direction` only the layout's direction is screened, not what follows it, and a cohort
    without a majority is not screened: the norm of a model does not bound how far it may move.
    `check` may raise ValueError for a finite model (d,), and the samples that its client trained
    on, that the method cannot use. `tells_loss`: whether clients are asked for their losses, of
    which none is below `least_loss`.

    `former` are norms of earlier updates, with which those of one or two replies are compared, and
    `norms` those of this round. `odd_updates` has the norms of odd updates as multiples of the
    usual norm, by client id (see ingress/screen.py). `metrics` has further numbers that clients
    sent with their models, by client id. `training_s` is the sum of the training times of all
    clients.
    """

    def __init__(
        self,
        layout: Layout,
        rejections: Rejections,
        *,
        largest_update: float | None,
        clip_update: float | None,
        clips: bool,
        screens_direction: bool,
        least_loss: float = -LARGEST,
    ) -> None:
        self.size, self.largest_update = layout.size, largest_update
        self.clip_update, self.clips = clip_update, clips
        self.screens_direction = screens_direction
        self.check: Check = lambda model, samples: None
        self.tells_loss, self.least_loss = True, least_loss
        self.asked: dict[str, FitQuestion] = {}
        self.odd_updates: dict[int, float] = {}
        self.metrics: dict[int, Mapping[str, float]] = {}
        self.training_s = 0.0
        self._rejections = rejections
        self._direction, self._non_negative = layout.direction, layout.non_negative
        self._sent = Sent(np.empty((0, self.size), np.float32))
        # one buffer for all rounds, since new memory pages cost more than the copy
        self._room = np.empty((0, self.size), np.float32)
        self._norms = np.empty(0)
        self.unseen = np.arange(layout.direction.stop, layout.size)
        self.former: Sequence[float] = ()
        self.norms: list[float] = []
        self.shares: dict[int, float] = {}
        # rows, parts, starts and limits of long updates
        self._long: list[tuple[int, slice, Vector, float]] = []

    @property
    def sent(self) -> Vectors:
        """The models (m, d) of this round, to whose rows `Replies.starts` refers."""
        return self._sent.models

    @property
    def client_ids(self) -> list[int]:
        """Sorted ids of the clients that were asked."""
        return sorted(question.client_id for question in self.asked.values())

    def ask(
        self,
        models: Vectors,
        offers: Sequence[tuple[int, Rows]],
        known: Roster,
        config: Mapping[str, Scalar],
        reports: Sequence[Mapping[str, Report]],
        compared: Sequence[int] | None = None,
    ) -> FitInstructions:
        """Return the messages: each client trains one of the models (m, d) in its rows.

        `reports` are what each of them is asked to tell beside its model, by name. The model of its
        row in `compared` (n,) is sent after those of its rows, unless this is the only one.
        """
        self.asked, self.metrics, self.training_s = {}, {}, 0.0
        self._sent = Sent(models, self._non_negative)
        self.odd_updates = {}
        encoded: dict[Rows, Parameters] = {}
        instructions = []
        last: list[Rows] = [()] * len(offers) if compared is None else [(row,) for row in compared]
        for (client_id, offered), told, other in zip(offers, reports, last, strict=True):
            rows = tuple(offered)
            sent = rows if rows == other else (*rows, *other)
            if sent not in encoded:
                encoded[sent] = encode(*(models[row] for row in sent))
            proxy = known.proxy(client_id)  # a node that has left is recorded as failed
            samples = known.samples(client_id)
            self.asked[proxy.cid] = FitQuestion(
                client_id, rows, samples, of_losses(told, self.least_loss), self.tells_loss,
                self.least_loss,
            )  # fmt: skip
            instructions.append((proxy, FitIns(encoded[sent], {**config, **request(told)})))
        return instructions

    def receive(
        self, results: FitReplies, failures: FitFailures
    ) -> tuple[list[FitAnswer], Vectors]:
        """Return the n valid answers, sorted by client, and their models (n, d).

        The models are valid until the next round.
        """
        self._rejections.add_failed(failures)
        if len(results) > len(self._room):
            self._room = np.empty((len(results), self.size), np.float32)
            self._norms = np.empty(len(results))
        answers = self._admit(results)
        models, norms = self._room[: len(answers)], self._norms[: len(answers)]
        long = self._screen(answers, norms)
        if long.any():
            answers = [each for each, is_long in zip(answers, long, strict=True) if not is_long]
            models, norms = models[~long], norms[~long]
        self._bound(answers, models, norms)
        self.training_s = sum(answer.seconds for answer in answers)
        self.metrics = {answer.client_id: answer.metrics for answer in answers}
        return answers, models

    def _screen(self, answers: Sequence[FitAnswer], norms: Weights) -> np.ndarray:
        """Return which updates (n,) are too long; record them as rejected."""
        few, long = len(answers) < screen.FEWEST, np.zeros(len(answers), bool)
        if self.largest_update is None or (few and self.screens_direction):
            return long
        for each in self._screened(answers, norms):
            found = screen.too_long(each.norms, each.usual, multiple=self.largest_update)
            for row in np.flatnonzero(found & ~long).tolist():
                most = f"at most {self.largest_update:g} times the usual {each.usual[row]:.3g}"
                error = RejectionError("norm of the update", most, f"{each.norms[row]:.3g}")
                self._rejections.add(answers[row].client_id, str(error))
            long |= found
        return long

    def _screened(self, answers: Sequence[FitAnswer], norms: Weights) -> list[Screened]:
        """Return what is screened by the `norms` (n,), and after it the direction by itself.

        The norms are those of the direction already with `screens_direction`, or without buffers,
        and a cohort without a majority cannot tell what is usual of it.
        """
        received = np.array([self._norm_sent(answer.row) for answer in answers])
        usual = screen.usual_norms(norms, received, self._former)
        part = self._direction if self.screens_direction else slice(0, self.size)
        found = [Screened(part, norms, received, usual)]
        if part.stop > self._direction.stop and len(answers) >= screen.FEWEST:
            part = self._direction
            starts = [self.sent[each.row][part] for each in answers]
            pairs = zip(answers, starts, strict=True)
            norms = np.array([screen.update_norm(each.model[part], start) for each, start in pairs])
            received = np.array([float(np.linalg.norm(start)) for start in starts])
            found.append(Screened(part, norms, received, screen.usual_norms(norms, received)))
        return found

    def _bound(self, answers: Sequence[FitAnswer], models: Vectors, norms: Weights) -> None:
        """Shorten long updates of models (n, d) in place, if at all; record the odd updates."""
        whole, *parts = self._screened(answers, norms)
        for row in np.flatnonzero(screen.odd(norms, whole.usual)).tolist():
            self.odd_updates[answers[row].client_id] = float(norms[row] / whole.usual[row])
        self._long, self.shares, self.norms = [], {}, norms.tolist()
        if self.clip_update is None:
            return
        of = len(screen.compared(norms, self._former))
        multiple = self.clip_update * (screen.OF_FORMER if of > len(norms) else 1.0)
        for each in (*parts, whole):
            limits = screen.limits(each.usual, each.received, multiple=multiple, of=of)
            for row in np.flatnonzero(each.norms > limits).tolist():
                start = self.sent[answers[row].row][each.part]
                self._long.append((row, each.part, start, float(limits[row])))
                client, share = answers[row].client_id, float(limits[row] / each.norms[row])
                self.shares[client] = min(share, self.shares.get(client, 1.0))
        self.norms = np.minimum(norms, limits).tolist()
        if self.clips or len(self.unseen) == self.size:
            self.shares = {}
            self._shorten(models)
        else:
            self._shorten_unseen(models)

    @property
    def _former(self) -> Weights:
        """The earlier norms; a part of a model has another norm than the whole."""
        return np.array([] if self.screens_direction else self.former, float)

    def bounded(self, models: Vectors) -> Vectors:
        """Return the models (n, d) of this round with long updates shortened, in a copy."""
        if not self._long:
            return models
        found = models.copy()
        self._shorten(found)
        return found

    def _shorten(self, models: Vectors) -> None:
        for row, part, start, limit in self._long:
            models[row, part] = screen.shortened(models[row, part], start, norm=limit)

    def _shorten_unseen(self, models: Vectors) -> None:
        """Shorten the `unseen` entries of long updates, which put no client into another group."""
        for row, part, start, limit in self._long:
            if part.stop == self.size:
                model = models[row, self.unseen]
                models[row, self.unseen] = screen.shortened(model, start[self.unseen], norm=limit)

    def _norm_sent(self, row: int) -> float:
        """Return the norm of the screened part of a model that was sent."""
        if not self.screens_direction:
            return self._sent.norm(row)
        return float(np.linalg.norm(self.sent[row][self._direction]))

    def _norm(self, answer: FitAnswer) -> float:
        """Return the norm of the screened part of an update."""
        if not self.screens_direction:
            return answer.norm
        part = self._direction
        return screen.update_norm(answer.model[part], self.sent[answer.row][part])

    def _admit(self, results: FitReplies) -> list[FitAnswer]:
        """Return the valid answers; their models and norms are the first rows of the buffers."""
        count = 0

        def read(reply: FitRes, question: FitQuestion) -> FitAnswer:
            nonlocal count
            answer = read_fit(reply, question, self._sent)
            self.check(answer.model, answer.samples)
            # done here because the model is still in the cache after the check
            self._room[count], self._norms[count] = answer.model, self._norm(answer)
            count += 1
            return answer

        def reject(cid: str, question: FitQuestion | None, error: RejectionError) -> None:
            client = f"node {cid}" if question is None else question.client_id
            self._rejections.add(client, str(error))

        replies = [(proxy.cid, reply) for proxy, reply in results]
        replies.sort(key=lambda each: self._place(each[0]))
        return admit(replies, self.asked, read, reject)

    def _place(self, cid: str) -> int:
        question = self.asked.get(cid)
        return -1 if question is None else question.client_id
