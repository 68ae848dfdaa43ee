"""The clients that are asked to train in a round, and those whose answers are trusted."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from flwr.common import FitIns, FitRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress.admission import admit
from fl_app.ingress.fits import FitAnswer, FitQuestion, read_fit
from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.screen import FEWEST, norms_and_usual, too_long
from fl_app.params import Layout
from fl_app.strategies.encoding import encode
from fl_app.strategies.rejections import Rejections
from fl_app.strategies.roster import Roster
from fl_app.types import Labels, Vector, Vectors, Weights

Rows = Sequence[int]
"""Rows of the models that one client receives; of several it takes the best."""
FitReplies = list[tuple[ClientProxy, FitRes]]
FitFailures = list[tuple[ClientProxy, FitRes] | BaseException]
Check = Callable[[Vector, int], None]


class Cohort:
    """Holds the questions of a round, and the answers' models side by side.

    Updates of models of this `layout` longer than `largest_update` times the usual one are
    rejected, null: none. With `trains_centroids` the norm of a model does not bound how far it
    may move, so that a cohort without a majority is not screened; nor are the counts of points
    beside the centroids. `check` may raise ValueError for a finite model (d,), and the samples
    that its client trained on, that the method cannot use.

    `metrics` has further numbers that a client sent beside its model, by client id, and
    `training_s` is the time that all clients together trained.
    """

    def __init__(
        self,
        layout: Layout,
        rejections: Rejections,
        *,
        largest_update: float | None,
        trains_centroids: bool,
    ) -> None:
        self.size, self.largest_update = layout.size, largest_update
        self.trains_centroids = trains_centroids
        self.check: Check = lambda model, samples: None
        self.asked: dict[str, FitQuestion] = {}
        self.metrics: dict[int, Mapping[str, float]] = {}
        self.training_s = 0.0
        self._rejections = rejections
        self._screened = layout.direction if trains_centroids else slice(None)
        self._sent = np.empty((0, self.size), np.float32)
        # one buffer for all rounds: fresh pages for every cohort cost more than the copy
        self._room = np.empty((0, self.size), np.float32)

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
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Return the messages: each client trains on from a model of its rows of (m, d)."""
        self.asked, self.metrics, self.training_s, self._sent = {}, {}, 0.0, models
        encoded: dict[Rows, Parameters] = {}
        instructions = []
        for client_id, offered in offers:
            rows = tuple(offered)
            if rows not in encoded:
                encoded[rows] = encode(*(models[row] for row in rows))
            proxy = known.proxy(client_id)  # one that has left since fails, by name
            self.asked[proxy.cid] = FitQuestion(client_id, rows, known.samples(client_id))
            instructions.append((proxy, FitIns(encoded[rows], dict(config))))
        return instructions

    def receive(
        self, results: FitReplies, failures: FitFailures
    ) -> tuple[list[FitAnswer], Vectors]:
        """Return the trusted answers (n), sorted by client, and their models (n, d).

        The models are valid until the next round.
        """
        self._rejections.add_failed(failures)
        if len(results) > len(self._room):
            self._room = np.empty((len(results), self.size), np.float32)
        answers = self._admit(results)
        long = self._too_long(answers)
        for row, (norm, usual) in long.items():
            most = f"at most {self.largest_update:g} times the usual {usual:.3g}"
            error = RejectionError("norm of the update", most, f"{norm:.3g}")
            self._rejections.add(answers[row].client_id, str(error))
        kept = [row for row in range(len(answers)) if row not in long]
        models = self._room[kept] if long else self._room[: len(answers)]
        answers = [answers[row] for row in kept]
        self.training_s = sum(answer.seconds for answer in answers)
        self.metrics = {answer.client_id: answer.metrics for answer in answers}
        return answers, models

    def strides(self, models: Vectors, rows: Labels) -> Weights:
        """Return the norms of updates as multiples of the usual one (n,).

        Of the models (n, d) that clients made from these rows of what was offered. All are 1
        where there are too few to say what is usual, or where nothing moved.
        """
        part = self._screened
        starts = {row: self._sent[row][part] for row in set(rows.tolist())}
        norms, usual = norms_and_usual(models[:, part], [starts[row] for row in rows.tolist()])
        known = len(models) >= FEWEST and (usual > 0).all()
        return norms / usual if known else np.ones(len(models))

    def _admit(self, results: FitReplies) -> list[FitAnswer]:
        count = 0

        def read(reply: FitRes, question: FitQuestion) -> FitAnswer:
            nonlocal count
            answer = read_fit(reply, question, self.size)
            self.check(answer.model, answer.samples)
            self._room[count] = answer.model  # at once, while the check has it in the cache
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

    def _too_long(self, answers: Sequence[FitAnswer]) -> dict[int, tuple[float, float]]:
        """Return the rows of answers whose update is too long: its norm, and the usual one."""
        few = len(answers) < FEWEST
        if self.largest_update is None or not answers or (few and self.trains_centroids):
            return {}
        part = self._screened
        starts = {row: self._sent[row][part] for row in {answer.row for answer in answers}}
        return too_long(
            self._room[: len(answers), part],
            [starts[answer.row] for answer in answers],
            np.array([answer.square for answer in answers]),
            multiple=self.largest_update,
        )
