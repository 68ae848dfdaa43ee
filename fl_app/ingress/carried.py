"""Reads for which client a message is meant, on a node that carries several clients."""

from flwr.app import ConfigRecord, RecordDict

from fl_app.ingress.fields import integer
from fl_app.ingress.rejection import RejectionError, shown

CARRIED = "carried"
"""Name of the record of a message that names one of the node's clients."""
_CLIENT = "client_id"


def address(content: RecordDict, client_id: int) -> None:
    """Write into a message for which client of the node it is meant."""
    content[CARRIED] = ConfigRecord({_CLIENT: client_id})


def read_address(content: RecordDict, *, clients: int, nodes: int, own_data: bool) -> int | None:
    """Return the client that a message is meant for, None for a node that is one client.

    Raises RejectionError if the node cannot carry clients: each of `nodes` nodes is one of the
    `clients` clients, or a client is the data of its node.
    """
    record = content.config_records.get(CARRIED)
    if record is None:
        return None
    if own_data or nodes >= clients:
        rule = f"absent on a node that is one client: {nodes} nodes for {clients} clients"
        raise RejectionError(CARRIED, rule, shown(dict(record)))
    return integer(record, _CLIENT, 0, clients - 1)
