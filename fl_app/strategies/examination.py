"""How good the models are for the clients: which are sent to whom, and what comes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flwr.common import EvaluateIns, EvaluateRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.ingress.admission import admit
from fl_app.ingress.evaluations import EvaluationAnswer, EvaluationQuestion, read_evaluation
from fl_app.ingress.rejection import RejectionError, trusted
from fl_app.strategies.cohort import Reject
from fl_app.strategies.replies import encode
from fl_app.strategies.roster import Roster
from fl_app.types import Vector, Vectors

Rows = Sequence[int]
"""Rows of the models that one client receives; of several it takes the best."""
EvaluateReplies = list[tuple[ClientProxy, EvaluateRes]]
Check = Callable[[EvaluationAnswer], None]
Instructions = list[tuple[ClientProxy, EvaluateIns]]
GLOBAL = -1
"""The `community` of the global model in evaluations."""


@dataclass
class Scores:
    """What clients said in one evaluation, each by client id.

    `accuracy` of the model that a client uses, `everyone` of the global one, `fooled` how often
    a backdoor worked, `assigned` the row that a client with a choice has taken, and all
    `answers`.
    """

    accuracy: dict[int, float] = field(default_factory=dict)
    everyone: dict[int, float] = field(default_factory=dict)
    fooled: dict[int, float] = field(default_factory=dict)
    assigned: dict[int, int] = field(default_factory=dict)
    answers: list[EvaluationAnswer] = field(default_factory=list)

    def remove(self, client_id: int) -> None:
        """Forget all that a client said."""
        self.answers = [each for each in self.answers if each.client_id != client_id]
        for said in (self.accuracy, self.everyone, self.fooled, self.assigned):
            said.pop(client_id, None)


class Examination:
    """The evaluation of one round: its questions, and the scores of those who answer."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], EvaluationQuestion] = {}
        self._choosing: set[int] = set()

    def ask(
        self,
        server_round: int,
        client_ids: Sequence[int],
        models: Vectors,
        offers: Sequence[Rows],
        known: Roster,
        everyone: Vector | None,
    ) -> Instructions:
        """Return the messages: each client scores the models (m, d) of its rows, and `everyone`."""
        encoded = {row: encode(models[row]) for row in sorted({r for rows in offers for r in rows})}
        if everyone is not None:
            encoded[GLOBAL] = encode(everyone)
        instructions: Instructions = []
        for client_id, rows in zip(client_ids, offers, strict=True):
            proxy = known.proxy(client_id)  # one that has left since fails, by name
            choose = len(rows) > 1
            if choose:
                self._choosing.add(client_id)
            for row in (*rows, GLOBAL) if everyone is not None else rows:
                question = EvaluationQuestion(client_id, row, known.samples(client_id))
                self._asked[proxy.cid, row] = question
                ins = _instruction(encoded[row], server_round, row, choose and row != GLOBAL)
                instructions.append((proxy, ins))
        return instructions

    def receive(self, results: EvaluateReplies, check: Check, reject: Reject) -> Scores:
        """Return what the trusted replies say.

        `check` may raise for a score that the method cannot use; `reject` is told of each client
        whose reply is left out.
        """

        def read(reply: EvaluateRes, question: EvaluationQuestion) -> EvaluationAnswer:
            answer = read_evaluation(reply, question)
            check(answer)
            return answer

        def tell(
            key: tuple[str, int], question: EvaluationQuestion | None, error: RejectionError
        ) -> None:
            reject(self._named(key[0]), f"evaluation: {error}")

        keyed = [((proxy.cid, community(reply)), reply) for proxy, reply in results]
        return self._scores(admit(keyed, self._asked, read, tell))

    def _named(self, cid: str) -> int | str:
        """Return the client behind a node, or the node where it was not asked."""
        clients = (each.client_id for (node, _), each in self._asked.items() if node == cid)
        return next(clients, f"node {cid}")

    def _scores(self, answers: list[EvaluationAnswer]) -> Scores:
        """Of several models of a client that with the least loss on its training data wins."""
        best: dict[int, EvaluationAnswer] = {}
        everyone = {e.client_id: e.accuracy for e in answers if e.community == GLOBAL}
        for each in sorted(answers, key=_by_client_and_loss):
            if each.community != GLOBAL:
                best.setdefault(each.client_id, each)
        return Scores(
            accuracy={client: each.accuracy for client, each in best.items()},
            everyone=dict(sorted(everyone.items())),
            fooled={c: each.backdoor for c, each in best.items() if each.backdoor is not None},
            assigned={c: best[c].community for c in best if c in self._choosing},
            answers=answers,
        )


def community(reply: EvaluateRes) -> int:
    """Return the question that an evaluation answers, as `Exchange` notes it."""
    try:
        said = trusted(_said, reply)
    except RejectionError:
        said = None
    return said if type(said) is int else GLOBAL - 1


def _said(reply: EvaluateRes) -> object:
    return reply.metrics.get("community")


def _instruction(model: Parameters, server_round: int, row: int, choose: bool) -> EvaluateIns:
    config: dict[str, Scalar] = {"round": server_round, "community": row, "choose": choose}
    return EvaluateIns(model, config)


def _by_client_and_loss(answer: EvaluationAnswer) -> tuple[int, float, int]:
    return answer.client_id, answer.choice_loss, answer.community
