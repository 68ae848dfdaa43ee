"""Replaces workers of a simulation that died, for example because the system killed them.

Flower's pool keeps a dead Ray actor and gives it the next messages, which all fail at once.
"""

from typing import Any

REPLACES = "_replaces_dead_workers"


def replace_dead_workers() -> None:
    """Make the pool of this process replace each dead actor with a new one."""
    import ray
    from flwr.simulation.ray_transport.ray_actor import BasicActorPool
    from ray.exceptions import OutOfMemoryError, RayActorError

    if hasattr(BasicActorPool, REPLACES):
        return
    fetch = BasicActorPool.fetch_result_and_return_actor_to_pool

    def replacing(pool: Any, future: Any) -> Any:
        try:
            return fetch(pool, future)
        except (RayActorError, OutOfMemoryError):
            ray.kill(pool._future_to_actor[future])  # frees its CPUs and memory
            pool._future_to_actor[future] = pool.create_actor_fn()  # this one returns to the pool
            raise

    replaced = {"fetch_result_and_return_actor_to_pool": replacing, REPLACES: True}
    for name, value in replaced.items():
        setattr(BasicActorPool, name, value)
