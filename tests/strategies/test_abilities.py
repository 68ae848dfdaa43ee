"""What a method has by the name of a method alone, and what holds without it."""

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from fl_app.strategies.abilities import asked_of, asks_losses, decided, wants_loss


class Plain:
    """A method with nothing beside."""

    compares = False


class Able:
    """A method that reads losses, asks some clients, and knows what client 1 chose."""

    compares = False
    wants_loss = True

    @classmethod
    def asks_losses(cls, options: Mapping[str, Any]) -> bool:
        return options["reads"] == "losses"

    def asks_of(self, client_id: int) -> Collection[str]:
        return ["counts"] if client_id == 1 else []

    def chosen(self, client_id: int) -> int | None:
        return {1: 2}.get(client_id)


class Comparing(Plain):
    compares = True


class Wanting(Plain):
    wants_loss = True


def test_every_client_is_asked_for_all_unless_the_method_says_otherwise() -> None:
    assert asked_of(Plain(), [0, 1], ["counts", "losses"]) == [["counts", "losses"]] * 2
    assert asked_of(Able(), [0, 1], ["counts", "losses"]) == [[], ["counts"]]


@pytest.mark.parametrize(
    ("kind", "reads", "expected"),
    [(Plain, "losses", False), (Comparing, "losses", True), (Able, "losses", True),
     (Able, "nothing", False), (object, "losses", False), (Wanting, "nothing", True)],
)  # fmt: skip
def test_losses_are_asked_for_where_models_are_compared_or_the_method_says_so(
    kind: type, reads: str, expected: bool
) -> None:
    assert asks_losses(kind, {"reads": reads}) == expected
    assert asks_losses(kind, {"reads": reads, "fallback": True})


def test_a_method_wants_losses_only_if_it_says_so() -> None:
    assert not wants_loss(Plain())
    assert wants_loss(Able())


def test_of_several_models_a_client_gets_the_one_it_trained_last_or_else_evaluated_last() -> None:
    clients, offered, evaluated = [0, 1, 2, 3], [(0, 1, 2)] * 3 + [(0,)], {0: 1, 1: 0}
    assert decided(Plain(), clients, offered, evaluated) == [[1], [0], [], (0,)]
    assert decided(Able(), clients, offered, evaluated) == [[1], [2], [], (0,)]
