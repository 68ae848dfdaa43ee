"""A trial whose rounds alternate: the same with messages as bytes and clients that forget.

Ray and the deployment differ from threads in what reaches a client: bytes, in any order, in a
process that may have seen none of the earlier rounds. Real engines need a minute for such a run.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from flwr.app import Context, Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage

sys.path.insert(0, str(Path(__file__).parent))
from carried_runs import CLIENTS, MIXED, Watched, assert_same, run

from fl_app import client_wiring
from fl_app.engines.inprocess import InProcessGrid
from fl_app.records.history import FELL_BACK, KEPT, UNDONE

ROUNDS = 12
TRIED = (f"rounds={ROUNDS}", "strategy.participation=1", "strategy.fallback=true")
CASES = {"ifca": ("strategy=ifca",), "fedem": ("strategy=fedem", *MIXED)}


def _as_bytes(message: Message) -> Message:
    """Return what is left of a message after it was sent."""
    return message_from_proto(
        ProtoMessage.FromString(message_to_proto(message).SerializeToString())
    )


class Forgetting(Watched):
    """Receives and sends bytes, and knows nothing of what this process did before."""

    def __call__(self, message: Message, context: Context) -> Message:
        client_wiring._clients.clear()
        return _as_bytes(super().__call__(_as_bytes(message), context))


class Backwards(InProcessGrid):
    """Answers the last message first."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [*super().send_and_receive([*messages][::-1], timeout=timeout)][::-1]


@pytest.mark.parametrize("name", CASES)
def test_a_trial_in_alternating_rounds_is_the_same_over_any_wire(name: str, tmp_path: Path) -> None:
    words = (*CASES[name], *TRIED)
    rounds = run(tmp_path / "threads", *words)
    run(tmp_path / "bytes", *words, watched=Forgetting(), grid=Backwards)
    assert_same(tmp_path / "threads", tmp_path / "bytes")
    verdicts = [e["kind"] for each in rounds for e in each["events"]]
    assert {KEPT, FELL_BACK, UNDONE} & {*verdicts}
    assert all(len(each["sampled"]) == CLIENTS and not each["rejected"] for each in rounds)
