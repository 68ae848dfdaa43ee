"""What the loop writes beside the records of the rounds: snapshots, checkpoints, the end."""

from collections.abc import Mapping
from typing import Any

from fl_app.engines.carried_evaluation import CarriedEvaluation
from fl_app.engines.newcomers import Newcomers
from fl_app.engines.round_reporter import RoundReporter
from fl_app.records.history import trained
from fl_app.records.recorder import Recorder
from fl_app.records.serving import Served
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.outcome import FEDERATED, Outcome
from fl_app.strategies.roster import Roster
from fl_app.strategies.serving import served
from fl_app.strategies.state import save


class RunOutput:
    """Writes the state of a method into the folder of a run."""

    def __init__(
        self,
        method: CommunityStrategy,
        recorder: Recorder,
        roster: Roster,
        reporter: RoundReporter,
        newcomers: Newcomers,
        carried: CarriedEvaluation,
    ) -> None:
        self.carried = carried
        self.method, self.recorder, self.roster = method, recorder, roster
        self.reporter, self.newcomers = reporter, newcomers

    def keep(self, outcome: Outcome, record: Mapping[str, Any]) -> None:
        """Write a snapshot and a checkpoint if this round requires them."""
        now = record["round"]
        clustered = any(event["kind"] == "clustered" for event in record["events"])
        wanted = clustered or now in self.recorder.snapshot_rounds
        last = now == self.method.context.rounds
        wanted = wanted or (last and not self.recorder.has_snapshots)
        view = outcome.view
        if view is not None and view.affinity is not None and wanted:
            groups = self.reporter.groups(view, now)
            self.recorder.snapshot(
                now, view.client_ids, view.affinity, view.labels, groups, view.distance
            )
        if clustered or now % self.recorder.checkpoint_every == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write a checkpoint, with the round that is not evaluated yet."""
        self.recorder.checkpoint(*save(self.method.state), self.carried.saved())

    def finish(self, status: str, outcome: Outcome | None, reason: str | None) -> None:
        """Write the models, which client uses which, and the summary."""
        self.carried.leave()
        outcome = outcome if outcome is not None else self.method.outcome(0)
        assignment = {**self._sole(outcome), **outcome.assignment, **self.newcomers.now}
        removed, done = sorted(outcome.removed), len(self.recorder.history.rounds)
        self.recorder.finish(
            status,
            clients=len(self._met()),
            assignment=assignment,
            agreement=self.reporter.agreement(assignment, removed, done),
            groups=self.reporter.planted(done),
            removed=removed,
            models=outcome.models,
            layout=self.method.context.layout,
            serve=self._served,
            reason=reason,
        )

    def _met(self) -> set[int]:
        """Return the clients that were in the run and have not left it, connected now or not."""
        met = {*self.roster.members(), *trained(self.recorder.history.rounds)}
        return met - self.roster.absent

    def _sole(self, outcome: Outcome) -> dict[int, int]:
        """Return the row of each client that uses the only model of a clustered run.

        A client that trained only after the clustering is no member, although it has no choice.
        """
        alone = len(outcome.models) == 1 and outcome.global_model is None
        if outcome.phase == FEDERATED or not alone:
            return {}
        return {client: 0 for client in self.roster.proxies() if client not in outcome.removed}

    def _served(self) -> Served:
        """Return which model each client uses, also a client that is absent now."""
        state, rounds = self.method.state, self.recorder.history.rounds
        known = {*self.roster.proxies(), *state.communities.members, *state.evaluated}
        known |= trained(rounds)  # a method can store the clients in another place
        done = rounds[-1]["round"] if rounds else 0
        return self.newcomers.served(served(self.method, sorted(known), done))
