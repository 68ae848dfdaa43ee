"""The loop over rounds: resumable, with one batch of messages and a minimum of valid replies.

It replaces Flower's `Server.fit`, which always starts at round 1, loses the id of a client that
fails and sends one message per thread. All engines use this loop.
"""

import time
from collections.abc import Iterator
from logging import getLogger

from flwr.server.history import History as FlowerHistory
from flwr.server.server import Server
from flwr.supercore.run import RunNotRunningException

from fl_app.client.central import CentralTest
from fl_app.data.schedule import Schedule
from fl_app.engines import figures, signals, stop_request
from fl_app.engines.availability import Availability
from fl_app.engines.carried_evaluation import CarriedEvaluation
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.connections import Connections
from fl_app.engines.memory import keep_objects
from fl_app.engines.newcomers import Newcomers
from fl_app.engines.plain_exchange import PlainExchange, RoundExchange
from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.engines.round_aggregation import ATTEMPTS, RoundAggregation
from fl_app.engines.round_reporter import CountClasses, RoundReporter
from fl_app.engines.run_end import RunEnd
from fl_app.engines.run_output import RunOutput
from fl_app.engines.trained_round import TrainedRound, failed, times
from fl_app.reasons import reason_of
from fl_app.records.history import EVALUATION
from fl_app.records.recorder import Recorder
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.replies import (
    ClientFailure,
    LostRepliesError,
    RejectedReply,
    TooFewRepliesError,
)
from fl_app.strategies.roster import Roster
from fl_app.strategies.state import check_models, load
from fl_app.strategies.state_fields import check_fields

log = getLogger(__name__)


