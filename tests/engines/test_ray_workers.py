"""A Ray worker that is killed costs the reply that it worked on, and no other."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import ray
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.simulation.ray_transport.ray_actor import BasicActorPool, ClientAppActor
from flwr.supercore.task_identity import TaskIdentity

from fl_app.engines.ray_workers import replace_dead_workers
from fl_app.engines.simulation import NOT_STARTED


@pytest.fixture
def pool() -> Iterator[BasicActorPool]:
    _start()
    replace_dead_workers()
    replace_dead_workers()
    made = BasicActorPool(ClientAppActor, {"num_cpus": 1}, {})
    made.add_actors_to_pool(made.actors_capacity)
    yield made
    ray.shutdown()


def _start() -> None:
    """Start Ray, and again if its node was not ready in 30 s, as on a busy machine."""
    while True:
        try:
            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
            return
        except Exception as error:
            ray.shutdown()
            if NOT_STARTED not in str(error):
                raise


def test_a_killed_worker_is_replaced_if_there_is_room(
    pool: BasicActorPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID

    def asked(kills: bool) -> str:
        """Let a worker answer with its process id, as Flower's backend does."""

        def client_app(message: Message, context: Context) -> Message:
            if kills:
                os.kill(os.getpid(), signal.SIGKILL)
            return Message(Error(code=0, reason=str(os.getpid())), reply_to=message)

        message = Message(RecordDict(), dst_node_id=1, message_type="train")
        context = Context(1, 1, {}, RecordDict(), {})
        job = (lambda: client_app, message, "0", context)
        future = pool.submit(lambda actor, *given: actor.run.remote(*given), job)
        try:
            reply, _ = pool.fetch_result_and_return_actor_to_pool(future)
        except Exception:
            pool.add_actor_back_to_pool(future)
            raise
        return str(reply.error.reason)

    first = asked(False)
    assert asked(False) == first
    with pytest.raises(ray.exceptions.RayActorError):
        asked(True)
    second = asked(False)
    assert second != first
    assert asked(False) == second
    _one_machine_goes(pool, asked, monkeypatch)


def _one_machine_goes(
    pool: BasicActorPool, asked: Callable[[bool], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the worker while another process waits for its CPU: there is no room for a new one."""
    monkeypatch.setattr("fl_app.engines.ray_workers.READY_S", 2.0)
    pool.num_actors = 2  # as if there were a second machine
    other = ClientAppActor.options(num_cpus=1).remote()
    with pytest.raises(ray.exceptions.RayActorError):
        asked(True)
    assert (pool.pool, pool.num_actors) == ([], 1)
    threading.Timer(0.5, lambda: pool.pool.append(other)).start()
    assert asked(False)  # waits until a worker is free
