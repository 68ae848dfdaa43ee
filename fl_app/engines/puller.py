"""Pulls replies from a Grid one by one, so that a broken or stalled reply affects no other.

A reply arrives in pieces. If a node is disconnected before the last piece, or sends slowly on
purpose, Flower's pull waits for the rest: three minutes, at most two hours.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread

from flwr.app import Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp.grid import Grid
from flwr.supercore.run import RunNotRunningException
from httpx import TransportError

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.ingress.rejection import LONGEST_REASON, RejectionError, printable, shown, trusted
from fl_app.records.aside import Job, work

Pull = Future[list[Message]]
Call = Callable[[], list[Message]]

PATIENCE_S = 10.0
"""How long other replies wait, in one look, for those whose pieces are still arriving."""
LEAST_PATIENCE_S = 0.1
"""How long at least for each of them, so that most replies are read as soon as they are whole."""
OF_THE_LOST = (
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)
"""Errors that the SuperLink returns for a node that is gone or too late."""


class Silence(str):
    """Why there is no reply from a node: it is gone, or did not answer in time."""

    __slots__ = ()


class Puller:
    """Pulls replies; a pull that has not completed continues until the next call.

    Pulls run one after another in a thread. A stalled pull keeps its thread; the next pull gets
    a new one. One look waits PATIENCE_S for all stalled pulls together, half of what is left of it
    for each, so that no group of clients delays the others. `in_vain_s` is the time that the last
    look needed for messages without a reply.
    """

    def __init__(self) -> None:
        self._coming: dict[str, Pull] = {}
        self._jobs: SimpleQueue[Job | None] | None = None
        self._patience_s = PATIENCE_S
        self.in_vain_s = 0.0

    def look(self, grid: Grid, ids: Iterable[str]) -> Iterator[tuple[str, RecordDict | str]]:
        """Yield the replies that have arrived, each with the id of its message.

        The id is the one in the request, not the one in the reply.
        """
        self.in_vain_s, self._patience_s = 0.0, PATIENCE_S
        for message_id in ids:
            began = time.monotonic()
            try:
                replies = self._pulled(grid, message_id)
            except (RunNotRunningException, TransportError, OSError):
                raise  # the connection failed after Flower's retries; not the client's fault
            except Exception as error:
                what = f"{type(error).__name__}: {shown(error)}"
                yield message_id, f"the reply could not be read: {what}"
                continue
            if replies:
                yield message_id, content(replies[0])
            elif message_id not in self._coming:
                self.in_vain_s += time.monotonic() - began

    def forget(self, ids: Iterable[str]) -> None:
        """Stop waiting for the replies to these messages."""
        for message_id in ids:
            self._coming.pop(message_id, None)

    def _pulled(self, grid: Grid, message_id: str) -> list[Message]:
        """Return the reply to a message, if it has arrived; raises what the Grid raised."""
        if isinstance(grid, InProcessGrid):
            return list(grid.pull_messages([message_id]))
        pull = self._coming.get(message_id)
        if pull is None:
            pull = self._start(lambda: list(grid.pull_messages([message_id])))
            limit_s = max(self._patience_s / 2, LEAST_PATIENCE_S)
            _await(pull, limit_s)
            if not pull.done():
                self._patience_s -= limit_s
                self._coming[message_id] = pull
                self._leave()
        if not pull.done():
            return []
        self._coming.pop(message_id, None)
        return pull.result()

    def _start(self, call: Call) -> Pull:
        if self._jobs is None:
            self._jobs = SimpleQueue()
            Thread(target=work, args=(self._jobs,), daemon=True).start()
        pull: Pull = Future()
        self._jobs.put((pull, call))
        return pull

    def _leave(self) -> None:
        """Leave the thread to the stalled pull; the next pull starts a new thread."""
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None


def _await(pull: Pull, limit_s: float) -> None:
    """Wait for a reply, at most `limit_s`; raises KeyboardInterrupt on a request to stop."""
    end = time.monotonic() + limit_s
    while wait([pull], min(limit_s, stop_request.LOOK_S)).not_done and time.monotonic() < end:
        stop_request.check()


def content(reply: Message) -> RecordDict | str:
    """Return the content of a reply, or the reason why there is none."""
    try:
        return trusted(_read, reply)
    except RejectionError as error:
        return str(error)


def _read(reply: Message) -> RecordDict | str:
    if reply.has_error():
        reason = printable(str(reply.error.reason), LONGEST_REASON)
        # a client app can return any code, but the SuperLink stores no reply in its own name
        made_here = reply.metadata.src_node_id == SUPERLINK_NODE_ID
        return Silence(reason) if made_here and reply.error.code in OF_THE_LOST else reason
    return reply.content if reply.has_content() else "an empty reply"
