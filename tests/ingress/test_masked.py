"""What is checked of a reply in a secure sum: its form, since its content is hidden."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from fl_app.ingress.masked import (
    BOX_BYTES,
    read_boxes,
    read_public,
    read_revealed,
    read_sketch,
    read_vector,
)
from fl_app.ingress.rejection import RejectionError
from fl_app.masking.keys import KEY_SHARE_BYTES, SEED_SHARE_BYTES
from fl_app.masking.participant import Participant
from fl_app.masking.stages import (
    BOXES,
    CIPHER_KEYS,
    IDS,
    KEYS,
    MASK_KEYS,
    MASKED,
    RECORD,
    REFUSED,
    SEEDS,
    SKETCH,
)


def _reply(**fields: object) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord(fields)})  # type: ignore[arg-type]


def test_what_a_client_sends_has_the_form_that_is_read() -> None:
    clients = [Participant(each) for each in range(3)]
    public = {each.client_id: each.set_up() for each in clients}
    taken = set[bytes]()
    for first, second in public.values():
        told = _reply(**{MASK_KEYS: first, CIPHER_KEYS: second})
        assert read_public(told, taken) == (first, second)
    assert taken == {key for pair in public.values() for key in pair}
    boxes = {
        each.client_id: each.share(
            {other: public[other] for other in public if other != each.client_id}, 3
        )
        for each in clients
    }
    told = _reply(**{IDS: [*boxes[0]], BOXES: [*boxes[0].values()]})
    assert read_boxes(told, [2, 1]) == boxes[0]
    vector = np.arange(4, dtype=np.uint32)
    masked = []
    for each in clients:
        given = {other: boxes[other][each.client_id] for other in boxes[each.client_id]}
        masked.append(each.mask(vector, given)[0])
    fields = {MASKED: masked[0].tobytes(), REFUSED: [2]}
    found, refused = read_vector(_reply(**fields), 4, [1, 2])
    assert found.tolist() == masked[0].tolist()
    assert refused == [2]
    seeds, _ = clients[0].reveal([0, 1, 2], [])
    keys = [clients[0].key_shares[1]]
    assert read_revealed(_reply(**{SEEDS: seeds, KEYS: keys}), 3, 1) == (seeds, keys)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({}, "vector must be 8 bytes, got None"),
        ({MASKED: b"1234567"}, "vector must be 8 bytes, got 7 bytes"),
        ({MASKED: "12345678"}, "vector must be 8 bytes"),
        ({MASKED: b"12345678"}, "refused must be neighbours, each once, got None"),
        ({MASKED: b"12345678", REFUSED: [3]}, "refused must be neighbours"),
        ({MASKED: b"12345678", REFUSED: [1, 1]}, "refused must be neighbours"),
        ({MASKED: b"12345678", REFUSED: [True]}, "refused must be neighbours"),
    ],
)
def test_another_vector_is_rejected(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(RejectionError, match=rule):
        read_vector(_reply(**fields), 2, [1, 2])


@pytest.mark.parametrize("content", [RecordDict(), RecordDict({"x": ConfigRecord({})})])
def test_another_record_is_rejected(content: RecordDict) -> None:
    with pytest.raises(RejectionError, match="the reply must be one record masking"):
        read_vector(content, 2, [])


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({MASK_KEYS: b"x" * 48, CIPHER_KEYS: b"x" * 49}, "mask_keys must be 49 bytes"),
        ({MASK_KEYS: b"x" * 49, CIPHER_KEYS: b"x" * 49}, "a public key must be a point"),
    ],
)
def test_what_is_no_public_key_is_rejected(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(RejectionError, match=rule):
        read_public(_reply(**fields), set())


def test_a_key_that_comes_twice_is_rejected_and_takes_nothing() -> None:
    """Its honest neighbours would refuse it, and fail in its place."""
    (first, second), (other, _) = (Participant(each).set_up() for each in range(2))
    for keys, taken in ((first, first), set()), ((other, first), {first, second}):
        before = {*taken}
        with pytest.raises(RejectionError, match="a public key must be one that nobody sent"):
            read_public(_reply(**dict(zip((MASK_KEYS, CIPHER_KEYS), keys, strict=True))), taken)
        assert taken == before


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({IDS: [1, 3], BOXES: [b"x" * BOX_BYTES] * 2}, "ids must be the neighbours in order"),
        ({IDS: [1, 2], BOXES: [b"x" * BOX_BYTES]}, "boxes must be 2 values of 268 bytes"),
        ({IDS: [1, 2], BOXES: [b"x" * 9] * 2}, "boxes must be 2 values of 268 bytes"),
    ],
)
def test_boxes_for_others_or_of_another_length_are_rejected(
    fields: dict[str, object], rule: str
) -> None:
    with pytest.raises(RejectionError, match=rule):
        read_boxes(_reply(**fields), [1, 2])


def test_shares_of_another_number_or_length_are_rejected() -> None:
    seed, key = b"s" * SEED_SHARE_BYTES, b"k" * KEY_SHARE_BYTES
    for seeds, keys in (
        ([seed], [key]),
        ([seed] * 2, []),
        ([key] * 2, [key]),
        ([seed] * 2, [seed]),
    ):
        with pytest.raises(RejectionError, match="values of"):
            read_revealed(_reply(**{SEEDS: seeds, KEYS: keys}), 2, 1)


class _Counted(list[object]):
    """A list that counts how often its values are read."""

    reads = 0

    def __iter__(self) -> Iterator[object]:
        for each in super().__iter__():
            self.reads += 1
            yield each


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        (REFUSED, 7, lambda told: read_vector(told, 2, [1, 2])),
        (SEEDS, b"s", lambda told: read_revealed(told, 2, 1)),
        (BOXES, b"x", lambda told: read_boxes(told, [1, 2])),
        (IDS, 7, lambda told: read_boxes(told, [1, 2])),
    ],
)
def test_a_list_that_is_too_long_is_rejected_unread(
    name: str, value: object, read: Callable[[RecordDict], object]
) -> None:
    """The server reads replies one after another, and a reply may have gigabytes."""
    told = _reply(**{MASKED: b"12345678", IDS: [1, 2], name: [value] * 10_000})
    sent = _Counted(told[RECORD][name])  # type: ignore[call-overload]
    told[RECORD].__dict__["_data"][name] = sent
    with pytest.raises(RejectionError, match=f"{name} must be"):
        read(told)
    assert sent.reads < 10


def test_a_reply_with_more_fields_than_any_client_is_asked_for_is_rejected() -> None:
    told = _reply(**{SKETCH: bytes(4)}, **{f"more-{each}": 0 for each in range(10_000)})
    with pytest.raises(RejectionError, match="the reply must be of at most 10000 fields"):
        read_sketch(told, 1, 2.0, 3.0)


def test_a_sketch_is_read_as_it_was_sent() -> None:
    sent = np.array([-2.0, 0.5, 2.0], np.float32)
    assert read_sketch(_reply(**{SKETCH: sent.tobytes()}), 3, 2.0, 3.0).tolist() == sent.tolist()


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        ({SKETCH: np.ones(4, np.float32).tobytes()}, "sketch must be 12 bytes, got 16 bytes"),
        ({SKETCH: [1.0, 1.0, 1.0]}, "sketch must be 12 bytes"),
        ({SKETCH: np.array([0, np.nan, 0], np.float32).tobytes()}, "at most 2, got nan"),
        ({SKETCH: np.array([0, np.inf, 0], np.float32).tobytes()}, "at most 2, got inf"),
        ({SKETCH: np.array([0, -2.5, 0], np.float32).tobytes()}, "at most 2, got 2.5"),
        ({SKETCH: np.array([2, 2, 2], np.float32).tobytes()}, "norm of at most 3, got 3.46"),
        ({}, "sketch must be 12 bytes"),
    ],
)
def test_another_sketch_is_rejected(told: dict[str, object], rule: str) -> None:
    with pytest.raises(RejectionError, match=rule):
        read_sketch(_reply(**told), 3, 2.0, 3.0)
