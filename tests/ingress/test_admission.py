"""Who answered is who was asked, once."""

import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from hostile import Exiting, Raising

from fl_app.ingress.admission import admit
from fl_app.ingress.rejection import RejectionError, shown

ASKED = {"a": 1, "b": 2, "c": 3}
BAD = {"raises": Raising, "leaves": Exiting}


def _read(reply: object, question: int) -> tuple[int, str]:
    if not isinstance(reply, str):
        raise ValueError(shown(reply))
    return question, reply


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", 7, None]),
            st.one_of(st.text(max_size=2), st.sampled_from(list(BAD)).map(lambda n: BAD[n]())),
        )
    )
)
def test_the_first_reply_to_each_question_counts_and_all_others_are_named(
    replies: list[tuple[object, object]],
) -> None:
    told: list[tuple[object, str]] = []

    def reject(key: object, question: int | None, error: RejectionError) -> None:
        assert question == ASKED.get(key)
        told.append((key, str(error)))

    found = admit(replies, ASKED, _read, reject)
    answered, expected, named = set(), [], []
    for key, reply in replies:
        if key in ASKED and key not in answered and isinstance(reply, str):
            expected.append((ASKED[key], reply))
        else:
            named.append(key)
        answered.add(key)
    assert found == expected
    assert [key for key, _ in told] == named


def test_each_rule_has_its_words() -> None:
    told: list[str] = []
    replies = [("a", "x"), ("a", "y"), ("d", "z"), ("b", Raising())]
    admit(replies, ASKED, _read, lambda key, question, error: told.append(f"{key}: {error}"))
    assert told == [
        "a: the reply must be the only one to its question, got one more",
        "d: the sender must be one that was asked, got another",
        "b: the reply must be readable, got ValueError: <Raising instance at "
        + told[2].rpartition(" ")[2],
    ]
