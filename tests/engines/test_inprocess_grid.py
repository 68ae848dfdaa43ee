"""The in-process Grid: who is called together, and whose errors are whose."""

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from fl_app.client.cohort_barrier import gathered, together
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.puller import Silence, content


def _sizes(*, workers: int, gathers: bool) -> list[int]:
    """Return for each of five clients with how many it was called together; 0 if it raised."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 1:
            raise ValueError("broken")
        size = together(1, lambda jobs: [len(jobs)] * len(jobs)) if gathered() else -1
        return Message(RecordDict({"found": MetricRecord({"size": size})}), reply_to=message)

    grid = InProcessGrid(app, nodes=5, run_config={}, workers=workers, gathers=gathers)
    try:
        messages = [grid.create_message(RecordDict(), "train", n, "1") for n in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages))
    finally:
        grid.close()
    assert [reply.metadata.src_node_id for reply in replies] == [1, 2, 3, 4, 5]
    return [0 if r.has_error() else int(r.content["found"]["size"]) for r in replies]


def test_a_cohort_is_as_large_as_there_are_workers_and_not_held_up_by_an_error() -> None:
    assert _sizes(workers=8, gathers=True) == [4, 0, 4, 4, 4]
    assert _sizes(workers=3, gathers=True) == [2, 0, 2, 2, 2]


def test_without_gathering_clients_are_on_their_own() -> None:
    assert _sizes(workers=3, gathers=False) == [-1, 0, -1, -1, -1]


def test_the_error_of_a_client_is_its_own_whatever_code_it_gives() -> None:
    """The first node has the SuperLink's id here, so its errors cannot be told by their source."""
    app = ClientApp()

    @app.train()
    def train(message: Message, _: Context) -> Message:
        return Message(Error(ErrorCode.NODE_UNAVAILABLE, "gone"), reply_to=message)

    grid = InProcessGrid(app, nodes=1, run_config={}, workers=1)
    try:
        (reply,) = grid.send_and_receive([grid.create_message(RecordDict(), "train", 1, "1")])
    finally:
        grid.close()
    assert content(reply) == "gone"
    assert not isinstance(content(reply), Silence)
