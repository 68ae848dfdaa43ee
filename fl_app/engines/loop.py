"""The rounds: one batched send each, resumable, ordered, with a minimum of valid replies.

Replaces Flower's `Server.fit`, which always starts at round 1, loses the id of a client that
fails and sends one message per thread. The same under Ray, in-process and over gRPC.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from logging import getLogger
from typing import Any

from flwr.common import FitIns, FitRes
from flwr.server.client_proxy import ClientProxy
from flwr.server.history import History as FlowerHistory
from flwr.server.server import Server
from flwr.supercore.run import RunNotRunningException

from fl_app.client.central import CentralTest
from fl_app.data.schedule import Schedule
from fl_app.engines import signals, stop_request
from fl_app.engines.account import Account, sent
from fl_app.engines.exchange import Exchange, Introductions
from fl_app.engines.ledger import Ledger
from fl_app.engines.memory import keep_objects
from fl_app.records.recorder import Recorder
from fl_app.report import write_figures
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.replies import (
    ClientFailure,
    LostRepliesError,
    RejectedReply,
    TooFewRepliesError,
    too_few,
)
from fl_app.strategies.roster import Roster
from fl_app.strategies.setting import Event, View
from fl_app.strategies.state import load, save

log = getLogger(__name__)
POLL_S = 0.5
FIGURES_S = 300.0
"""How long the figures may take."""
ATTEMPTS = 3
"""How often a round is played when too many of its clients are lost: they may come back."""


class RoundLoop(Server):
    """Flower's Server, with rounds of our own: see the module."""

    def __init__(
        self,
        *,
        strategy: CommunityStrategy,
        recorder: Recorder,
        clients: int,
        round_timeout_s: float | None,
        connect_timeout_s: float,
        figures: bool,
        central: CentralTest | None = None,
        schedule: Schedule | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.roster = Roster()
        super().__init__(client_manager=self.roster, strategy=strategy)
        self.communities_strategy = strategy
        self.recorder = recorder
        self.clients = clients
        self.connect_timeout_s = connect_timeout_s
        self.exchange = Exchange(self.roster, clients=clients, timeout=round_timeout_s)
        self.figures = figures
        self.schedule = schedule if schedule is not None and not schedule.still else None
        self.account = Account(
            strategy, self.roster, clients=clients, schedule=self.schedule, central=central
        )
        self.ledger = ledger
        self._sound = True
        self._outside = Introductions()

    def fit(self, num_rounds: int, timeout: float | None) -> tuple[FlowerHistory, float]:
        """Run the rounds that are left; a stop of any kind leaves a checkpoint and a summary."""
        start, done = time.perf_counter(), self._restore()
        with signals.deferred(), stop_request.listening(self.recorder.folder):
            self._play_all(done + 1, num_rounds)
        return FlowerHistory(), time.perf_counter() - start

    def _play_all(self, first: int, last: int) -> None:
        status = "failed"
        try:
            self._wait_for_clients(self.clients if self.schedule is None else self.schedule.first)
            with keep_objects():
                for done in self._rounds(first, last):
                    log.debug("round %d is done", done)
            status = "completed"
        except (KeyboardInterrupt, SystemExit, RunNotRunningException):
            status = "interrupted"  # on request, by a signal to Flower's process, by `flwr stop`
            raise
        finally:
            # A stop in the middle of an aggregation leaves the checkpoint before it in force.
            if self._sound:
                self._checkpoint()
            self._finish(status)

    def _rounds(self, first: int, last: int) -> Iterator[int]:
        """Play the rounds until all is done or spent; yield the number of each that is over."""
        for server_round in range(first, last + 1):
            stop_request.check()
            end = self._exhausted()
            if end is not None and server_round == 1:
                raise ValueError(f"{end.detail}; give more noise or a larger privacy.epsilon")
            if end is not None:
                return
            self._round(server_round)
            yield server_round
            if self.communities_strategy.finished:
                return

    def _restore(self) -> int:
        """Take up the checkpoint of a run that goes on; return the rounds it has behind it."""
        strategy = self.communities_strategy
        self.parameters = strategy.initialize_parameters(self.roster)
        saved = self.recorder.restored()
        if saved is None:
            return 0
        load(strategy.state, saved.arrays, saved.state)
        self.account.restore(self.recorder.history.rounds)
        if self.ledger is not None:
            self.ledger.restore(self.recorder.history.rounds)
        return saved.round

    def _wait_for_clients(self, needed: int) -> None:
        """Wait until `needed` clients are known, or the others have answered and are not let in.

        When the time is up the run goes on with `engine.min_success` clients or more. Raises
        TimeoutError for fewer.
        """
        deadline = time.monotonic() + self.connect_timeout_s
        least = self.communities_strategy.setting.min_success
        while True:
            self._introduce()
            present = len(self.roster.proxies())
            enough = present >= least
            if present >= needed or (enough and present + self._outside.answered >= needed):
                break
            if time.monotonic() > deadline and enough:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{present} of {needed} clients connected within "
                    f"{self.connect_timeout_s} s, engine.min_success is {least}; start the others "
                    f"or raise engine.connect_timeout_s; {self._outside}"
                )
            stop_request.wait(POLL_S)
        if present < needed:
            log.warning(
                "the run goes on with %d of %d clients, without clients %s; %s",
                present, needed, self.account.lost(), self._outside,
            )  # fmt: skip

    def _introduce(self) -> None:
        """Ask new nodes who they are; note and log those who did not get in."""
        before, self._outside = self._outside, self.exchange.introduce()
        refused = self._outside.failed, self._outside.rejected
        if self._outside.answered and refused != (before.failed, before.rejected):
            log.warning("not let in: %s", self._outside)

    def _round(self, server_round: int) -> None:
        """Play a round, again where too many were lost in it.

        With a privacy budget there is one attempt: another one would release more than is booked.
        """
        for attempt in range(1, ATTEMPTS + 1):
            if server_round > 1 or attempt > 1:
                self._introduce()
            if len(self.roster.proxies()) < self.communities_strategy.setting.min_success:
                self._wait_for_clients(self.communities_strategy.setting.min_success)
            try:
                self._play(server_round)
                return
            except LostRepliesError as error:
                if attempt == ATTEMPTS or self.ledger is not None:
                    raise
                log.warning("round %d is played again: %s", server_round, error)

    def _play(self, server_round: int) -> None:
        strategy, began = self.communities_strategy, time.perf_counter()
        self._see(server_round, training=True)
        instructions = strategy.configure_fit(server_round, self.parameters, self.roster)
        self._see(server_round, training=False)
        if self.ledger is not None:
            self.ledger.instruct(instructions)
        asked = time.perf_counter()
        results, failures = self.exchange.fit(server_round, instructions)
        training_s = time.perf_counter() - asked
        with stop_request.held():
            self._learn(server_round, instructions, results, failures, (began, training_s))

    def _learn(
        self,
        server_round: int,
        instructions: Sequence[tuple[ClientProxy, FitIns]],
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[ClientFailure],
        clock: tuple[float, float],
    ) -> None:
        """Aggregate, evaluate and record a round, as a whole; `clock`: its start, its training."""
        strategy, (began, training_s) = self.communities_strategy, clock
        self._sound = False
        self.parameters, metrics = self._aggregate(server_round, results, failures)
        booked = self._book(server_round)
        evaluated = time.perf_counter()
        failures += self._evaluate(server_round)
        evaluation_s = time.perf_counter() - evaluated
        view = strategy.view(server_round)
        record = self.account.of(server_round, failures, view)
        record["train_loss"] = metrics.get("train_loss")
        record["privacy"] = booked
        total_s = time.perf_counter() - began
        record["bytes"] = {"down": sent(instructions), "up": sent(results)}
        record["time"] = {
            "total_s": total_s,
            "training_s": training_s,
            "server_s": total_s - training_s - evaluation_s,
            "evaluation_s": evaluation_s,
            "clients_s": strategy.training_s,
        }
        self.recorder.round(record)
        self._sound = True
        self._keep(server_round, view, record)
        strategy.events.clear()

    def _book(self, server_round: int) -> dict[str, Any] | None:
        """Book what the round cost in privacy; where that is all, the run ends with it."""
        if self.ledger is None:
            return None
        strategy = self.communities_strategy
        booked = self.ledger.book(strategy.cohort, strategy.said, self.roster)
        end = self._exhausted() if server_round < strategy.setting.rounds else None
        if end is not None:
            log.warning("the run ends after round %d: %s", server_round, end.detail)
            strategy.events.append(end)
            strategy.stopped = True
        return booked

    def _exhausted(self) -> Event | None:
        least = self.communities_strategy.setting.min_success
        return None if self.ledger is None else self.ledger.exhausted(self.roster, least)

    def _see(self, server_round: int, *, training: bool) -> None:
        """Hide the clients that are not there; for training also who cannot or must not train."""
        gone = self.schedule.absent(server_round) if self.schedule is not None else set()
        self.roster.absent = frozenset(gone)
        if training:
            self.roster.absent |= self._not_training(server_round)

    def _not_training(self, server_round: int) -> set[int]:
        """Return who is unavailable by the schedule, or has spent its privacy budget."""
        away = self.schedule.unavailable(server_round) if self.schedule is not None else set()
        if self.ledger is None:
            return set(away)
        over = self.ledger.over(self.roster)
        event = self.ledger.leaving(over)
        if event is not None:
            log.warning("round %d: %s", server_round, event.detail)
            self.communities_strategy.events.append(event)
        return away | set(over)

    def _aggregate(
        self,
        server_round: int,
        results: list[tuple[ClientProxy, FitRes]],
        failures: list[ClientFailure],
    ) -> tuple[Any, dict[str, Any]]:
        failures[:] = self._failed(server_round, failures)
        for client, why in self._outside.rejected.items():
            self.communities_strategy.reject(server_round, client, why)
        try:
            return self.strategy.aggregate_fit(server_round, results, [*failures])
        except TooFewRepliesError as error:
            self._sound = True  # raised before anything learnt was touched
            raise too_few(error, failures) from error

    def _evaluate(self, server_round: int) -> list[ClientFailure]:
        strategy = self.communities_strategy
        instructions = strategy.configure_evaluate(server_round, self.parameters, self.roster)
        results, failures = self.exchange.evaluate(server_round, instructions)
        failures = self._failed(server_round, failures, "evaluation: ")
        strategy.aggregate_evaluate(server_round, results, [*failures])
        return failures

    def _failed(
        self, server_round: int, failures: list[ClientFailure], what: str = ""
    ) -> list[ClientFailure]:
        """Return the failures that are no malformed replies, which the strategy is told of."""
        for failure in failures:
            if isinstance(failure, RejectedReply):
                reason = f"{what}{failure.reason}"
                self.communities_strategy.reject(server_round, failure.client_id, reason)
            else:
                log.warning("round %d: %s%s", server_round, what, failure)
        return [each for each in failures if not isinstance(each, RejectedReply)]

    def _keep(self, server_round: int, view: View | None, record: dict[str, Any]) -> None:
        """Write snapshot and checkpoint where this round calls for them."""
        clustered = any(event["kind"] == "clustered" for event in record["events"])
        last = server_round == self.communities_strategy.setting.rounds
        wanted = clustered or server_round in self.recorder.snapshot_rounds
        wanted = wanted or (last and not self.recorder.has_snapshots)
        if view is not None and view.alike is not None and wanted:
            groups = self.account.groups(view, server_round)
            self.recorder.snapshot(
                server_round, view.client_ids, view.alike, view.labels, groups, view.distance
            )
        if clustered or server_round % self.recorder.checkpoint_every == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        arrays, state = save(self.communities_strategy.state)
        self.recorder.checkpoint(arrays, state)

    def _finish(self, status: str) -> None:
        strategy = self.communities_strategy
        assignment = strategy.state.communities.members | strategy.assigned
        self.recorder.finish(
            status,
            clients=len(self.roster.proxies()),
            assignment=assignment if strategy.phase == "clustered" else {},
            removed=sorted(strategy.state.removed),
            models=strategy.state.communities.models,
            layout=strategy.setting.layout,
        )
        if self.figures and self.recorder.history.rounds:
            self._draw()

    def _draw(self) -> None:
        """Draw the figures; one that fails or takes too long costs no result."""
        draw = partial(write_figures, self.recorder.folder)
        try:
            if not signals.patiently(draw, FIGURES_S, hurried=stop_request.asked):
                log.warning("the figures took too long and were left out")
        except Exception:
            log.exception("figures could not be drawn")
