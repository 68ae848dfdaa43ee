"""Changes of a federation that runs: nodes and keys that come and go, a new certificate.

The process that keeps the federation carries out orders, one after the other; commands leave them
as files in its folder, which only its owner can enter.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fl_app.engines import credentials
from fl_app.engines.credentials import Credentials
from fl_app.engines.federation import MAX_NODES, Federation
from fl_app.engines.member import Member
from fl_app.records.atomic import replacing

ADD, REMOVE, ROTATE = "add-node", "remove-node", "rotate-keys"
RENEW = "renew-certificate"
ORDERS = "orders"
_POLL_S = 0.2


class OrderError(ValueError):
    """An order that cannot be carried out."""


def ask(folder: Path, action: str, node: int | None, *, timeout_s: float) -> str:
    """Leave an order for the keeper of a folder and return its answer.

    Raises OrderError if it was refused, and TimeoutError if nobody answers. An order that nobody
    has taken when this ends, also by an interrupt, is withdrawn.
    """
    orders = folder / ORDERS
    orders.mkdir(mode=0o700, exist_ok=True)
    order = orders / f"{time.time_ns():020d}-{uuid.uuid4().hex}.order"
    try:
        with replacing(order) as temporary:
            temporary.write_text(json.dumps({"action": action, "node": node}))
        told = _answered(order.with_suffix(".answer"), timeout_s)
    finally:
        order.unlink(missing_ok=True)
    if not told["done"]:
        raise OrderError(told["text"])
    return str(told["text"])


def _answered(answer: Path, timeout_s: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while not answer.exists():
        if time.monotonic() > deadline:
            log = answer.parent.parent / "keeper.log"
            raise TimeoutError(f"the federation must answer within {timeout_s:g} s; see {log}")
        time.sleep(_POLL_S)
    told: dict[str, Any] = json.loads(answer.read_text())
    answer.unlink()
    return told


def drop_orders(folder: Path) -> None:
    """Delete the orders and answers that a former keeper left: nobody waits for them any more."""
    for path in (folder / ORDERS).glob("*"):
        path.unlink(missing_ok=True)


def carry_out(federation: Federation) -> bool:
    """Carry out the waiting orders; return whether there was one."""
    found = sorted((federation.folder / ORDERS).glob("*.order"))
    for path in found:
        told = _carried_out(federation, path)
        with replacing(path.with_suffix(".answer")) as temporary:
            temporary.write_text(json.dumps(told))
    return bool(found)


def _carried_out(federation: Federation, path: Path) -> dict[str, object]:
    try:
        text = path.read_bytes()
        path.unlink()  # before it is carried out, so that a crash does not repeat it
        order = json.loads(text)
        return {"done": True, "text": _ACTIONS[order["action"]](federation, order["node"])}
    except Exception as error:  # no order may end the keeper and with it the federation
        return {"done": False, "text": str(error) or type(error).__name__}


def add(federation: Federation, node: int | None) -> str:
    """Start a node with a new key; without a number it gets the least that is free."""
    taken = federation.numbers
    number = next(n for n in range(MAX_NODES + 1) if n not in taken) if node is None else node
    if number in taken or not 0 <= number < MAX_NODES:
        raise OrderError(
            f"a new node must have a number in 0..{MAX_NODES - 1} that no other node has, got "
            f"{number}; the federation has nodes {taken}"
        )
    credentials.make_node(federation.keys, number)
    federation.start_node(number)
    return f"node {number} is added as client {number}; a later run uses it"


def remove(federation: Federation, node: int | None) -> str:
    """Unregister a node, so that its key is refused at once, stop it and delete its key."""
    member = _member(federation, node)
    number = member.number
    assert number is not None
    federation.unregister_node(number)
    federation.stop_member(member)
    for path in _files(federation.keys, number):
        path.unlink(missing_ok=True)
    return f"node {number} is removed; its key is refused"


def rotate(federation: Federation, node: int | None) -> str:
    """Give a node, or all one by one, a new key; the former one is refused at once."""
    if node is None:
        return "\n".join(rotate(federation, each) for each in federation.numbers)
    member = _member(federation, node)
    federation.unregister_node(node)
    federation.stop_member(member)
    credentials.make_node(federation.keys, node)
    federation.start_node(node)
    return f"node {node} has a new key; the former one is refused"


def renew(federation: Federation, node: int | None) -> str:
    """Give the SuperLink a new key and certificate, and start it again with them."""
    if node is not None:
        raise OrderError(f"the certificate is that of the SuperLink, got node {node}; name none")
    credentials.renew_certificate(federation.keys)
    federation.restart_superlink()
    until = credentials.valid_until(federation.keys.certificate)
    return f"the certificate is valid until {until:%Y-%m-%d}; the SuperLink starts again with it"


def _member(federation: Federation, node: int | None) -> Member:
    found = [member for member in federation.members if member.number == node]
    if node is None or not found:
        raise OrderError(f"the node must be one of {federation.numbers}, got {node}")
    return found[0]


def _files(keys: Credentials, node: int) -> tuple[Path, Path]:
    return keys.node_key(node), keys.node_public_key(node)


_ACTIONS: Mapping[str, Callable[[Federation, Any], str]] = {
    ADD: add,
    REMOVE: remove,
    ROTATE: rotate,
    RENEW: renew,
}
