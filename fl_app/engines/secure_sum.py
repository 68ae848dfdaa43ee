"""One secure sum over clients: four batches of messages, and who is lost in between."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.spoilt_sum import SpoiltSumError
from fl_app.ingress.masked import read_boxes, read_public, read_revealed, read_vector
from fl_app.masking.disputes import left_out
from fl_app.masking.neighbours import Graph, ring
from fl_app.masking.settings import SecAgg
from fl_app.masking.stages import (
    BOXES,
    CIPHER_KEYS,
    DROPPED,
    FEWEST,
    IDS,
    MASK_KEYS,
    RECORD,
    SETUP,
    SHARES,
    STAGE,
    SURVIVORS,
    UNMASK,
    VECTOR,
)
from fl_app.masking.unmasking import Shares, UnmaskError, unmasked
from fl_app.rng import generator
from fl_app.strategies.replies import ClientFailure, RejectedReply, TooFewRepliesError
from fl_app.types import Integers

_DISPUTE = "masking: the shares must open that it exchanges, those between it and"
_WRONG_SHARES = "masking: the shares that it reveals must fit those that others reveal, and do not"
_NO_SECRET = (
    "masking: the shares of its secret must give it, and do not: it shared other ones, or clients "
    "that hold them told others, of which one is enough where no more are told than are needed"
)
Stage = Mapping[int, Mapping[str, Any]]
"""What each client is told in a stage, by client id."""
More = Callable[[int], tuple[Mapping[str, Any], int]]
"""Returns further fields of `part` and the smallest number of survivors, for clients that are left.

