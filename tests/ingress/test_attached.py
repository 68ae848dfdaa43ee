"""Evaluations attached to a training message, and what comes back with its reply."""

from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.common import EvaluateIns, FitIns, Parameters
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.compat.common import recorddict_compat as compat
from flwr.supercore.task_identity import TaskIdentity

from fl_app.client_mods import as_attached
from fl_app.ingress.attached import attach, attach_answers, detach, read_attached
from fl_app.ingress.rejection import LONGEST_REASON, RejectionError
from fl_app.params import to_bytes

MODELS = [to_bytes(np.full(3, each, np.float32)) for each in range(4)]
Answer = Callable[[str, RecordDict], RecordDict]


def question(*rows: int, community: int = 0) -> EvaluateIns:
    """Return the question for the score of some models."""
    parameters = Parameters([bytes(bytearray(MODELS[row])) for row in rows], "numpy.ndarray")
    return EvaluateIns(parameters, {"round": 3, "community": community, "choose": True})


def training(*rows: int) -> RecordDict:
    """Return a training message with some models."""
    parameters = Parameters([MODELS[row] for row in rows], "numpy.ndarray")
    return compat.fitins_to_recorddict(FitIns(parameters, {"round": 4}), True)


def test_a_client_reads_the_questions_and_the_training_as_if_each_had_come_alone() -> None:
    plain, content = training(0, 2), training(0, 2)
    questions = [question(2, community=2), question(1, community=1), question(0, 3)]
    attach(content, questions)
    found = detach(content)
    assert content == plain
    assert [compat.recorddict_to_evaluateins(each, True) for each in found] == questions


def test_only_a_model_that_is_not_trained_is_sent_again() -> None:
    content = training(0, 2)
    attach(content, [question(2), question(1), question(0, 2)])
    sent = [model.data for record in content.array_records.values() for model in record.values()]
    assert sent == [MODELS[0], MODELS[2], MODELS[1]]


def test_a_message_without_questions_is_not_changed() -> None:
    content = training(1)
    attach(content, [])
    assert not detach(content)
    assert content == training(1)


def test_answers_come_back_by_their_places() -> None:
    reply = RecordDict({"own": ConfigRecord({"loss": 1.0})})
    answers = [RecordDict({"told": ConfigRecord({"place": k})}) for k in range(2)]
    attach_answers(reply, [answers[0], "ValueError: no\ndata", answers[1]])
    assert [read_attached(reply, k) for k in (0, 2)] == answers
    assert read_attached(reply, 1) == "ValueError: no?data"
    assert reply["own"] == ConfigRecord({"loss": 1.0})


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (RecordDict(), "the score must be attached to the reply of training, got nothing"),
        (RecordDict({"attached.1.told": ConfigRecord()}), "the score must be attached"),
        (RecordDict({"attached.0.error": ConfigRecord()}), "reason must be text, got None"),
        (
            RecordDict({"attached.0.error": ConfigRecord({"reason": 3})}),
            "reason must be text, got 3",
        ),
    ],
)
def test_a_reply_without_an_answer_is_rejected(reply: RecordDict, told: str) -> None:
    with pytest.raises(RejectionError, match=told):
        read_attached(reply, 0)


def test_a_long_reason_is_cut() -> None:
    reply = RecordDict()
    attach_answers(reply, ["a" * (2 * LONGEST_REASON)])
    assert read_attached(reply, 0) == "a" * LONGEST_REASON + "..."


def asked(content: RecordDict, kind: str, answer: Answer) -> tuple[Message, list[str]]:
    """Return the reply of a client to a message, and the kinds that it was called with."""
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
    message, kinds = Message(content, 5, kind), list[str]()

    def call_next(given: Message, context: Context) -> Message:
        kinds.append(given.metadata.message_type)
        found = answer(kinds[-1], given.content)
        return Message(found, reply_to=given)

    reply = as_attached(message, Context(1, 5, {}, RecordDict(), {}), call_next)
    assert message.metadata.message_type == kind
    return reply, kinds


def test_a_client_evaluates_before_it_trains() -> None:
    content = training(0)
    attach(content, [question(0), question(1)])

    def answer(kind: str, given: RecordDict) -> RecordDict:
        return RecordDict({kind: ConfigRecord({"records": list(given)})})

    reply, kinds = asked(content, MessageType.TRAIN, answer)
    assert kinds == [MessageType.EVALUATE] * 2 + [MessageType.TRAIN]
    assert reply.metadata.message_type == MessageType.TRAIN
    told = [read_attached(reply.content, place) for place in range(2)]
    assert [list(each) for each in told] == [[MessageType.EVALUATE]] * 2  # type: ignore[arg-type]
    assert reply.content["train"] == ConfigRecord({"records": list(training(0))})


@pytest.mark.parametrize("error", [ValueError("no data"), SystemExit(1)])
def test_it_trains_if_it_cannot_evaluate(error: BaseException) -> None:
    content = training(0)
    attach(content, [question(0)])

    def answer(kind: str, given: RecordDict) -> RecordDict:
        if kind == MessageType.EVALUATE:
            raise error
        return RecordDict({"trained": ConfigRecord()})

    reply, _ = asked(content, MessageType.TRAIN, answer)
    assert "trained" in reply.content
    assert read_attached(reply.content, 0) == f"{type(error).__name__}: {error}"


def test_an_error_instead_of_a_trained_model_stays_one() -> None:
    content = training(0)
    attach(content, [question(0)])

    def call_next(given: Message, context: Context) -> Message:
        return Message(Error(0, "out of memory"), reply_to=given)

    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
    message = Message(content, 5, MessageType.TRAIN)
    reply = as_attached(message, Context(1, 5, {}, RecordDict(), {}), call_next)
    assert reply.error.reason == "out of memory"


def test_other_messages_pass_as_they_are() -> None:
    content = compat.evaluateins_to_recorddict(question(0), True)
    reply, kinds = asked(content, MessageType.EVALUATE, lambda kind, given: given)
    assert kinds == [MessageType.EVALUATE]
    assert reply.content == content
