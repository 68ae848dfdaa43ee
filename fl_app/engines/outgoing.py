"""Messages through Flower's Grid to the nodes of clients."""

from collections.abc import Iterable

from flwr.app import Array, Message, RecordDict
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.serverapp.grid import Grid


def message_to(
    proxy: ClientProxy, content: RecordDict, kind: str, server_round: int, timeout: float | None
) -> Message:
    """Return a message to the node of a client; `timeout` is in seconds, None: no timeout."""
    return Message(
        content=content,
        message_type=kind,
        dst_node_id=node_of(proxy),
        group_id=str(server_round),
        ttl=timeout,
    )


def share_arrays(messages: Iterable[Message]) -> None:
    """Let messages with the same model have one object of it, which Flower then hashes once."""
    known: dict[tuple[object, ...], Array] = {}
    for message in messages:
        for record in message.content.array_records.values():
            for name, array in record.items():
                key = id(array.data), array.dtype, array.shape, array.stype
                record[name] = known.setdefault(key, array)


def pushed(grid: Grid, messages: list[Message]) -> dict[str, int]:
    """Send messages; return the index of each accepted one by its id.

    For unknown nodes, a Grid returns None or nothing.
    """
    taken = {each for each in grid.push_messages(messages) if each}
    ids = [message.metadata.message_id for message in messages]
    return {each: place for place, each in enumerate(ids) if each in taken}


def grid_of(proxy: ClientProxy) -> Grid:
    """Return the Grid through which a client is reached."""
    assert isinstance(proxy, GridClientProxy)
    return proxy.grid


def node_of(proxy: ClientProxy) -> int:
    """Return Flower's id of the node of a client."""
    return int(proxy.cid)
