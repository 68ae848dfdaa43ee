"""The evaluation of models by the clients: requests and scores."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter
from typing import Any

import numpy as np
from flwr.common import EvaluateIns, EvaluateRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress.admission import admit
from fl_app.ingress.evaluations import EvaluationAnswer, EvaluationQuestion, read_evaluation
from fl_app.ingress.rejection import RejectionError, trusted
from fl_app.learner_reports import LARGEST
from fl_app.records.history import EVALUATION
from fl_app.strategies.cohort import Rows
from fl_app.strategies.encoding import encode
from fl_app.strategies.rejections import Rejections
from fl_app.strategies.roster import Roster
from fl_app.types import Vector, Vectors

EvaluateReplies = list[tuple[ClientProxy, EvaluateRes]]
EvaluateFailures = list[tuple[ClientProxy, EvaluateRes] | BaseException]
Check = Callable[[EvaluationAnswer], None]
Chose = Callable[[Mapping[int, int]], None]
"""Takes the row of the model of each client."""
Instructions = list[tuple[ClientProxy, EvaluateIns]]
GLOBAL = -1
"""The `community` of the global model in evaluations."""
TEST_LOSS = "test_loss"
"""The metric of a task without accuracy if the clients' learners tell no other."""


@dataclass
class Scores:
    """The scores of one evaluation by client id."""

    accuracy: dict[int, float] = field(default_factory=dict)
    """The accuracy of the model that the client uses."""
    global_accuracy: dict[int, float] = field(default_factory=dict)
    """Of the global model."""
    attack_success: dict[int, float] = field(default_factory=dict)
    """How often the model answered as the attack wants it to."""
    measured: dict[str, dict[int, float]] = field(default_factory=dict)
    """Each metric of the task by name, of the model that the client uses, where it has a value."""
    assigned: dict[int, int] = field(default_factory=dict)
    """The row of the model that a client chose, if it had a choice."""
    answers: list[EvaluationAnswer] = field(default_factory=list)
    """All answers."""
    agreement: dict[str, Any] = field(default_factory=dict)
    """Scores over all answers by name, for methods that cluster points."""
    overall: tuple[float, float] | None = None
    """Mean and standard deviation of the accuracy, if the server knows that of no client."""

    @property
    def metrics(self) -> dict[str, Scalar]:
        """The metrics of an evaluation for Flower."""
        values = list(self.accuracy.values())
        return {"accuracy": float(np.mean(values))} if values else {}

    def remove(self, client_id: int) -> None:
        """Remove all answers of a client."""
        self.answers = [each for each in self.answers if each.client_id != client_id]
        self.assigned.pop(client_id, None)
        scores = self.accuracy, self.global_accuracy, self.attack_success, *self.measured.values()
        for by_client in scores:
            by_client.pop(client_id, None)


