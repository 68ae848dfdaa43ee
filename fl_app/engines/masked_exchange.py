"""A round's exchange under masks: the method receives sums over clients, and no reply."""

from collections.abc import Callable, Mapping
from functools import partial
from logging import getLogger
from typing import Any

from flwr.app import MessageType, RecordDict
from flwr.common import FitIns, Parameters
from flwr.compat.common import recorddict_compat as compat
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.plain_exchange import Instructions, Learned
from fl_app.engines.secure_sum import More, SecureSum, nothing
from fl_app.engines.spoilt_sum import formed
from fl_app.masking.quantisation import dequantise
from fl_app.masking.settings import SecAgg
from fl_app.masking.slots import (
    HEAD,
    SCORES,
    ChosenSlots,
    SlotSums,
    WrongSumError,
    checked_counts,
    mean_accuracy,
    slot_sums,
)
from fl_app.masking.stages import CHOICE, CLIENTS, FEWEST, KEPT, OPEN, PART, SCORE, UPDATE
from fl_app.strategies.cohort import FitFailures
from fl_app.strategies.encoding import encode
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.replies import ClientFailure, TooFewRepliesError
from fl_app.strategies.roster import Roster
from fl_app.types import Reals

log = getLogger(__name__)
Proxies = Mapping[int, ClientProxy]
Question = Callable[[int], RecordDict]
"""Returns what a client, by its id, is given in the stage of its vector."""


class MaskedExchange:
    """Each training and each evaluation is a secure sum, a training with a slot for each model.

    If there are several models, a first sum counts who chose which, and a second one has no slots
    that fewer than `smallest` clients chose, nor those in which fewer might be left if some are
    lost in between. If more are lost later, there is no second sum. A sum that no honest clients
    can have is discarded, as if too few had replied: who is to blame cannot be known.

    An evaluation cannot be attached to a training: each is a sum in several stages.
    """

    attaches = False

    def __init__(self, method: FromSums, settings: SecAgg) -> None:
        self.method, self.settings = method, settings
        self.fewest = max(FEWEST, settings.smallest)
        self.bytes_down = self.bytes_up = 0
        self._failures: list[ClientFailure] = []
        self._sums: SlotSums | TooFewRepliesError | None = None

    def train(
        self,
        messenger: ClientMessenger,
        server_round: int,
        instructions: Instructions,
        attached: AttachedEvaluation | None = None,
    ) -> list[ClientFailure]:
        """Sum the updates of the instructed clients by the model that each chose."""
        self.bytes_down = self.bytes_up = 0
        self._failures, self._sums = [], None
        if not instructions:  # nobody is available
            return self._failures
        proxies = {messenger.roster.client_id(proxy): proxy for proxy, _ in instructions}
        try:
            ins = instructions[0][1]
            self._sums = formed(
                proxies, lambda some: self._by_model(messenger, server_round, some, ins)
            )
        except (TooFewRepliesError, WrongSumError) as error:
            self._sums = TooFewRepliesError(f"round {server_round}: {error}")
        return self._failures

    def _by_model(
        self, messenger: ClientMessenger, server_round: int, proxies: Proxies, ins: FitIns
    ) -> SlotSums:
        """Return the sums of those who chose each model that `ins` offers."""
        models, least = len(ins.parameters.tensors), self.settings.smallest
        run = partial(self._sum, messenger, server_round, MessageType.TRAIN)
        told: dict[str, Any] = {PART: UPDATE, CLIENTS: len(proxies)}

        def question(client: int) -> RecordDict:
            return RecordDict() if told[PART] == KEPT else compat.fitins_to_recorddict(ins, True)

        chosen, more = None, nothing
        length = HEAD + self.method.context.layout.size
        if models > 1 and least > 1:
            counted, clients = run(proxies, question, {**told, PART: CHOICE}, models, least)
            chosen = ChosenSlots(checked_counts(counted, len(clients)), least)
            told[PART], more = KEPT, partial(self._open, chosen)
            lost = {failure.client_id for failure in self._failures}
            proxies = {each: proxies[each] for each in clients if each not in lost}
        total, clients = run(proxies, question, told, models * length, least, more)
        slots = total.reshape(models, length)
        sums = slot_sums(slots, len(clients), self.settings.limits, told[CLIENTS])
        if chosen is not None:
            chosen.check(sums.counts)
        return sums

    def _open(self, chosen: ChosenSlots, left: int) -> tuple[Mapping[str, Any], int]:
        """Return which slots `left` clients fill, and how many of these must be in the sum.

        Raises TooFewRepliesError if no slot has enough clients.
        """
        opened, counts = chosen.open(left), chosen.counts.tolist()
        lost = chosen.clients - left
        if not opened:
            raise TooFewRepliesError(
                f"a model must be chosen by masking.smallest={chosen.smallest} clients that are "
                f"still there to be trained, got {counts}, of whom {lost} were lost; sample more "
                "clients or lower it"
            )
        for slot in chosen.open(chosen.clients):
            if slot not in opened:
                why = f"{counts[slot]} clients chose it, and {lost} of all were lost since"
                self.method.skip(slot, why)
        return {OPEN: opened}, chosen.least(opened)

    def learn(self, server_round: int, failures: FitFailures) -> Learned:
        """Pass the sums to the method; raises TooFewRepliesError if there are none."""
        self.method.reject(failures)
        if not isinstance(self._sums, SlotSums):
            raise self._sums or TooFewRepliesError(f"round {server_round}: no client can train")
        return self.method.aggregate_sums(server_round, self._sums)

    def evaluate(
        self, messenger: ClientMessenger, server_round: int, parameters: Parameters, known: Roster
    ) -> list[ClientFailure]:
        """Learn mean and deviation of the accuracy, each client with the model it would choose."""
        models, offers = self.method.configure_scores(server_round, known)

        def question(client: int) -> RecordDict:
            mine = encode(*(models[row] for row in offers[client]))
            return compat.fitins_to_recorddict(FitIns(mine, {"round": server_round}), True)

        proxies = {client: known.proxy(client) for client in offers}

        def form(some: Proxies) -> tuple[Reals, list[int]]:
            told = {PART: SCORE, CLIENTS: len(some)}
            return run(some, question, told, SCORES)

        down, up, self._failures = self.bytes_down, self.bytes_up, []
        run = partial(self._sum, messenger, server_round, MessageType.EVALUATE)
        try:
            total, clients = formed(proxies, form)
            self.method.aggregate_scores(*mean_accuracy(total, len(clients)))
        except (TooFewRepliesError, WrongSumError) as error:
            log.warning("evaluation: %s; nothing is measured", error)
        self.bytes_down, self.bytes_up = down, up  # those of training, as without masks
        return self._failures

    def _sum(
        self,
        messenger: ClientMessenger,
        server_round: int,
        kind: str,
        proxies: Proxies,
        question: Question,
        part: Mapping[str, Any],
        length: int,
        least: int = 1,
        more: More = nothing,
    ) -> tuple[Reals, list[int]]:
        """Return a sum (length,) of numbers, and the clients in it, at least `least`."""
        context = self.method.context
        summed = SecureSum(
            messenger,
            self.settings,
            seed=context.seed,
            server_round=server_round,
            kind=kind,
            proxies=proxies,
            question=question,
            part=part,
            length=length,
            least=max(least, context.min_success),
            more=more,
        )
        try:
            return dequantise(summed.run(), part[CLIENTS]), summed.survivors
        finally:
            self._failures += summed.failures
            self.bytes_down += summed.down
            self.bytes_up += summed.up
