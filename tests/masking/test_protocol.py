"""A secure sum: right for any clients that drop out, and refused where it would reveal one."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_app.masking import unmasking
from fl_app.masking.disputes import left_out
from fl_app.masking.keys import cipher_key
from fl_app.masking.participant import Participant, ProtocolError
from fl_app.masking.unmasking import UnmaskError

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
import quick_shares
import rounds
from rounds import Round

ELEMENTS = st.sampled_from([0, 1, 2, 2**127, 2**128 - 1]) | st.integers(0, 2**128 - 1)


def _vectors(count: int, length: int = 5, seed: int = 0) -> dict[int, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {each: draw.integers(0, 2**32, length, dtype=np.uint32) for each in range(count)}


@settings(max_examples=15)
@given(data=st.data())
def test_the_sum_is_that_of_the_survivors_whoever_drops_out(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 7))
    played = Round(count).begin()
    most = count - played.given.needed(count)
    order = data.draw(st.permutations(range(count)))
    lost = data.draw(st.integers(0, most))
    silent = data.draw(st.integers(0, most - lost))
    dropped, mute = {*order[:lost]}, {*order[lost : lost + silent]}
    vectors = _vectors(count, seed=data.draw(st.integers(0, 99)))
    masked = played.vectors(vectors, dropped)
    plain = sum((vectors[each] for each in masked), np.zeros(5, np.uint32))
    assert played.total(masked, mute).tolist() == plain.tolist()


def test_a_ring_of_neighbours_gives_the_same_sum() -> None:
    played = Round(9, rounds.settings(neighbours=4)).begin()
    vectors = _vectors(9)
    masked = played.vectors(vectors, {4})
    plain = sum((vectors[each] for each in masked), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()


def test_below_the_threshold_there_is_no_sum() -> None:
    played = Round(6).begin()  # 4 of 6 must stay
    masked = played.vectors(_vectors(6), {0, 1, 2})
    with pytest.raises(ProtocolError, match="4 clients or more must survive"):
        played.total(masked)
    again = Round(6).begin()
    masked = again.vectors(_vectors(6), {0})
    with pytest.raises(UnmaskError, match=r"4 shares of client \d are needed, got 3"):
        again.total(masked, {1, 2})


def test_a_client_reveals_never_both_secrets_of_another() -> None:
    played = Round(5).begin()
    played.vectors(_vectors(5))
    client = played.clients[0]
    for survivors, dropped in (([0, 1, 2, 3], [3]), ([0, 1, 2, 3], [7]), ([0, 1, 2, 9], [])):
        state = client.to_bytes()
        with pytest.raises(ProtocolError, match="survived or dropped"):
            Participant.of_bytes(state).reveal(survivors, dropped)
    with pytest.raises(ProtocolError, match="this one included"):
        Participant.of_bytes(client.to_bytes()).reveal([1, 2, 3, 4], [])
    client.reveal([0, 1, 2, 3], [4])
    with pytest.raises(ProtocolError, match="unmask must follow vector, got it after unmask"):
        client.reveal([0, 1, 2, 4], [3])


def test_one_client_named_often_does_not_count_often() -> None:
    played = Round(5).begin()
    played.vectors(_vectors(5))
    with pytest.raises(ProtocolError, match="4 clients or more must survive"):
        played.clients[0].reveal([0, 0, 0, 0, 1], [])


def test_stages_come_in_order_and_once() -> None:
    played = Round(4).begin()
    client, vector = played.clients[0], np.zeros(2, np.uint32)
    with pytest.raises(ProtocolError, match="shares must follow setup, got it after shares"):
        client.share({o: played.public[o] for o in (1, 2, 3)}, 3)
    with pytest.raises(ProtocolError, match="unmask must follow vector"):
        client.reveal([0, 1, 2], [])
    client.mask(vector, {o: played.boxes[o][0] for o in (1, 2, 3)})
    with pytest.raises(ProtocolError, match="vector must follow shares, got it after vector"):
        client.mask(vector, {o: played.boxes[o][0] for o in (1, 2, 3)})


@given(ELEMENTS, ELEMENTS)
def test_the_field_in_which_tests_share_secrets_is_that_of_the_library(one: int, two: int) -> None:
    first, second = quick_shares.Element(one), quick_shares.Element(two)
    assert first * second == quick_shares.MULTIPLIED(first, second)
    other = quick_shares.Element(one or 1)
    assert other.inverse() == quick_shares.INVERSE(other)
    with pytest.raises(ValueError, match="Inversion of zero"):
        quick_shares.Element(0).inverse()


@pytest.mark.parametrize(("others", "threshold"), [(1, 2), (3, 2), (4, 6), (2, 2)])
def test_too_few_clients_or_too_low_a_threshold_are_refused(others: int, threshold: int) -> None:
    public = {each: Participant(each).set_up() for each in range(1, others + 1)}
    client = Participant(0)
    client.set_up()
    with pytest.raises(ProtocolError, match="the threshold must be in"):
        client.share(public, threshold)


def test_a_key_that_comes_twice_and_a_point_off_the_curve_are_refused() -> None:
    public = {each: Participant(each).set_up() for each in (1, 2, 3)}
    off = b"\2" + b"\xff" * 48
    for wrong, why in (
        (public[1], "got one twice"),
        ((off, public[2][1]), "Invalid"),
        ((b"short", public[2][1]), "must have 49 bytes, got 5"),
    ):
        client = Participant(0)
        client.set_up()
        with pytest.raises(ValueError, match=why):
            client.share({**public, 2: wrong}, 3)


def test_shares_for_another_client_are_refused() -> None:
    played = Round(4).begin()
    boxes = {1: played.boxes[1][0], 2: played.boxes[2][0], 3: played.boxes[3][1]}
    before = played.clients[0].to_bytes()
    _, refused = played.clients[0].mask(np.zeros(2, np.uint32), boxes)
    assert refused == [3]
    assert 3 not in played.clients[0].key_shares
    with pytest.raises(ProtocolError, match=r"2 neighbours or more are needed, got those of \[1\]"):
        Participant.of_bytes(before).mask(np.zeros(2, np.uint32), {**boxes, 2: b"none"})
    again = Round(4).begin()
    with pytest.raises(ProtocolError, match="shares of 2 neighbours or more are needed"):
        again.clients[0].mask(np.zeros(2, np.uint32), {1: again.boxes[1][0]})


def test_a_wrong_share_of_a_key_is_found() -> None:
    played = Round(4).begin()
    masked = played.vectors(_vectors(4), {3})
    first = played.clients[0].key_shares
    first[3] = first[3][:4] + bytes(64)
    with pytest.raises(UnmaskError, match="client 3"):
        played.total(masked)


@pytest.mark.parametrize(
    ("secret", "dropped", "why"),
    [
        (bytes(40), set(), "of client 3 must give 32 bytes, and do not"),
        (bytes(32), {3}, "of client 3 must give the secret of its public key"),
        (bytes(48), {3}, "of client 3 must give the secret of its public key"),
        (b"\xff" * 48, {3}, "of client 3 must give the secret of its public key"),
    ],
)
def test_a_secret_that_is_none_spoils_a_sum_and_ends_no_run(
    secret: bytes, dropped: set[int], why: str
) -> None:
    """A client that shares it can choose it, in shares of the right length."""
    played = Round(4).begin()
    masked = played.vectors(_vectors(4), dropped)
    for client, share in zip(played.clients.values(), create_shares(secret, 3, 4), strict=True):
        (client.key_shares if dropped else client.seed_shares)[3] = share
    with pytest.raises(UnmaskError, match=why):
        played.total(masked)


@pytest.mark.parametrize("secret", [bytes(15), bytes(60)])
def test_a_client_refuses_a_share_that_the_server_would_refuse_of_it(secret: bytes) -> None:
    """Else the honest neighbours of a liar would be rejected in its place."""
    played = Round(4).begin()
    liar = played.clients[3]
    key = cipher_key(liar.cipher_private, played.public[0][1])
    of_key = create_shares(liar.mask_private, 3, 4)[0]
    share = create_shares(secret, 3, 4)[0]
    played.boxes[3][0] = encrypt(key, share_keys_plaintext_concat(3, 0, share, of_key))
    boxes = {other: played.boxes[other][0] for other in played.graph[0]}
    _, refused = played.clients[0].mask(_vectors(4)[0], boxes)
    assert refused == [3]


@pytest.mark.parametrize(
    ("spoilt", "dropped"), [(slice(4, 20), set()), (slice(0, 52), {6}), (slice(4, 52), {6})]
)
@pytest.mark.parametrize("liar", [0, 3, 5, 7])
def test_who_tells_wrong_shares_is_found_and_the_sum_is_right(
    liar: int, spoilt: slice, dropped: set[int]
) -> None:
    """Six shares are needed. A lie that leaves the padding shows only if there are two more."""
    played = Round(8).begin()
    vectors = _vectors(8)
    masked = played.vectors(vectors, dropped)
    for owner, share in played.clients[liar].seed_shares.items():
        told = bytearray(share)
        told[spoilt] = bytes(each ^ 0x55 for each in told[spoilt])
        played.clients[liar].seed_shares[owner] = bytes(told)
    plain = sum((vectors[each] for each in masked), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {liar}


def test_a_wrong_share_of_a_key_is_found_if_there_are_more_than_needed() -> None:
    played = Round(8).begin()
    vectors = _vectors(8)
    masked = played.vectors(vectors, {3})
    shares = played.clients[1].key_shares
    shares[3] = shares[3][:4] + bytes(64)
    plain = sum((vectors[each] for each in masked), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {1}


def _lie(played: Round, liar: int, spoil: Callable[[bytes], bytes]) -> None:
    """Spoil all shares of seeds that a client will reveal."""
    shares = played.clients[liar].seed_shares
    shares.update({owner: spoil(share) for owner, share in shares.items()})


def _changed(share: bytes) -> bytes:
    """Return another share of which the secret's padding is still right."""
    return share[:4] + bytes(each ^ 0x55 for each in share[4:20]) + share[20:]


