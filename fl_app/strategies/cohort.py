"""The clients that were asked to train in a round, and those whose answers are trusted."""

from collections.abc import Callable, Sequence

import numpy as np
from flwr.common import FitRes
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress.admission import admit
from fl_app.ingress.fits import FitAnswer, FitQuestion, read_fit
from fl_app.ingress.rejection import RejectionError
from fl_app.ingress.screen import FEWEST, norms_and_usual, too_long
from fl_app.params import Layout
from fl_app.types import Labels, Vector, Vectors, Weights

FitReplies = list[tuple[ClientProxy, FitRes]]
Check = Callable[[Vector, int], None]
Reject = Callable[[int | str, str], None]


class Cohort:
    """Holds the questions of a round, and the answers' models side by side.

    Updates of models of this `layout` longer than `largest_update` times the usual one are
    rejected, null: none. `of_points`: the models are centroids, whose norm says nothing of how
    far they may move, so that a cohort without a majority is not screened; nor are the counts of
    points beside them.
    """

    def __init__(self, layout: Layout, *, largest_update: float | None, of_points: bool) -> None:
        self.size, self.largest_update, self.of_points = layout.size, largest_update, of_points
        self._screened = layout.direction if of_points else slice(None)
        self.asked: dict[str, FitQuestion] = {}
        self._sent = np.empty((0, self.size), np.float32)
        # one buffer for all rounds: fresh pages for every cohort cost more than the copy
        self._room = np.empty((0, self.size), np.float32)

    @property
    def client_ids(self) -> list[int]:
        """Sorted ids of the clients that were asked."""
        return sorted(question.client_id for question in self.asked.values())

    def begin(self, models: Vectors) -> None:
        """Begin a round in which rows of `models` (m, d) are offered."""
        self.asked, self._sent = {}, models

    def receive(
        self, results: FitReplies, check: Check, reject: Reject
    ) -> tuple[list[FitAnswer], Vectors]:
        """Return the trusted answers (n), sorted by client, and their models (n, d).

        `check` may raise for a model that the method cannot use; `reject` is told of each client
        whose reply is left out. The models are valid until the next round.
        """
        if len(results) > len(self._room):
            self._room = np.empty((len(results), self.size), np.float32)
        answers = self._admit(results, check, reject)
        long = self._too_long(answers)
        if not long:
            return answers, self._room[: len(answers)]
        for row, (norm, usual) in long.items():
            most = f"at most {self.largest_update:g} times the usual {usual:.3g}"
            error = RejectionError("norm of the update", most, f"{norm:.3g}")
            reject(answers[row].client_id, str(error))
        kept = [row for row in range(len(answers)) if row not in long]
        return [answers[row] for row in kept], self._room[kept]

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

    def _admit(self, results: FitReplies, check: Check, reject: Reject) -> list[FitAnswer]:
        count = 0

        def read(reply: FitRes, question: FitQuestion) -> FitAnswer:
            nonlocal count
            answer = read_fit(reply, question, self.size)
            check(answer.model, answer.samples)
            self._room[count] = answer.model  # at once, while the check has it in the cache
            count += 1
            return answer

        def tell(cid: str, question: FitQuestion | None, error: RejectionError) -> None:
            reject(f"node {cid}" if question is None else question.client_id, str(error))

        replies = [(proxy.cid, reply) for proxy, reply in results]
        replies.sort(key=lambda each: self._place(each[0]))
        return admit(replies, self.asked, read, tell)

    def _place(self, cid: str) -> int:
        question = self.asked.get(cid)
        return -1 if question is None else question.client_id

    def _too_long(self, answers: Sequence[FitAnswer]) -> dict[int, tuple[float, float]]:
        """Return the rows of answers whose update is too long: its norm, and the usual one."""
        few = len(answers) < FEWEST
        if self.largest_update is None or not answers or (few and self.of_points):
            return {}
        part = self._screened
        starts = {row: self._sent[row][part] for row in {answer.row for answer in answers}}
        return too_long(
            self._room[: len(answers), part],
            [starts[answer.row] for answer in answers],
            np.array([answer.square for answer in answers]),
            multiple=self.largest_update,
        )
