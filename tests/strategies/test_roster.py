"""Who is there: by client id, whatever joined, left or claimed to be whom."""

from dataclasses import dataclass

import pytest

from fl_app.strategies.roster import Identity, Roster


@dataclass
class Node:
    """A proxy as far as the roster looks at it."""

    cid: str


def joined(known: Roster, node: str, client_id: int) -> Node:
    """Let a node join and say who it is."""
    proxy = Node(node)
    known.register(proxy)
    known.introduce(proxy, Identity(client_id, group=0, samples=10))
    return proxy


def test_clients_are_listed_by_id_once_they_have_said_who_they_are() -> None:
    known = Roster()
    late, early = joined(known, "a", 7), joined(known, "b", 2)
    known.register(Node("c"))
    assert dict(known.proxies()) == {2: early, 7: late}
    assert list(known.proxies()) == [2, 7]
    assert [proxy.cid for proxy in known.strangers()] == ["c"]


def test_every_change_shows_in_the_next_list() -> None:
    known = Roster()
    first = joined(known, "a", 1)
    assert list(known.proxies()) == [1]
    joined(known, "b", 0)
    assert list(known.proxies()) == [0, 1]
    known.unregister(first)
    assert list(known.proxies()) == [0]
    again = joined(known, "c", 1)
    assert known.proxies()[1] is again
    known.absent = frozenset({0})
    assert list(known.proxies()) == [1]
    known.absent = frozenset()
    assert list(known.proxies()) == [0, 1]


def test_an_id_that_a_live_node_holds_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    known = Roster()
    holder = joined(known, "a", 3)
    joined(known, "b", 3)
    assert dict(known.proxies()) == {3: holder}
    assert "node b claims client id 3, which node a holds" in caplog.text
