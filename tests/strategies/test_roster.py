"""Who is there: by client id, whatever joined, left or claimed to be whom."""

from dataclasses import dataclass

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


def test_an_id_that_a_live_node_holds_is_refused() -> None:
    known = Roster()
    holder = joined(known, "a", 3)
    other = Node("b")
    known.register(other)
    assert not known.introduce(other, Identity(3, group=0, samples=10))
    assert dict(known.proxies()) == {3: holder}
    assert known.strangers() == [other]


def test_a_node_that_comes_back_says_anew_who_it_is() -> None:
    known = Roster()
    node = joined(known, "a", 3)
    known.unregister(node)
    assert known.samples(3) == 10
    known.register(node)
    assert not known.proxies()
    assert known.proxy(3) is node
    assert known.strangers() == [node]
    assert known.introduce(node, Identity(4, group=0, samples=99))
    assert known.strangers() == []
    assert dict(known.proxies()) == {4: node}
    assert known.samples(4) == 99


def test_a_node_in_doubt_is_left_out_until_it_says_again_who_it_is() -> None:
    known = Roster()
    silent, other = joined(known, "a", 3), joined(known, "b", 1)
    known.doubt(silent)
    assert dict(known.proxies()) == {1: other}
    assert known.strangers() == [silent]
    assert known.client_id(silent) == 3
    assert known.samples(3) == 10
    assert known.groups() == {3: 0, 1: 0}
    assert known.introduce(silent, Identity(3, group=0, samples=10))
    assert list(known.proxies()) == [1, 3]
    assert known.strangers() == []


def test_a_node_that_never_said_who_it_is_cannot_be_doubted() -> None:
    known = Roster()
    stranger = Node("a")
    known.register(stranger)
    known.doubt(stranger)
    assert known.strangers() == [stranger]


def test_a_node_that_is_silent_again_and_again_rests_longer_each_time() -> None:
    known = Roster()
    node = joined(known, "a", 3)

    def rests() -> int:
        """Return after how many rounds a node that was silent is asked again."""
        known.doubt(node)
        known.doubt(node)  # by its evaluation too
        for rounds in range(100):
            known.begin_round()
            if known.strangers():
                known.introduce(node, Identity(3, group=0, samples=10))
                return rounds
        raise AssertionError("it is never asked again")

    assert [rests() for _ in range(8)] == [0, 1, 3, 7, 15, 31, 31, 31]
    known.heard([node])
    known.begin_round()
    assert [rests() for _ in range(2)] == [0, 1]
    known.doubt(node)
    known.begin_round()
    assert known.strangers() == []
    known.wake()  # too few others are there
    assert known.strangers() == [node]


def test_a_node_that_trains_but_is_silent_in_evaluations_never_rests() -> None:
    known = Roster()
    node = joined(known, "a", 3)
    for _ in range(5):
        known.heard([node])
        known.doubt(node, training=False)
        known.begin_round()
        assert known.strangers() == [node]
        known.introduce(node, Identity(3, group=0, samples=10))


def test_a_node_that_answers_only_a_first_stage_of_training_rests() -> None:
    known = Roster()
    node = joined(known, "a", 3)
    for _ in range(2):
        known.heard([node])
        known.doubt(node)
        known.begin_round()
    assert known.strangers() == []


def test_a_node_that_is_silent_without_having_trained_rests() -> None:
    known = Roster()
    node = joined(known, "a", 3)
    for _ in range(2):
        known.doubt(node, training=False)
        known.begin_round()
    assert known.strangers() == []
