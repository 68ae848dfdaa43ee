"""The evaluation of a round, asked in the messages in which the next round trains.

An exchange costs a deployment at least the time in which an idle node looks for messages, so that
an evaluation of its own nearly doubles a short round.
"""

from collections.abc import Callable, Sequence

from flwr.app import MessageType, RecordDict
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.client_messenger import (
    ClientMessenger,
    Exchanged,
    Sent,
    evaluation_of,
    fit_reply,
)
from fl_app.engines.puller import Silence
from fl_app.ingress.attached import attach, read_attached
from fl_app.ingress.rejection import RejectionError, trusted
from fl_app.strategies.replies import ClientFailure

Questions = list[tuple[ClientProxy, EvaluateIns]]
Parsers = list[Callable[[RecordDict], EvaluateRes]]


class AttachedEvaluation:
    """The questions of an evaluation, and its `results` and `failures` so far.

    A client that trains gets its questions in the same message, and answers them before it trains.
    Other clients get messages of their own at the same time.
    """

    def __init__(self, questions: Sequence[tuple[ClientProxy, EvaluateIns]]) -> None:
        self.results: list[tuple[ClientProxy, EvaluateRes]] = []
        self.failures: list[ClientFailure] = []
        self._open: Questions = list(questions)

    def train(
        self,
        messenger: ClientMessenger,
        server_round: int,
        instructions: Sequence[tuple[ClientProxy, FitIns]],
    ) -> Exchanged[FitRes]:
        """Train on every instructed client and evaluate; return what came of the training."""
        asked: dict[str, list[EvaluateIns]] = {proxy.cid: [] for proxy, _ in instructions}
        others: Questions = []
        for proxy, ins in self._open:
            if proxy.cid in asked:
                asked[proxy.cid].append(ins)
            else:
                others.append((proxy, ins))
        messages = [(p, MessageType.TRAIN, _training(ins, asked[p.cid])) for p, ins in instructions]
        messages += [
            (proxy, MessageType.EVALUATE, compat.evaluateins_to_recorddict(ins, True))
            for proxy, ins in others
        ]
        replies = messenger.send(server_round, messages)
        trained, rest = replies[: len(instructions)], replies[len(instructions) :]
        self._open = []
        parsers: Parsers = [evaluation_of(ins) for _, ins in others]
        for proxy, reply in trained:
            self._take(proxy, reply, asked[proxy.cid], rest, parsers)
        self._add(messenger, messenger.parsed(MessageType.EVALUATE, rest, parsers))
        return messenger.parsed(MessageType.TRAIN, trained, [fit_reply] * len(trained))

    def ask_rest(self, messenger: ClientMessenger, server_round: int) -> None:
        """Ask those who have not been asked, or could not train; not the lost ones."""
        questions, self._open = self._open, []
        if questions:
            self._add(messenger, messenger.evaluate(server_round, questions))

    def _take(
        self,
        proxy: ClientProxy,
        reply: RecordDict | str,
        questions: Sequence[EvaluateIns],
        found: Sent,
        parsers: Parsers,
    ) -> None:
        """Add the answers in the reply of one client that was asked to train."""
        for place, ins in enumerate(questions):
            if isinstance(reply, RecordDict):
                answer, parser = _attached(reply, place, ins)
                found.append((proxy, answer))
                parsers.append(parser)
            elif isinstance(reply, Silence):
                found.append((proxy, reply))
                parsers.append(evaluation_of(ins))
            else:
                self._open.append((proxy, ins))

    def _add(self, messenger: ClientMessenger, exchanged: Exchanged[EvaluateRes]) -> None:
        results, failures = exchanged
        self.results += results
        self.failures += failures
        self.results.sort(key=lambda result: messenger.roster.client_id(result[0]))
        self.failures.sort(key=lambda failure: failure.client_id)


def _training(ins: FitIns, questions: Sequence[EvaluateIns]) -> RecordDict:
    content = compat.fitins_to_recorddict(ins, True)
    attach(content, questions)
    return content


def _attached(
    reply: RecordDict, place: int, ins: EvaluateIns
) -> tuple[RecordDict | str, Callable[[RecordDict], EvaluateRes]]:
    """Return an attached answer or the reason why there is none, and what parses it."""
    try:
        return trusted(read_attached, reply, place), evaluation_of(ins)
    except RejectionError as error:
        return RecordDict(), _rejecting(error)


def _rejecting(error: RejectionError) -> Callable[[RecordDict], EvaluateRes]:
    def parse(content: RecordDict) -> EvaluateRes:
        raise error

    return parse
