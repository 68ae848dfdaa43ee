"""The two runs of lockstep.py, with lies that a ClientApp sends through grid and messenger."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.common import Code, EvaluateRes, FitRes, GetPropertiesRes, Status
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat.grid_client_proxy import GridClientProxy

sys.path.insert(0, str(Path(__file__).parents[1] / "ingress"))
sys.path.insert(0, str(Path(__file__).parents[1] / "strategies"))
import rules
from hostile import Exiting, Raising
from lies import lie_of_content, lie_of_properties, lie_of_record
from lockstep import CLIENTS, HONEST, LIARS, Asked, Build, Lockstep, Said

from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.inprocess import InProcessGrid
from fl_app.engines.round_reporter import sent
from fl_app.strategies.replies import ClientFailure, RejectedReply
from fl_app.strategies.roster import Roster


class PosingMessage(Message):
    """A reply that raises at every access."""

    def __init__(self) -> None:
        """Leave all fields of a message out."""

    def has_error(self) -> bool:
        """Raise."""
        raise RuntimeError("a message that answers nothing")


def _raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


FAILURES: dict[str, Callable[[], Any]] = {
    "raises": _raises(RuntimeError("out of memory\n" * 100)),
    "leaves the process": _raises(SystemExit(1)),
    "raises what cannot be read": _raises(Exception(Raising(), Exiting())),
    "no message": lambda: 3,
    "a message that raises": PosingMessage,
}
"""What a client app can do instead of a reply; the client is then recorded as failed."""


class OverTheWire(Lockstep):
    """As Lockstep, but replies are sent as messages, and nodes first introduce themselves."""

    def __init__(self, build: Build, draw: Random) -> None:
        super().__init__(build, draw)
        self.known = Roster()
        self.answers: dict[tuple[int, Any], Any] = {}
        self.failing: set[int] = set()
        self.grid = InProcessGrid(self._answer, nodes=CLIENTS, run_config={}, workers=1)
        self.messenger = ClientMessenger(self.known, clients=CLIENTS, timeout=None)
        for node in self.grid.get_node_ids():
            self.known.register(GridClientProxy(node, self.grid, self.grid.run))

    def introduce(self) -> None:
        """Let all nodes introduce themselves; liars must be rejected and recorded."""
        valid = set()
        for client in range(CLIENTS):
            said = {"client_id": client, "group": client % 3, "samples": 10 + client}
            told = honest = compat.getpropertiesres_to_recorddict(
                GetPropertiesRes(Status(Code.OK, ""), said)
            )
            kind = "honest"
            if client in LIARS and self.draw.random() < 0.5:
                kind, told = self._lie_of_who_it_is(said, honest)
            self.answers[client + 1, None] = told
            if self._introduces(told, client):
                valid.add(client)
            if kind != "honest":
                self.tally.told["introduction", kind] += 1
                self.tally.valid["introduction", kind] += client in valid
        found = self.messenger.introducer.introduce()
        assert set(self.known.proxies()) == valid
        assert set(found.rejected) == set(range(CLIENTS)) - valid, found
        assert not found.failed

    def _lie_of_who_it_is(self, said: dict[str, Any], honest: RecordDict) -> tuple[str, RecordDict]:
        what = self.draw.randrange(3)
        if what == 0:
            return lie_of_content(self.draw, honest)
        if what == 1:
            return lie_of_record(self.draw, honest)
        kind, told = lie_of_properties(self.draw, said)
        try:
            reply = GetPropertiesRes(Status(Code.OK, ""), told)
            return kind, compat.getpropertiesres_to_recorddict(reply)
        except BaseException:  # Flower's records do not take it, or the liar ends itself
            return "an empty message", RecordDict()

    def _introduces(self, told: RecordDict, client: int) -> bool:
        try:
            reply = compat.recorddict_to_getpropertiesres(told)
        except Exception:
            return False
        fits = rules.is_introduction(reply.properties, clients=CLIENTS, expected=client)
        return fits and reply.status.code is Code.OK

    def _answer(self, message: Message, context: Context) -> Any:
        """Act as the client app: send the reply that was prepared for this question."""
        node, community = message.metadata.dst_node_id, None
        if "evaluateins.config" in message.content:
            community = message.content["evaluateins.config"]["community"]
        told = self.answers[node, community]
        return Message(told, reply_to=message) if isinstance(told, RecordDict) else told()

    def _said(self, proxy: ClientProxy, reply: Any, lie: Callable[[Random, Any], Any]) -> Said:
        """Prepare what a client sends, and return what Flower makes of it."""
        key = int(proxy.cid), reply.metrics.get("community")
        honest = _content(reply)
        if self.known.client_id(proxy) not in LIARS:
            self.answers[key] = honest
            return [(HONEST, (proxy, reply))]
        if self.draw.random() < 0.1:
            kind = self.draw.choice(tuple(FAILURES))
            self.answers[key] = FAILURES[kind]
            self.tally.told["message", kind] += 1
            self.failing.add(self.known.client_id(proxy))
            return []
        kind, told = self._lie(reply, honest, lie)
        self.answers[key] = told
        return [(kind, (proxy, _parsed(told, reply)))]

    def _lie(
        self, reply: Any, honest: RecordDict, lie: Callable[[Random, Any], Any]
    ) -> tuple[str, RecordDict]:
        what = self.draw.random()
        if what < 0.6:
            kind, told = lie(self.draw, reply)
            try:
                return kind, _content(told)
            except BaseException:  # Flower's records do not take it
                return lie_of_record(self.draw, honest)
        return (lie_of_record if what < 0.8 else lie_of_content)(self.draw, honest)

    def _tell_of_fits(self, server_round: int, asked: Asked, said: Said) -> None:
        results, failures = self.messenger.fit(server_round, asked)
        self._judge(failures)
        assert sent(results) <= len(asked) * 10_000
        self.lied.aggregate_fit(server_round, results, [*failures])

    def _tell_of_scores(self, server_round: int, asked: Asked, said: Said) -> None:
        results, failures = self.messenger.evaluate(server_round, asked)
        self._judge(failures)
        self.lied.aggregate_evaluate(server_round, results, [*failures])

    def _judge(self, failures: list[ClientFailure]) -> None:
        """Check that a client that fails, not by a malformed reply, is recorded as failed."""
        others = set()
        for failure in failures:
            if not isinstance(failure, RejectedReply):
                others.add(failure.client_id)
                assert len(failure.reason) < 600
                assert failure.reason.isprintable()
        assert others == self.failing
        self.failing = set()


def _content(reply: Any) -> RecordDict:
    """Return a reply as the client side of Flower packs it."""
    if isinstance(reply, FitRes):
        return compat.fitres_to_recorddict(reply, keep_input=True)
    fields = {key: value for key, value in reply.metrics.items() if key != "community"}
    said = EvaluateRes(reply.status, reply.loss, reply.num_examples, fields)
    return compat.evaluateres_to_recorddict(said)


def _parsed(content: RecordDict, honest: Any) -> Any:
    """Return a reply as the server side of Flower unpacks it, or None where it cannot."""
    try:
        if isinstance(honest, FitRes):
            return compat.recorddict_to_fitres(content, keep_input=True)
        found = compat.recorddict_to_evaluateres(content)
        asked = {"community": honest.metrics["community"]}
        return EvaluateRes(found.status, found.loss, found.num_examples, {**found.metrics, **asked})
    except Exception:
        return None