class ModelEvaluation:
    """The evaluation of a round: its questions, and the scores of the clients.

    `check` may raise ValueError for an answer that the method cannot use. `chose` is called
    with the row that each client with a choice used. If `private`, clients tell no loss by which
    they choose.
    """

    def __init__(
        self,
        rejections: Rejections,
        *,
        metrics: Collection[str] = (),
        has_accuracy: bool = True,
        private: bool = False,
        least_loss: float = -LARGEST,
        chose: Chose,
    ) -> None:
        self._metrics, self._has_accuracy, self._private = metrics, has_accuracy, private
        self._least_loss = least_loss
        self.scores = Scores()
        self._chose = chose
        self.check: Check = lambda answer: None
        self._rejections = rejections
        self._asked: dict[tuple[str, int], EvaluationQuestion] = {}
        self._choosing: set[int] = set()
        self._broken: Mapping[int, str] = {}

    def begin(self) -> None:
        """Clear the last evaluation."""
        self.scores, self._asked, self._choosing = Scores(), {}, set()

    def ask(
        self,
        server_round: int,
        models: Vectors,
        offers: Sequence[tuple[int, Rows]],
        known: Roster,
        global_model: Vector | None,
        *,
        choosing: Collection[int] = (),
    ) -> Instructions:
        """Return the messages: each client scores models (m, d) of its rows and the global one.

        The clients of `choosing` have chosen their row before.
        """
        self.begin()
        encoded = {
            row: encode(models[row]) for row in sorted({r for _, rows in offers for r in rows})
        }
        if global_model is not None:
            encoded[GLOBAL] = encode(global_model)
        instructions: Instructions = []
        for client_id, rows in offers:
            proxy = known.proxy(client_id)  # a node that has left is recorded as failed
            choose = len(rows) > 1
            if choose or (client_id in choosing and len(rows) == 1):
                self._choosing.add(client_id)
            for row in (*rows, GLOBAL) if global_model is not None else rows:
                question = EvaluationQuestion(
                    client_id, row, known.samples(client_id), self._metrics, self._has_accuracy,
                    not self._private, self._least_loss,
                )  # fmt: skip
                self._asked[proxy.cid, row] = question
                ins = _instruction(encoded[row], server_round, row, choose and row != GLOBAL)
                instructions.append((proxy, ins))
        return instructions

    def handed_over(self, rejections: Rejections) -> "ModelEvaluation":
        """Return this evaluation with its questions, to `receive` after the next round has begun.

        It records its rejections elsewhere, since the next round clears those of the method.
        """
        found = copy(self)
        found._rejections = rejections
        self.begin()
        return found

    def receive(self, results: EvaluateReplies, failures: EvaluateFailures) -> None:
        """Set `scores` from the valid replies."""
        self._rejections.add_failed(failures, EVALUATION)
        keyed = [((proxy.cid, community(reply)), reply) for proxy, reply in results]
        self._broken = broken_models(keyed)
        self.scores = self._scores(admit(keyed, self._asked, self._read, self._reject))
        self._chose(self.scores.assigned)

    def reject(self, client: int | str, error: RejectionError) -> None:
        """Record that an answer of a client is rejected."""
        self._rejections.add(client, f"{EVALUATION}{error}")

    def _read(self, reply: EvaluateRes, question: EvaluationQuestion) -> EvaluationAnswer:
        answer = read_evaluation(reply, question)
        self.check(answer)
        return answer

    def _reject(
        self, key: tuple[str, int], question: EvaluationQuestion | None, error: RejectionError
    ) -> None:
        known = question is not None and error.field == "loss"
        told = self._broken.get(key[1], "") if known else ""
        self._rejections.add(self._named(key[0]), f"{EVALUATION}{error}{told}")

    def _named(self, cid: str) -> int | str:
        """Return the client of a node, or the node itself if it was not asked."""
        clients = (each.client_id for (node, _), each in self._asked.items() if node == cid)
        return next(clients, f"node {cid}")

    def _scores(self, answers: list[EvaluationAnswer]) -> Scores:
        """Return the scores; each client uses its model with the least training loss."""
        best: dict[int, EvaluationAnswer] = {}
        of_global = {
            each.client_id: each.accuracy
            for each in answers
            if each.community == GLOBAL and each.accuracy is not None
        }
        for each in sorted(answers, key=attrgetter("client_id", "choice_loss", "community")):
            if each.community != GLOBAL:
                best.setdefault(each.client_id, each)
        return Scores(
            accuracy={c: each.accuracy for c, each in best.items() if each.accuracy is not None},
            global_accuracy=dict(sorted(of_global.items())),
            attack_success={
                c: each.attack_success
                for c, each in best.items()
                if each.attack_success is not None
            },
            measured=self._measured(best),
            assigned={
                c: each.community
                for c, each in best.items()
                if c in self._choosing and (each.samples or not self._private)
            },
            answers=answers,
        )

    def _measured(self, best: Mapping[int, EvaluationAnswer]) -> dict[str, dict[int, float]]:
        """Return the metrics of the clients by name, without any other measure the TEST_LOSS."""
        found = {
            name: {c: each.metrics[name] for c, each in best.items() if name in each.metrics}
            for name in self._metrics
        }
        if not self._has_accuracy and not any(found.values()):
            found[TEST_LOSS] = {c: each.loss for c, each in best.items() if each.samples}
        return found


def community(reply: EvaluateRes) -> int:
    """Return the community of a reply, which `ClientMessenger` copies from the request."""
    try:
        found = trusted(_community, reply)
    except RejectionError:
        found = None
    return found if type(found) is int else GLOBAL - 1


def broken_models(replies: Sequence[tuple[tuple[str, int], EvaluateRes]]) -> dict[int, str]:
    """Return a remark on each model, by its community, that seems at fault for rejected losses.

    Those of which more than half of the replies, at least two, have a loss that is not finite.
    """
    losses: dict[int, list[bool]] = {}
    for (_, row), reply in replies:
        loss = getattr(reply, "loss", None)
        losses.setdefault(row, []).append(type(loss) is float and not isfinite(loss))
    told = "clients with this model say so, which is likely at fault"
    return {
        row: f"; {sum(wrong)} of {len(wrong)} {told}"
        for row, wrong in losses.items()
        if sum(wrong) > max(1, len(wrong) / 2)
    }


def _community(reply: EvaluateRes) -> object:
    return reply.metrics.get("community")


def _instruction(model: Parameters, server_round: int, row: int, choose: bool) -> EvaluateIns:
    config: dict[str, Scalar] = {"round": server_round, "community": row, "choose": choose}
    return EvaluateIns(model, config)
