"""Takes replies from a Grid, each alone: one that is broken or stalls costs no other.

A reply comes in pieces. Where a node is cut off in the middle of them, or sends them slowly on
purpose, Flower's pull waits for the rest: three minutes, at most two hours.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp.grid import Grid
from flwr.supercore.run import RunNotRunningException
from httpx import TransportError

from fl_app.engines import stop_request
from fl_app.engines.inprocess import InProcessGrid
from fl_app.ingress.rejection import RejectionError, printable, shown, trusted
from fl_app.records.aside import Job, work

Pull = Future[list[Message]]
Call = Callable[[], list[Message]]

PATIENCE_S = 10.0
"""How long the others wait for a reply whose pieces are still coming."""
LONGEST_REASON = 4000
"""Characters of an error that a node sends; they go to the log and to the records."""
OF_THE_LOST = (
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)
"""Errors that the SuperLink gives in the place of a node that is gone or too late."""


class Silence(str):
    """Why nothing came from a node: it is gone, or did not answer in time."""

    __slots__ = ()


class Puller:
    """Looks for replies; what is still coming is kept for the next look.

    Pulls run one after another in a thread, that can be left behind with a pull that stalls.
    """

    def __init__(self) -> None:
        self._coming: dict[str, Pull] = {}
        self._jobs: SimpleQueue[Job | None] | None = None

    def look(self, grid: Grid, ids: Iterable[str]) -> Iterator[tuple[str, RecordDict | str]]:
        """Yield the replies that have come, by the id of the message for which each was pulled.

        Which message a reply answers is what was asked for, not what the reply says.
        """
        for message_id in ids:
            try:
                replies = self._pulled(grid, message_id)
            except (RunNotRunningException, TransportError, OSError):
                raise  # of the connection, which Flower has tried again: no client's doing
            except Exception as error:
                what = f"{type(error).__name__}: {shown(error)}"
                yield message_id, f"the reply could not be read: {what}"
                continue
            if replies:
                yield message_id, content(replies[0])

    def forget(self, ids: Iterable[str]) -> None:
        """Wait no more for what is still coming."""
        for message_id in ids:
            self._coming.pop(message_id, None)

    def _pulled(self, grid: Grid, message_id: str) -> list[Message]:
        """Return what has come for a message; raises what the Grid raised."""
        if isinstance(grid, InProcessGrid):
            return list(grid.pull_messages([message_id]))
        pull = self._coming.get(message_id)
        if pull is None:
            pull = self._start(lambda: list(grid.pull_messages([message_id])))
            _await(pull)
            if not pull.done():
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
        """Leave the thread to the pull that stalls; the next one gets a thread of its own."""
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = None


def _await(pull: Pull) -> None:
    """Wait for a reply as long as the others may; the loop may be asked to stop meanwhile."""
    end = time.monotonic() + PATIENCE_S
    while wait([pull], min(PATIENCE_S, stop_request.LOOK_S)).not_done and time.monotonic() < end:
        stop_request.check()


def content(reply: Message) -> RecordDict | str:
    """Return what stands in a reply, or why there is nothing."""
    try:
        return trusted(_read, reply)
    except RejectionError as error:
        return str(error)


def _read(reply: Message) -> RecordDict | str:
    if reply.has_error():
        reason = printable(str(reply.error.reason), LONGEST_REASON)
        return Silence(reason) if reply.error.code in OF_THE_LOST else reason
    return reply.content if reply.has_content() else "an empty reply"
