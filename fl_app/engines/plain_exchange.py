"""A round's exchange with the clients: who is asked, and what comes back."""

from collections.abc import Sequence
from typing import Protocol

from flwr.common import FitIns, FitRes, Parameters, Scalar
from flwr.server.client_proxy import ClientProxy

from fl_app.engines.attached_evaluation import AttachedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.round_reporter import sent
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.cohort import FitFailures
from fl_app.strategies.replies import ClientFailure
from fl_app.strategies.roster import Roster

Instructions = Sequence[tuple[ClientProxy, FitIns]]
Learned = tuple[Parameters | None, dict[str, Scalar]]


class RoundExchange(Protocol):
    """How the clients of a round are asked, and what of their replies the method receives.

    `bytes_down` and `bytes_up` are those of the last training. `attaches`: whether an evaluation
    can be attached to a training. `fewest`: clients without which no round trains a model,
    whatever `engine.min_success` allows.
    """

    bytes_down: int
    bytes_up: int
    attaches: bool
    fewest: int

    def train(
        self,
        messenger: ClientMessenger,
        server_round: int,
        instructions: Instructions,
        attached: AttachedEvaluation | None = None,
    ) -> list[ClientFailure]:
        """Train on every instructed client and answer what is attached; return the failures."""

    def learn(self, server_round: int, failures: FitFailures) -> Learned:
        """Pass what came back to the method; raises TooFewRepliesError."""

    def evaluate(
        self, messenger: ClientMessenger, server_round: int, parameters: Parameters, known: Roster
    ) -> list[ClientFailure]:
        """Evaluate on the clients; return the failures."""


class PlainExchange:
    """Every client's reply goes to the method."""

    attaches = True
    fewest = 1

    def __init__(self, method: CommunityStrategy) -> None:
        self.method = method
        self.bytes_down = self.bytes_up = 0
        self._results: list[tuple[ClientProxy, FitRes]] = []

    def train(
        self,
        messenger: ClientMessenger,
        server_round: int,
        instructions: Instructions,
        attached: AttachedEvaluation | None = None,
    ) -> list[ClientFailure]:
        """Train on every instructed client and answer what is attached; return the failures."""
        if attached is None:
            self._results, failures = messenger.fit(server_round, instructions)
        else:
            self._results, failures = attached.train(messenger, server_round, instructions)
        self.bytes_down, self.bytes_up = sent(instructions), sent(self._results)
        return failures

    def learn(self, server_round: int, failures: FitFailures) -> Learned:
        """Pass all replies to the method."""
        return self.method.aggregate_fit(server_round, self._results, failures)

    def evaluate(
        self, messenger: ClientMessenger, server_round: int, parameters: Parameters, known: Roster
    ) -> list[ClientFailure]:
        """Evaluate each client's models."""
        instructions = self.method.configure_evaluate(server_round, parameters, known)
        results, failures = messenger.evaluate(server_round, instructions)
        self.method.aggregate_evaluate(server_round, results, [*failures])
        return failures