@pytest.mark.parametrize("liar", [0, 6, 11])
def test_to_find_a_liar_takes_few_more_decodings_than_a_sum_without_it(
    liar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does nothing else meanwhile, and the liar could come again in every round."""
    decoded = []
    combine = unmasking.combine_shares
    monkeypatch.setattr(
        unmasking, "combine_shares", lambda shares: (decoded.append(1), combine(shares))[1]
    )
    played = Round(12).begin()  # 8 of 12 are needed
    vectors = _vectors(12)
    masked = played.vectors(vectors)
    _lie(played, liar, _changed)
    plain = sum(vectors.values(), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {liar}
    assert len(decoded) <= 2 * 12 + 3 * 5  # a sum without it, and three parts with four others each


def test_one_client_that_shares_what_is_no_secret_takes_a_bounded_number_of_decodings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []
    combine = unmasking.combine_shares
    monkeypatch.setattr(
        unmasking, "combine_shares", lambda shares: (decoded.append(1), combine(shares))[1]
    )
    played = Round(12).begin()
    masked = played.vectors(_vectors(12))
    for each, client in played.clients.items():  # on no polynomial, and each with right padding
        share = client.seed_shares[3]
        client.seed_shares[3] = share[:4] + bytes([each + 1] * 16) + share[20:]
    with pytest.raises(UnmaskError) as caught:
        played.total(masked)
    assert caught.value.wrong == {3}
    assert len(decoded) <= 2 * 12 + 4 * 12 * 5


@pytest.mark.parametrize("liars", [(0, 11), (3, 7), (5, 6)])
def test_two_liars_are_found_wherever_they_are(liars: tuple[int, int]) -> None:
    played = Round(12).begin()
    vectors = _vectors(12)
    masked = played.vectors(vectors)
    for liar in liars:
        _lie(played, liar, _changed)
    plain = sum(vectors.values(), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {*liars}


@pytest.mark.parametrize("liar", [0, 3, 7])
def test_a_share_at_point_zero_is_no_secret(liar: int) -> None:
    """Any others with it give the secret that its teller chooses."""
    played = Round(8).begin()
    vectors = _vectors(8)
    masked = played.vectors(vectors)
    _lie(played, liar, lambda share: bytes(4) + share[4:36] + bytes([16] * 16))
    plain = sum(vectors.values(), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {liar}


def test_shares_of_slandered_clients_are_used_where_they_are_needed() -> None:
    """Clients 0, 2 and 4 gave 1, 3 and 5 a wrong share; six of eight are needed."""
    played = Round(8).begin()
    vectors = _vectors(8)
    masked = played.vectors(vectors)
    for owner in (0, 2, 4):
        shares = played.clients[owner + 1].seed_shares
        shares[owner] = shares[owner][:4] + bytes(48)
    plain = sum(vectors.values(), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
    assert played.wrong == {1, 3, 5}


@pytest.mark.parametrize(
    ("refused", "away"),
    [
        ({0: [], 1: [], 2: []}, {}),
        ({0: [2], 1: [2], 2: [], 3: [2]}, {2: [0, 1, 3]}),  # it garbles, or is slandered by all
        ({0: [], 1: [], 2: [0, 1, 3], 3: []}, {2: [0, 1, 3]}),  # it slanders all
        ({0: [2], 1: [], 2: [], 3: []}, {0: [2], 2: [0]}),
        ({0: [2], 1: [3], 2: [], 3: []}, {0: [2], 1: [3], 2: [0], 3: [1]}),
        ({0: [2], 1: [2], 2: [3], 3: [4], 4: []}, {2: [0, 1, 3], 3: [4], 4: [3]}),
        ({0: [9]}, {}),  # who sent no vector is not in the sum anyway
    ],
)
def test_of_two_that_disagree_one_at_least_is_left_out(
    refused: dict[int, list[int]], away: dict[int, list[int]]
) -> None:
    assert left_out(refused) == away


def test_a_state_survives_as_bytes() -> None:
    played = Round(4).begin()
    vectors = _vectors(4)
    played.clients = {e: Participant.of_bytes(c.to_bytes()) for e, c in played.clients.items()}
    masked = played.vectors(vectors)
    played.clients = {e: Participant.of_bytes(c.to_bytes()) for e, c in played.clients.items()}
    plain = sum(vectors.values(), np.zeros(5, np.uint32))
    assert played.total(masked).tolist() == plain.tolist()