class RoundLoop(Server):
    """Flower's Server with the rounds of this module.

    With `evaluate_with_training`, the next round carries the evaluation of a round where it can;
    until then the round is open, and not in the records.
    """

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
        budget: PrivacyBudget | None = None,
        places: bool = False,
        unplaced: bool = False,
        class_counts: CountClasses | None = None,
        exchange: RoundExchange | None = None,
        evaluate_with_training: bool = False,
    ) -> None:
        self.roster = Roster()
        super().__init__(client_manager=self.roster, strategy=strategy)
        self.method, self.context = strategy, strategy.context
        self.exchange = exchange or PlainExchange(strategy)
        self.recorder = recorder
        self.clients = clients
        self.messenger = ClientMessenger(self.roster, clients=clients, timeout=round_timeout_s)
        self.connections = Connections(
            self.messenger.introducer,
            self.roster,
            clients=clients,
            min_success=self.context.min_success,
            fewest=self.exchange.fewest,
            timeout_s=connect_timeout_s,
            audit=recorder.audit,
        )
        self.figures = figures
        schedule = schedule if schedule is not None and not schedule.still else None
        self.reporter = RoundReporter(
            self.roster,
            clients=clients,
            benign=self.context.benign,
            schedule=schedule,
            central=central,
            names=recorder.names,
            class_counts=class_counts,
        )
        self.budget, self.end = budget, RunEnd(self.context, budget, self.roster)
        self.availability = Availability(self.roster, schedule, budget)
        self.newcomers = Newcomers(
            strategy, self.availability, recorder.folder, places=places, unplaced=unplaced
        )
        started, seen = strategy.initialize_parameters(self.roster), (self.roster, self.reporter)
        self.aggregation = RoundAggregation(self.exchange, started, self.context.rounds)
        self.carried = CarriedEvaluation(
            strategy, self.exchange, *seen, recorder, wanted=evaluate_with_training
        )
        self.output = RunOutput(strategy, recorder, *seen, self.newcomers, self.carried)
        self._outcome: Outcome | None = None
        self._restart = recorder.restarts
        self._sound = True

    def fit(self, num_rounds: int, timeout: float | None) -> tuple[FlowerHistory, float]:
        """Run the remaining rounds; a stop of any kind leaves a checkpoint and a summary."""
        start, done = time.perf_counter(), self._restore()
        self.recorder.begin()
        with signals.deferred(), stop_request.listening(self.recorder.folder):
            self._play_all(done + 1, num_rounds)
        return FlowerHistory(), time.perf_counter() - start

    def _play_all(self, first: int, last: int) -> None:
        status, failure = "failed", None
        try:
            self.availability.show_members(first)  # who joins later may have connected already
            self.connections.wait(self.clients - len(self._gone()))
            self._reopen(first)
            self.newcomers.begin(first, self.recorder.history.rounds)
            with keep_objects():
                for done in self._rounds(first, last):
                    log.debug("round %d is done", done)
                self._close(last)
            status = "completed"
        except (KeyboardInterrupt, SystemExit, RunNotRunningException):
            status = "interrupted"  # by request, by a signal to Flower's process or by `flwr stop`
            raise
        except Exception as error:
            failure = reason_of(error)
            raise
        finally:
            if self.recorder.superseded():  # this process was thought to be lost
                log.error("this run was submitted again meanwhile; nothing more is written")
            else:
                # After a stop during an aggregation, the previous checkpoint stays valid.
                if self._sound:
                    self.output.checkpoint()
                self._finish(status, failure)

    def _rounds(self, first: int, last: int) -> Iterator[int]:
        """Run rounds until the run is finished or budgets are spent; yield each round number."""
        if first > last or self.method.outcome(0).finished:  # a resumed run that was finished
            self.newcomers.place(first - 1, self.messenger.evaluate, ended=True)
            return
        for server_round in range(first, last + 1):
            stop_request.check()
            self.recorder.check_owner()
            if self.end.before(server_round):
                return
            outcome = self._round(server_round)
            yield server_round
            if outcome.finished:
                return

    def _restore(self) -> int:
        """Load the checkpoint of a resumed run; return the number of its completed rounds."""
        check_fields(type(self.method.state))  # not first when a resume needs it
        saved = self.recorder.restored()
        if saved is None:
            if self.budget is not None:
                self.budget.restore([])
            return 0
        check_models(saved.arrays, self.context.layout.size)
        load(self.method.state, saved.arrays, saved.state)
        records = self.carried.restore(saved.state)
        self.aggregation.restore(records)
        self.reporter.restore(records)
        if self.budget is not None:
            self.budget.restore(records)
        return saved.round

    def _reopen(self, first: int) -> None:
        """Evaluate the last round of a resumed run, if it was stopped before it could."""
        now = self.carried.unscored
        if now is not None:
            self.availability.show_members(now)
            self.carried.reopen(self.aggregation.parameters)
            self._close(now)
            self.availability.show_members(first)

    def _close(self, server_round: int) -> float:
        """Complete the open round, if there is one; return the seconds that this took."""
        seconds, outcome = self.carried.close(self.messenger, server_round)
        self._outcome = outcome or self._outcome
        return seconds

    def _round(self, server_round: int) -> Outcome:
        """Run a round, and repeat it if too many clients were lost.

        With a privacy budget there is one attempt, since a second one would release more than is
        recorded.
        """
        attempts = ATTEMPTS if self.budget is None else 1
        former: TrainedRound | None = None
        why = ""
        for attempt in range(1, attempts + 1):
            if server_round > 1 or attempt > 1:
                self.roster.begin_round()
                self.connections.introduce()
            self.connections.require()
            if self.newcomers.asks():  # what a newcomer chooses then is its last choice
                self._close(server_round)
            self.newcomers.place(server_round, self.messenger.evaluate)
            rejected = dict(self.method.rejections.by_client)
            trained = self._train(server_round)
            if former is not None:
                trained.follows(former, rejected, why)
            try:
                with stop_request.held():
                    return self._learn(trained, last=attempt == attempts)
            except LostRepliesError as error:
                if attempt == attempts:
                    raise
                log.warning("round %d is repeated: %s", server_round, error)
                former, why = trained, str(error)
        raise AssertionError("a round has at least one attempt")

    def _train(self, server_round: int) -> TrainedRound:
        """Train on the clients that the strategy selects, which first evaluate the open round."""
        began = time.perf_counter()
        leaving = self.availability.show_trainable(server_round)
        instructions = self.method.configure_fit(
            server_round, self.aggregation.parameters, self.roster
        )
        self.availability.show_members(server_round)
        if self.budget is not None:
            self.budget.instruct(server_round, instructions, self.roster)
        asked = time.perf_counter()
        attached = self.carried.attached
        failures = self.exchange.train(self.messenger, server_round, instructions, attached)
        training_s = time.perf_counter() - asked
        began += self._close(server_round)  # which is time of the round before
        return TrainedRound(server_round, began, training_s, failures, leaving)

    def _learn(self, trained: TrainedRound, *, last: bool) -> Outcome:
        """Aggregate, evaluate and record a round, of which this is the `last` attempt or not."""
        now = trained.round
        self._sound = False
        lost = [each for each in trained.earlier if not isinstance(each, RejectedReply)]
        failures, evaluation_s = lost + failed(now, trained.failures), 0.0
        refused = [*self.connections.refused, *self.newcomers.refused]
        refused += [each for each in trained.earlier if isinstance(each, RejectedReply)]
        try:
            loss, skipped = self.aggregation.learn(trained, failures, refused, last=last)
        except TooFewRepliesError:
            self._sound = True  # the state of the method has not changed yet
            raise
        failures += self.connections.failed
        outcome = self.method.outcome(now)
        booked = self.budget.book(outcome, self.roster) if self.budget else outcome.privacy
        end = self.end.after(now, outcome)
        measured = self.end.measures(now, outcome, ends=end is not None)
        waits = measured and end is None and self.carried.apart_because(outcome, now) is None
        if measured and not waits:
            evaluation_s = self._evaluate(now, failures)
            outcome = self.method.outcome(now)
        events = [trained.leaving, *trained.repeated, *self.newcomers.events, *outcome.events,
                  skipped, end, self._restarted()]  # fmt: skip
        record = self.reporter.record(now, outcome, failures, [each for each in events if each])
        record |= {"train_loss": loss, "privacy": booked}
        record["bytes"] = {"down": self.exchange.bytes_down, "up": self.exchange.bytes_up}
        record["time"] = times(trained, evaluation_s, outcome)
        if waits:
            self.carried.begin(record, outcome, self.aggregation.parameters)
        else:
            self.recorder.round(record)
        self._sound, self._outcome = True, outcome
        self.output.keep(outcome, record)
        return outcome

    def _evaluate(self, server_round: int, failures: list[ClientFailure]) -> float:
        """Evaluate on the clients and add who fails; return the seconds that this took."""
        began, models = time.perf_counter(), self.aggregation.parameters
        found = self.exchange.evaluate(self.messenger, server_round, models, self.roster)
        failures += failed(server_round, found, EVALUATION)
        return time.perf_counter() - began

    def _gone(self) -> set[int]:
        """Return the clients for which the start does not wait.

        A run that was lost and submitted again goes on without those that it had lost before.
        """
        rounds = self.recorder.history.rounds if self._restart else []
        return {*self.roster.absent, *(rounds[-1]["lost"] or () if rounds else ())}

    def _restarted(self) -> Event | None:
        """Return the event of the first round after the run was lost and submitted again."""
        restart, self._restart = self._restart, 0
        if not restart:
            return None
        done = len(self.recorder.history.rounds)
        return Event("restarted", f"the run was lost and goes on after round {done}")

    def _finish(self, status: str, failure: str | None) -> None:
        self.output.finish(status, self._outcome, failure or self.end.spent)
        if self.figures and self.recorder.history.rounds:
            figures.draw(self.recorder.folder)
