"""Evaluations that are attached to a training message, and their answers, attached to its reply.

Records of the k-th evaluation have names that begin with `attached.<k>.`. A model that the client
gets for training anyway is not sent again: the record `rows` has its places among those.
"""

from collections.abc import Sequence
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.common import EvaluateIns
from flwr.compat.common import recorddict_compat as compat

from fl_app.ingress.rejection import LONGEST_REASON, RejectionError, printable, shown

_TRAINED, _MODELS, _CONFIG = "fitins.parameters", "evaluateins.parameters", "evaluateins.config"
_ROWS, _ERROR, _REASON = "rows", "error", "reason"


def attach(training: RecordDict, questions: Sequence[EvaluateIns]) -> None:
    """Add evaluations to a training message."""
    sent = training.array_records[_TRAINED]
    for place, ins in enumerate(questions):
        asked = compat.evaluateins_to_recorddict(ins, True)
        training[_name(place, _CONFIG)] = asked.config_records[_CONFIG]
        models = asked.array_records[_MODELS]
        rows = [_row(model.data, sent) for model in models.values()]
        if "" in rows:
            training[_name(place, _MODELS)] = models
        else:
            training[_name(place, _ROWS)] = ConfigRecord({_ROWS: rows})


def detach(training: RecordDict) -> list[RecordDict]:
    """Remove the evaluations from a training message; return each as a message of its own."""
    found: list[RecordDict] = []
    while (name := _name(len(found), _CONFIG)) in training:
        place, asked = len(found), RecordDict({_CONFIG: training.pop(name)})
        rows = training.pop(_name(place, _ROWS), None)
        if rows is None:
            asked[_MODELS] = training.pop(_name(place, _MODELS))
        else:
            sent = training.array_records[_TRAINED]
            models = [sent[row] for row in cast(list[str], rows[_ROWS])]
            asked[_MODELS] = ArrayRecord({str(k): each for k, each in enumerate(models)})
        found.append(asked)
    return found


def attach_answers(reply: RecordDict, answers: Sequence[RecordDict | str]) -> None:
    """Add the content of the answers to a reply, or the reasons why there are none."""
    for place, answer in enumerate(answers):
        if isinstance(answer, str):
            reply[_name(place, _ERROR)] = ConfigRecord({_REASON: answer})
        else:
            for name, record in answer.items():
                reply[_name(place, name)] = record


def read_attached(reply: RecordDict, place: int) -> RecordDict | str:
    """Return the content of the answer at a place, or the reason why the client could not answer.

    Raises RejectionError if nothing is attached there, or a reason that is no text.
    """
    mark = _name(place, "")
    found = {name.removeprefix(mark): each for name, each in reply.items() if name.startswith(mark)}
    if not found:
        raise RejectionError("the score", "attached to the reply of training", "nothing")
    if _ERROR not in found:
        return RecordDict(found)
    reason = dict(found[_ERROR]).get(_REASON)
    if type(reason) is not str:
        raise RejectionError(_REASON, "text", shown(reason))
    return printable(reason, LONGEST_REASON)


def _name(place: int, name: str) -> str:
    return f"attached.{place}.{name}"


def _row(model: bytes, sent: ArrayRecord) -> str:
    """Return the key of an equal model among those sent; empty if there is none."""
    return next((key for key, each in sent.items() if each.data == model), "")
