"""Replaces workers of a simulation that died, and forgets those whose machine is gone.

Flower's pool keeps a dead Ray actor and gives it the next messages, which all fail at once. A new
actor for which a smaller cluster has no room would never answer.
"""

import time
from collections.abc import Callable
from logging import getLogger
from typing import Any

log = getLogger(__name__)
REPLACES = "_replaces_dead_workers"
READY_S = 60.0
"""Time in which a new worker must be ready; otherwise the cluster has no room for it."""

BUSY_S = 0.02


def replace_dead_workers() -> None:
    """Make the pool of this process replace each dead actor with a new one if it has room."""
    from flwr.simulation.ray_transport.ray_actor import BasicActorPool

    pool: Any = BasicActorPool
    if hasattr(pool, REPLACES):
        return
    pool.submit = _waiting(pool.submit)
    pool.fetch_result_and_return_actor_to_pool = _replacing(
        pool.fetch_result_and_return_actor_to_pool
    )
    pool.add_actor_back_to_pool = _returning(pool.add_actor_back_to_pool)
    setattr(pool, REPLACES, True)


def _waiting(submit: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `submit` that waits for a free actor."""

    def waiting(pool: Any, *given: Any) -> Any:
        while True:
            try:
                return submit(pool, *given)
            except IndexError:  # Flower has a thread for each worker that was there at the start
                time.sleep(BUSY_S)

    return waiting


def _replacing(fetch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `fetch` that replaces the actor if it died; the message that it had fails."""
    import ray
    from ray.exceptions import OutOfMemoryError, RayActorError

    def replacing(pool: Any, future: Any) -> Any:
        try:
            return fetch(pool, future)
        except (RayActorError, OutOfMemoryError):
            ray.kill(pool._future_to_actor[future])  # frees its CPUs and memory
            pool._future_to_actor[future] = _new_worker(pool)
            raise

    return replacing


def _new_worker(pool: Any) -> Any:
    """Return a new actor that is ready; None: there is no room. The last one may wait."""
    import ray
    from ray.exceptions import GetTimeoutError, RayActorError

    actor = pool.create_actor_fn()
    if pool.num_actors > 1:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=READY_S)
        except (RayActorError, GetTimeoutError):
            ray.kill(actor)
            return None
    return actor


def _returning(put_back: Callable[..., None]) -> Callable[..., None]:
    """Return a `put_back` that forgets an actor for which there was no replacement."""

    def returning(pool: Any, future: Any) -> None:
        if pool._future_to_actor[future] is not None:
            put_back(pool, future)
            return
        del pool._future_to_actor[future]
        pool.num_actors -= 1
        log.warning("the Ray cluster has become smaller: %d workers remain", pool.num_actors)

    return returning
