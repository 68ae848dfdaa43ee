"""Accepts one reply from each client that was asked; all other replies are rejected."""

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
    """Return the answers that `read` makes of replies, in their order.

    `asked` maps the key of each asked client to its question. `reject` is called for a reply of
    another sender, for a second reply to a question, and if `read` raises any exception.
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
