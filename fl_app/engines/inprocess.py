"""A Flower Grid that runs the unmodified ClientApp in this process, without Ray."""

import copy
import itertools
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import partial

from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp.grid import Grid
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity

from fl_app.client.cohort_barrier import CohortBarrier
from fl_app.engines import stop_request
from fl_app.ingress.rejection import shown

RUN_ID = 1
CLIENT_RAISED = 0
"""Error code of a reply from a client that raised, the same as in Flower's engines."""


class InProcessGrid(Grid):
    """Clients as threads: `workers` run in parallel, replies in the order of the messages.

    With `gathers`, clients that run in parallel form a cohort that can train as one computation.
    Node ids are 1..n in the order of the partitions, so that a run can be repeated.
    """

    def __init__(
        self,
        client_app: ClientApp,
        *,
        nodes: int,
        run_config: UserConfig,
        workers: int,
        gathers: bool = False,
    ) -> None:
        self._app = client_app
        self._run = Run.create_empty(run_id=RUN_ID)
        self._nodes = range(1, nodes + 1)
        self._run_config = run_config
        self._contexts: dict[int, Context] = {}
        self._workers, self._gathers = workers, gathers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="client")
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count()
        self._closed = threading.Event()
        TaskIdentity.run_id, TaskIdentity.task_id = RUN_ID, 1
        TaskIdentity.node_id = SUPERLINK_NODE_ID

    def close(self) -> None:
        """Stop: cancel clients that have not started, and end Flower's polling thread.

        Clients that are still training, as after an interrupt, are not awaited.
        """
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to one node."""
        return Message(
            content=content,
            message_type=message_type,
            dst_node_id=dst_node_id,
            group_id=group_id,
            ttl=ttl,
        )

    def get_node_ids(self) -> Iterable[int]:
        """Return all node ids, in order."""
        if self._closed.is_set():
            raise RunNotRunningException
        return self._nodes

    def client_of(self, node: int) -> int:
        """Return the client id that this engine assigned to a node."""
        return node - 1

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the clients until they end and store their replies for `pull_messages`."""
        waiting = list(messages)
        ids = [f"{RUN_ID}-{next(self._numbers)}" for _ in waiting]
        for message_id, message in zip(ids, waiting, strict=True):
            message.metadata.__dict__["_message_id"] = message_id  # as Flower's own grids do
        self._replies.update(zip(ids, self.send_and_receive(waiting), strict=True))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to messages that were pushed before."""
        return [self._replies.pop(key) for key in message_ids]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Run each message's client and return the replies in the order of the messages.

        `timeout` has no effect, since a client in a thread is never lost.
        """
        if not self._gathers:
            return self._gather([self._pool.submit(self._answer, each) for each in messages])
        waiting, replies = list(messages), list[Message]()
        for start in range(0, len(waiting), self._workers):
            replies += self._gather(self._cohort(waiting[start : start + self._workers]))
        return replies

    def _cohort(self, messages: list[Message]) -> list[Future[Message]]:
        barrier = CohortBarrier(len(messages))
        futures = []
        for place, message in enumerate(messages):
            future = self._pool.submit(self._answer_at, barrier.member(place), message)
            # a client that raised or was cancelled must not block the cohort
            future.add_done_callback(partial(_arrive, barrier, place))
            futures.append(future)
        return futures

    @staticmethod
    def _gather(futures: list[Future[Message]]) -> list[Message]:
        try:
            while wait(futures, stop_request.LOOK_S).not_done:
                stop_request.check()
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _answer_at(self, member: AbstractContextManager[None], message: Message) -> Message:
        with member:
            return self._answer(message)

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        # Client mods change the content in place, and messages can share a record.
        received = copy.deepcopy(message)
        try:
            reply = self._app(received, self._context(node))
            if isinstance(reply, Message) and not reply.has_error():
                return reply
            if isinstance(reply, Message):  # the client's own: no thread is ever lost
                return Message(Error(CLIENT_RAISED, reply.error.reason), reply_to=message)
            reason = f"the client must return a Message, got {type(reply).__name__}"
        except BaseException as error:  # not even a client's SystemExit ends the run
            reason = f"{type(error).__name__}: {shown(error)}"
        return Message(Error(code=CLIENT_RAISED, reason=reason), reply_to=message)

    def _context(self, node: int) -> Context:
        """Return the context of a node, which persists between messages."""
        return self._contexts.setdefault(
            node,
            Context(
                run_id=RUN_ID,
                node_id=node,
                node_config={"partition-id": node - 1, "num-partitions": len(self._nodes)},
                state=RecordDict(),
                run_config=self._run_config,
            ),
        )


def _arrive(barrier: CohortBarrier, place: int, _: Future[Message]) -> None:
    barrier.arrived(place)


def app_context(run_config: UserConfig) -> Context:
    """Return the context that the ServerApp runs in."""
    return Context(
        run_id=RUN_ID,
        node_id=SUPERLINK_NODE_ID,
        node_config={},
        state=RecordDict(),
        run_config=run_config,
    )
