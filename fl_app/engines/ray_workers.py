"""Workers of a simulation that died, killed by the system for one, are replaced.

Flower's pool takes a dead Ray actor back and hands it the next messages, which all fail at once.
"""

from typing import Any

REPLACES = "_replaces_dead_workers"


def replace_dead_workers() -> None:
    """Make the pool of this process start a new actor in the place of one that died."""
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
            ray.kill(pool._future_to_actor[future])  # lets go of its share of the machine
            pool._future_to_actor[future] = pool.create_actor_fn()  # what returns to the pool
            raise

    replaced = {"fetch_result_and_return_actor_to_pool": replacing, REPLACES: True}
    for name, value in replaced.items():
        setattr(BasicActorPool, name, value)
