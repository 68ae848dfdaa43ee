"""One batch of messages out, all replies back, in the order of the client ids."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from flwr.app import Message, MessageType, RecordDict
from flwr.common import (
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetPropertiesIns,
    MessageTypeLegacy,
)
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy
from flwr.serverapp.grid import Grid

from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.roster import Identity, Roster

Reply = TypeVar("Reply")
Exchanged = tuple[list[tuple[ClientProxy, Reply]], list[ClientFailure]]

INTRODUCED_AT_ONCE = 1000
"""New nodes asked in one batch: all at once would hold a message for each in memory."""


class Exchange:
    """Sends instructions to clients and gathers what they answer, or why they did not."""

    def __init__(self, roster: Roster, *, timeout: float | None) -> None:
        self.roster = roster
        self.timeout = timeout

    def fit(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, FitIns]]
    ) -> Exchanged[FitRes]:
        """Train on every instructed client."""
        contents = [(p, compat.fitins_to_recorddict(ins, True)) for p, ins in instructions]
        return self._send(server_round, MessageType.TRAIN, contents, _fit_reply)

    def evaluate(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, EvaluateIns]]
    ) -> Exchanged[EvaluateRes]:
        """Evaluate on every instructed client; one client may get several models."""
        contents = [(p, compat.evaluateins_to_recorddict(ins, True)) for p, ins in instructions]
        return self._send(
            server_round, MessageType.EVALUATE, contents, compat.recorddict_to_evaluateres
        )

    def introduce(self) -> list[str]:
        """Ask all nodes that are new who they are; return the reasons of those who failed."""
        strangers = self.roster.strangers()
        record = compat.getpropertiesins_to_recorddict
        found: list[str] = []
        for start in range(0, len(strangers), INTRODUCED_AT_ONCE):
            some = strangers[start : start + INTRODUCED_AT_ONCE]
            contents = [(proxy, record(GetPropertiesIns({}))) for proxy in some]
            replies, failures = self._send(
                0, MessageTypeLegacy.GET_PROPERTIES, contents, compat.recorddict_to_getpropertiesres
            )
            for proxy, reply in replies:
                values = reply.properties
                identity = Identity(
                    int(values["client_id"]),
                    int(values["group"]),
                    int(values["samples"]),
                    bool(values.get("malicious", False)),
                )
                self.roster.introduce(proxy, identity)
            found += map(str, failures)
        return found

    def _send(
        self,
        server_round: int,
        message_type: str,
        contents: Sequence[tuple[ClientProxy, RecordDict]],
        parse: Callable[[RecordDict], Reply],
    ) -> Exchanged[Reply]:
        if not contents:
            return [], []
        proxies = {_node(proxy): proxy for proxy, _ in contents}
        messages = [
            Message(
                content=content,
                message_type=message_type,
                dst_node_id=_node(proxy),
                group_id=str(server_round),
                ttl=self.timeout,
            )
            for proxy, content in contents
        ]
        results: list[tuple[ClientProxy, Reply]] = []
        failures: list[ClientFailure] = []
        silent = dict.fromkeys(proxies)
        for reply in self._grid(contents).send_and_receive(messages, timeout=self.timeout):
            node = reply.metadata.src_node_id
            silent.pop(node, None)
            if reply.has_error():
                failures.append(ClientFailure(self._client(proxies[node]), str(reply.error.reason)))
                continue
            try:
                results.append((proxies[node], parse(reply.content)))
            except (KeyError, TypeError, ValueError) as error:
                reason = f"malformed reply: {error!r}"
                failures.append(ClientFailure(self._client(proxies[node]), reason))
        failures += [
            ClientFailure(self._client(proxies[n]), f"no reply within {self.timeout} s")
            for n in silent
        ]
        results.sort(key=lambda result: self._client(result[0]))
        return results, sorted(failures, key=lambda failure: failure.client_id)

    def _client(self, proxy: ClientProxy) -> int:
        return self.roster.client_id(proxy)

    @staticmethod
    def _grid(contents: Sequence[tuple[ClientProxy, RecordDict]]) -> Grid:
        proxy = contents[0][0]
        assert isinstance(proxy, GridClientProxy)
        return proxy.grid


def _node(proxy: ClientProxy) -> int:
    return int(proxy.cid)


def _fit_reply(content: RecordDict) -> FitRes:
    return compat.recorddict_to_fitres(content, keep_input=True)