May raise TooFewRepliesError.
"""


def nothing(left: int) -> tuple[Mapping[str, Any], int]:
    """Return no fields, and any number of survivors."""
    return {}, 0


@dataclass
class SecureSum:
    """A sum (length,) of the clients' vectors modulo 2^32, which the server learns as a whole.

    `proxies` are the asked clients by id. In the stage of its vector each gets the records that
    `question` returns for its id in a message of type `kind`, and the fields of `part`, which say
    what it sends; CLIENTS among them is the number of clients for which numbers are quantised.
    `least` is the smallest number of survivors. Before this stage `more` may raise it and add
    fields, by the number of clients that are left. After `run`, `failures` has the clients that
    failed in any stage, `survivors` those in the sum, and `up` and `down` the bytes of all stages.
    """

    messenger: ClientMessenger
    settings: SecAgg
    seed: int
    server_round: int
    kind: str
    proxies: Mapping[int, ClientProxy]
    question: Callable[[int], RecordDict]
    part: Mapping[str, Any]
    length: int
    least: int
    more: More = nothing
    failures: list[ClientFailure] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    up: int = 0
    down: int = 0

    def run(self) -> Integers:
        """Return the sum; raises TooFewRepliesError if too many clients are lost for it."""
        taken = set[bytes]()
        public = self._stage(
            {each: {STAGE: SETUP} for each in self.proxies},
            lambda found, each: read_public(found, taken),
        )
        graph = self._graph([*public])
        keys = {each: _keys_of(others, public) for each, others in graph.items()}
        boxes = self._stage(keys, lambda found, each: read_boxes(found, graph[each]))
        self._check(graph, [*boxes])
        passed = {each: [other for other in graph[each] if other in boxes] for each in boxes}
        fields, least = self.more(len(boxes))
        self.least = max(self.least, least)
        given = {each: self._vector_question(each, passed[each], boxes, fields) for each in boxes}
        told = self._stage(given, lambda found, each: read_vector(found, self.length, passed[each]))
        refused = {each: others for each, (_, others) in told.items()}
        vectors = self._undisputed({each: vector for each, (vector, _) in told.items()}, refused)
        self._check(graph, [*vectors])
        self.survivors = [*vectors]
        total = sum(vectors.values(), np.zeros(self.length, np.uint32))
        held = {
            each: [other for other in passed[each] if other not in refused.get(each, ())]
            for each in passed
        }
        needed = {each: self._needed(graph, each) for each in passed}
        return self._unmasked(total, held, {each: public[each][0] for each in passed}, needed)

    def _unmasked(
        self, total: Integers, held: Graph, keys: Mapping[int, bytes], needed: Mapping[int, int]
    ) -> Integers:
        """Return the sum without masks; `held` has those whose shares each client could open."""
        seeds, secrets = self._revealed(held)
        try:
            found, wrong = unmasked(
                total,
                graph={each: [o for o in held if each in held[o]] for each in held},
                dropped=sorted(secrets),
                mask_keys=keys,
                seed_shares=seeds,
                key_shares=secrets,
                threshold=needed,
            )
        except UnmaskError as error:
            why = f"there is no sum, as its masks cannot be removed: {error}"
            disputed = {c for c in error.few if any(c not in (o, *held[o]) for o in seeds)}
            if spoilers := error.wrong | disputed:
                self.failures += [RejectedReply(each, _NO_SECRET) for each in sorted(error.wrong)]
                raise SpoiltSumError(why, spoilers) from error
            raise TooFewRepliesError(why) from error
        self.failures += [RejectedReply(each, _WRONG_SHARES) for each in sorted(wrong)]
        return found

    def _undisputed(self, vectors: Mapping[int, Integers], refused: Graph) -> dict[int, Integers]:
        """Return the vectors of which no two clients disagree on their common mask."""
        away = left_out(refused)
        for client, others in away.items():
            why = f"{_DISPUTE} {', '.join(map(str, others))} do not open"
            self.failures.append(RejectedReply(client, why))
        return {each: vector for each, vector in vectors.items() if each not in away}

    def _graph(self, client_ids: Sequence[int]) -> Graph:
        """Return who masks with whom, among those that sent keys."""
        self._enough(len(client_ids), max(self.least, FEWEST), "sent keys")
        draw = generator(self.seed, purpose=f"neighbours {self.kind}", round=self.server_round)
        return ring(client_ids, self.settings.neighbours, draw)

    def _check(self, graph: Graph, present: Sequence[int]) -> None:
        """Raise TooFewRepliesError unless each present client has enough present neighbours."""
        self._enough(len(present), max(self.least, FEWEST), "are left")
        for each in present:
            near = 1 + len({*graph[each]} & {*present})
            self._enough(near, self._needed(graph, each), f"are left around client {each}")

    def _needed(self, graph: Graph, client: int) -> int:
        return self.settings.needed(len(graph[client]) + 1)

    def _enough(self, count: int, least: int, what: str) -> None:
        if count < least:
            raise TooFewRepliesError(
                f"at least {least} clients must be in a secure sum, got {count} that {what}; "
                "sample more clients, or lower masking.threshold or masking.smallest"
            )

    def _vector_question(
        self,
        client: int,
        others: Sequence[int],
        boxes: Mapping[int, Mapping[int, bytes]],
        fields: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return what a client needs to mask its vector."""
        return {
            STAGE: VECTOR,
            IDS: [*others],
            BOXES: [boxes[other][client] for other in others],
            **self.part,
            **fields,
        }

    def _revealed(self, held: Graph) -> tuple[Shares, Shares]:
        """Return shares of the survivors' seeds, and of the keys of those that sent no vector."""
        alive = {*self.survivors}
        lost = {each: [o for o in held[each] if o not in alive] for each in self.survivors}
        near = {each: [o for o in (*held[each], each) if o in alive] for each in self.survivors}
        asked = {each: {STAGE: UNMASK, SURVIVORS: near[each], DROPPED: lost[each]} for each in near}
        told = self._stage(
            asked, lambda found, each: read_revealed(found, len(near[each]), len(lost[each]))
        )
        seeds: dict[int, dict[int, bytes]] = {each: {} for each in self.survivors}
        keys: dict[int, dict[int, bytes]] = {each: {} for each in held if each not in alive}
        for each, (of_seeds, of_keys) in told.items():
            for other, share in zip(near[each], of_seeds, strict=True):
                seeds[other][each] = share
            for other, share in zip(lost[each], of_keys, strict=True):
                keys[other][each] = share
        return seeds, keys

    def _stage(self, told: Stage, read: Callable[[RecordDict, int], Any]) -> dict[int, Any]:
        """Send a message to each client; return what it answered, without those that failed."""
        contents, parsers = [], []
        for client in sorted(told):
            content = self.question(client) if told[client][STAGE] == VECTOR else RecordDict()
            content[RECORD] = ConfigRecord(dict(told[client]))
            contents.append((self.proxies[client], content))
            parsers.append(self._reader(client, read))
            self.down += size_of(content)
        results, failures = self.messenger.ask(self.server_round, self.kind, contents, parsers)
        self.failures += failures
        return {self.messenger.roster.client_id(proxy): found for proxy, found in results}

    def _reader(
        self, client: int, read: Callable[[RecordDict, int], Any]
    ) -> Callable[[RecordDict], Any]:
        def parse(content: RecordDict) -> Any:
            found = read(content, client)
            self.up += size_of(content)
            return found

        return parse


def _keys_of(others: Sequence[int], public: Mapping[int, tuple[bytes, bytes]]) -> dict[str, Any]:
    return {
        STAGE: SHARES,
        IDS: [*others],
        MASK_KEYS: [public[other][0] for other in others],
        CIPHER_KEYS: [public[other][1] for other in others],
    }


def size_of(content: RecordDict) -> int:
    """Return the bytes of the values in a message: keys, shares, vectors and models."""
    total = 0
    for record in content.config_records.values():
        for value in record.values():
            parts = value if isinstance(value, list) else [value]
            total += sum(len(each) if isinstance(each, bytes | str) else 8 for each in parts)
    for arrays in content.array_records.values():
        total += sum(len(each.data) for each in arrays.values())
    return total
