"""A round's exchange under masks with a secure sum inside of each community."""

from collections.abc import Mapping, Sequence
from logging import getLogger

import numpy as np
from flwr.app import ConfigRecord, MessageType, RecordDict
from flwr.common import FitIns
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.masked_exchange import MaskedExchange
from fl_app.engines.plain_exchange import Instructions, Learned
from fl_app.engines.secure_sum import size_of
from fl_app.engines.spoilt_sum import formed
from fl_app.ingress.masked import read_sketch
from fl_app.masking.settings import SecAgg
from fl_app.masking.slots import HEAD, SlotSums, WrongSumError, slot_sums
from fl_app.masking.stages import CLIENTS, PART, RECORD, SKETCH, STAGE, UPDATE
from fl_app.strategies.cohort import FitFailures
from fl_app.strategies.encoding import encode
from fl_app.strategies.replies import ClientFailure, TooFewRepliesError
from fl_app.strategies.secure_flic import SecureFlic
from fl_app.types import Sketch

log = getLogger(__name__)
Asked = Mapping[int, tuple[ClientProxy, FitIns]]
"""The instructed clients of a round by their ids."""


class CommunityExchange(MaskedExchange):
    """Each community is a secure sum of its own, and clients whose sketch is due release it.

    The server knows who is in which community, and of each community the sum and the number of its
    clients. A community with too few clients, or with a sum that no honest clients can have, keeps
    its model in this round; the others go on.
    """

    def __init__(self, method: SecureFlic, settings: SecAgg) -> None:
        super().__init__(method, settings)
        self.communities = method
        self._sketches: dict[int, Sketch] = {}
        self._by_row: dict[int, SlotSums] = {}
        self._why: dict[int, str] = {}

    def train(
        self,
        messenger: ClientMessenger,
        server_round: int,
        instructions: Instructions,
        attached: AttachedEvaluation | None = None,
    ) -> list[ClientFailure]:
        """Ask for the sketches that are due, and sum the updates of the others by community."""
        self.bytes_down = self.bytes_up = 0
        self._failures, self._sketches, self._by_row, self._why = [], {}, {}, {}
        method, roster = self.communities, messenger.roster
        asked = {roster.client_id(proxy): (proxy, ins) for proxy, ins in instructions}
        due = [each for each in asked if method.releases(each, server_round)]
        if due:
            self._release(messenger, server_round, {each: asked[each] for each in due})
        of_row: dict[int, list[int]] = {}
        for client in sorted(asked.keys() - {*due}):
            row = method.state.communities.members.get(client, 0)
            of_row.setdefault(row, []).append(client)
        for row, clients in sorted(of_row.items()):
            try:
                inside = {each: asked[each] for each in clients}
                self._by_row[row] = formed(
                    inside, lambda some: self._summed(messenger, server_round, some)
                )
            except (TooFewRepliesError, WrongSumError) as error:
                self._why[row] = str(error)
        return self._failures

    def _summed(self, messenger: ClientMessenger, server_round: int, asked: Asked) -> SlotSums:
        """Return the sum of the clients of a community as that of its one model."""
        first = next(iter(asked.values()))[1]
        proxies = {each: proxy for each, (proxy, _) in asked.items()}
        told: dict[str, str | int] = {PART: UPDATE, CLIENTS: len(proxies)}

        def question(client: int) -> RecordDict:
            return compat.fitins_to_recorddict(first, True)

        length = HEAD + self.method.context.layout.size
        total, clients = self._sum(
            messenger, server_round, MessageType.TRAIN, proxies, question, told, length,
            self.settings.smallest,
        )  # fmt: skip
        limits = self.settings.limits
        return slot_sums(total.reshape(1, length), len(clients), limits, len(proxies))

    def _release(self, messenger: ClientMessenger, server_round: int, asked: Asked) -> None:
        """Ask clients for their sketches; store those that have the right form."""
        release, contents = self.communities.release, []
        for proxy, ins in asked.values():
            content = compat.fitins_to_recorddict(ins, True)
            content[RECORD] = ConfigRecord({STAGE: SKETCH})
            contents.append((proxy, content))
            self.bytes_down += size_of(content)

        def parse(content: RecordDict) -> Sketch:
            return read_sketch(content, release.dimension, release.largest, release.longest)

        results, failures = messenger.ask(
            server_round, MessageType.TRAIN, contents, [parse] * len(contents)
        )
        self._failures += failures
        self._sketches = {messenger.roster.client_id(proxy): each for proxy, each in results}
        self.bytes_up += sum(each.nbytes for each in self._sketches.values())

    def learn(self, server_round: int, failures: FitFailures) -> Learned:
        """Pass sums and sketches to the method; raises TooFewRepliesError if there are none."""
        method = self.communities
        method.reject(failures)
        if not self._by_row and not self._sketches:
            why = "; ".join(self._why.values()) or "there are neither sums nor sketches"
            raise TooFewRepliesError(f"round {server_round}: {why}")
        if self._sketches:
            method.aggregate_sketches(server_round, self._sketches)
        for row, why in sorted(self._why.items()):
            log.warning("community %d stays as it is: %s", row, why)
            method.skip(row, why)
        if not self._by_row:
            return encode(method.state.communities.models[0]), {}
        rows = range(len(method.state.communities.models))
        return method.aggregate_sums(server_round, stacked(self._by_row, rows))


def stacked(sums: Mapping[int, SlotSums], rows: Sequence[int]) -> SlotSums:
    """Return the sums of communities, by their rows, as one of all rows, empty for the others."""
    some = next(iter(sums.values()))
    empty = SlotSums(*(np.zeros_like(part) for part in vars(some).values()))
    every = [sums.get(row, empty) for row in rows]
    return SlotSums(
        counts=np.concatenate([each.counts for each in every]),
        weights=np.concatenate([each.weights for each in every]),
        losses=np.concatenate([each.losses for each in every]),
        updates=np.concatenate([each.updates for each in every]),
    )
