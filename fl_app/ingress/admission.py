"""Who answered is who was asked, once; everybody else is rejected and named."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fl_app.ingress.rejection import RejectionError, trusted

Key = TypeVar("Key")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


def admit(
    replies: Iterable[tuple[Key, Any]],
    asked: Mapping[Key, Question],
    read: Callable[[Any, Question], Answer],
    reject: Callable[[Key, Question | None, RejectionError], None],
) -> list[Answer]:
    """Return the answers that `read` makes of replies, in their order; tell `reject` the others.

    `asked` are the questions by the key of who was asked. A reply of nobody who was asked, a
    second one to a question, and one that `read` raises for, whatever it raises, is rejected.
    """
    answers: list[Answer] = []
    answered: set[Key] = set()
    for key, reply in replies:
        question = asked.get(key)
        try:
            if question is None:
                raise RejectionError("the sender", "one that was asked", "another")
            if key in answered:
                raise RejectionError("the reply", "the only one to its question", "one more")
            answered.add(key)
            answers.append(trusted(read, reply, question))
        except RejectionError as error:
            reject(key, question, error)
    return answers
