"""Who is asked together with the next training, and who is asked again."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.common import Code, EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Status
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger, Outgoing
from fl_app.engines.puller import Silence
from fl_app.ingress.attached import attach_answers
from fl_app.params import to_bytes
from fl_app.strategies.replies import LostClient, RejectedReply

OK = Status(Code.OK, "")
MODEL = Parameters([to_bytes(np.ones(3, np.float32))], "numpy.ndarray")


class Proxy:
    """A client's node."""

    def __init__(self, client: int) -> None:
        self.cid, self.client = str(client + 10), client


class Known:
    """The roster; `doubted` are those who did not answer, `silent` those in training."""

    def __init__(self) -> None:
        self.doubted: set[int] = set()
        self.silent: set[int] = set()
        self.trained: list[int] = []

    def client_id(self, proxy: Proxy) -> int:
        return proxy.client

    def doubt(self, proxy: Proxy, *, training: bool) -> None:
        self.doubted.add(proxy.client)
        if training:
            self.silent.add(proxy.client)

    def heard(self, proxies: Iterable[Proxy]) -> None:
        self.trained = [proxy.client for proxy in proxies]


class Messenger(ClientMessenger):
    """Has the reply to each message by client and kind; `sent` are those of each exchange."""

    def __init__(self, replies: dict[tuple[int, str], Any]) -> None:
        super().__init__(cast(Any, Known()), clients=6, timeout=None)
        self.replies, self.sent = replies, list[list[tuple[int, str]]]()

    def send(self, server_round: int, contents: Outgoing) -> list[tuple[ClientProxy, Any]]:
        asked = [(cast(Any, proxy).client, kind) for proxy, kind, _ in contents]
        self.sent.append(asked)
        given = zip(asked, contents, strict=True)
        return [(proxy, self.replies[key]) for key, (proxy, *_) in given]


def scored(accuracy: float) -> RecordDict:
    """Return the content of the answer to a question."""
    return compat.evaluateres_to_recorddict(EvaluateRes(OK, 0.5, 10, {"accuracy": accuracy}))


def trained(*answers: RecordDict | str) -> RecordDict:
    """Return the content of the reply to a training message, with answers."""
    content = compat.fitres_to_recorddict(FitRes(OK, MODEL, 10, {"loss": 0.5}), True)
    attach_answers(content, answers)
    return content


@pytest.fixture
def proxies() -> list[ClientProxy]:
    return [cast(ClientProxy, Proxy(client)) for client in range(6)]


def asks(proxy: ClientProxy, community: int = 0) -> tuple[ClientProxy, EvaluateIns]:
    """Return the question for a score."""
    return proxy, EvaluateIns(MODEL, {"round": 1, "community": community, "choose": False})


def told(evaluation: AttachedEvaluation) -> list[tuple[int, Any, Any]]:
    """Return client, community and accuracy of each result."""
    return [
        (cast(Any, proxy).client, reply.metrics["community"], reply.metrics["accuracy"])
        for proxy, reply in evaluation.results
    ]


def test_all_are_asked_in_one_exchange_and_only_those_who_could_not_train_again(
    proxies: list[ClientProxy],
) -> None:
    evaluation = AttachedEvaluation(
        [*map(asks, proxies[:5]), asks(proxies[0], community=-1), asks(proxies[2], community=-1)]
    )
    messenger = Messenger(
        {
            (0, MessageType.TRAIN): trained(scored(0.1), scored(0.2)),
            (1, MessageType.TRAIN): "ValueError: no data",
            (4, MessageType.TRAIN): Silence("the node is gone"),
            (5, MessageType.TRAIN): trained(),
            (2, MessageType.EVALUATE): scored(0.3),
            (3, MessageType.EVALUATE): "ValueError: no test data",
            (1, MessageType.EVALUATE): scored(0.4),
        }
    )
    instructions = [(proxies[c], FitIns(MODEL, {"round": 2})) for c in (0, 1, 4, 5)]
    results, failures = evaluation.train(messenger, 2, instructions)
    kinds = [MessageType.TRAIN] * 4 + [MessageType.EVALUATE] * 3
    assert messenger.sent == [list(zip([0, 1, 4, 5, 2, 3, 2], kinds, strict=True))]
    assert [cast(Any, proxy).client for proxy, _ in results] == [0, 5]
    assert [str(each) for each in failures] == [
        "client 1: ValueError: no data", "client 4: the node is gone",
    ]  # fmt: skip
    evaluation.ask_rest(messenger, 2)
    assert messenger.sent[1:] == [[(1, MessageType.EVALUATE)]]
    assert told(evaluation) == [(0, 0, 0.1), (0, -1, 0.2), (1, 0, 0.4), (2, 0, 0.3), (2, -1, 0.3)]
    assert [(type(each).__name__, each.client_id) for each in evaluation.failures] == [
        ("ClientFailure", 3), ("LostClient", 4),
    ]  # fmt: skip
    assert isinstance(evaluation.failures[1], LostClient)
    assert cast(Any, messenger.roster).doubted == {4}
    assert cast(Any, messenger.roster).silent == {4}
    assert cast(Any, messenger.roster).trained == [0, 5]


def test_nobody_is_asked_twice(proxies: list[ClientProxy]) -> None:
    evaluation = AttachedEvaluation([asks(proxies[0])])
    messenger = Messenger({(0, MessageType.TRAIN): trained(scored(0.5))})
    evaluation.train(messenger, 2, [(proxies[0], FitIns(MODEL, {"round": 2}))])
    evaluation.ask_rest(messenger, 2)
    evaluation.ask_rest(messenger, 2)
    assert len(messenger.sent) == 1
    assert told(evaluation) == [(0, 0, 0.5)]


def test_without_a_next_round_all_are_asked_apart(proxies: list[ClientProxy]) -> None:
    evaluation = AttachedEvaluation([asks(proxies[1]), asks(proxies[0])])
    messenger = Messenger({(c, MessageType.EVALUATE): scored(c / 2) for c in range(2)})
    evaluation.ask_rest(messenger, 2)
    assert told(evaluation) == [(0, 0, 0.0), (1, 0, 0.5)]


def test_a_bad_model_and_a_bad_score_are_rejected_one_by_one(proxies: list[ClientProxy]) -> None:
    broken = trained(scored(0.5))
    del broken["fitres.parameters"]
    unreadable = trained(RecordDict({"evaluateres.loss": ConfigRecord({"loss": "none"})}))
    evaluation = AttachedEvaluation(list(map(asks, proxies[:3])))
    replies = dict(enumerate([broken, unreadable, trained()]))
    messenger = Messenger({(c, MessageType.TRAIN): reply for c, reply in replies.items()})
    instructions = [(proxies[c], FitIns(MODEL, {"round": 2})) for c in range(3)]
    results, failures = evaluation.train(messenger, 2, instructions)
    evaluation.ask_rest(messenger, 2)
    assert [cast(Any, proxy).client for proxy, _ in results] == [1, 2]
    assert [each.client_id for each in failures] == [0]
    assert told(evaluation) == [(0, 0, 0.5)]
    assert [each.client_id for each in evaluation.failures] == [1, 2]
    assert all(isinstance(each, RejectedReply) for each in [*failures, *evaluation.failures])
    assert len(messenger.sent) == 1
