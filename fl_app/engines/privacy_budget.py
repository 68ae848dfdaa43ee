"""The privacy budget of every client: what each round releases, and when it is spent."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from flwr.common import FitIns
from flwr.server.client_proxy import ClientProxy

from fl_app.client import accountant
from fl_app.client.accountant import Release
from fl_app.client.local_dp import share_within
from fl_app.client.privacy import BOUND, FITTING, Budgeted, LocalDp, Privacy
from fl_app.client.private_losses import SHARED, answers
from fl_app.records.history import SPENT
from fl_app.records.releases import ReleaseLog
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.roster import Roster

PLACED = "placed"
KINDS = ("released", "answered", PLACED)
"""Names in records: what is released with a model, with losses beside it, and by a newcomer."""
LEFT = "trains no more"
"""Kind of the event that names clients whose budget does not suffice for a further round."""


class PrivacyBudget:
    """Records a release for every client that is asked to train, even if its reply is lost.

    `plan` returns the course of the run for a client with a given number of samples. A resumed run
    restores the releases from the records of the rounds, and from `asked` those that a killed
    process did not record. `bound` is the clip bound of the round, which may be adaptive. Answers
    with losses are released too, beside updates and by newcomers: see fl_app.client.private_losses.
    `questions` has how often each newcomer was asked.
    """

    def __init__(
        self, guard: Privacy, plan: Callable[[int], Any], asked: ReleaseLog | None = None
    ) -> None:
        assert isinstance(guard, Budgeted)
        self.guard, self.plan = guard, plan
        self.asked = None if guard.keyed else asked  # what is keyed is released again unchanged
        self.releases: dict[int, list[Release]] = {}
        self._answers: dict[int, Release] = {}
        self._placed: dict[int, Release] = {}
        self.questions = Counter[int]()
        self.bound = guard.clip
        self._left: set[int] = set()

    def restore(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Restore the releases of earlier rounds; raises ValueError for another kind of privacy."""
        for record in records:
            found = record["privacy"]
            if found is None or found["kind"] != self.guard.kind:
                raise self._another_kind(record["round"])
            for name in KINDS:
                for client, release in found.get(name, {}).items():
                    self._take_up(name, int(client), release)
            if self.guard.adaptive:  # else the setting holds, also one that a resume has changed
                self.bound = found["next_clip"]
            self._left -= {*map(int, found["released"])}
            left = (event["clients"] for event in record["events"] if event["kind"] == LEFT)
            self._left.update(*left)
        self._restore_lost(records)

    def _another_kind(self, server_round: int) -> ValueError:
        return ValueError(
            f"a resumed run must keep its kind of privacy, got {self.guard.kind} after "
            f"round {server_round} without it; start a new run"
        )

    def _restore_lost(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add what clients were asked to release in rounds that are not in the records.

        Of several attempts at a round the last one is in the records.
        """
        booked = Counter(
            (record["round"], name, client)
            for record in records
            for name in KINDS
            for client in record["privacy"].get(name, {})
        )
        for line in reversed(self.asked.read() if self.asked is not None else ()):
            released = line.get("released", {}).values()
            if any((each["steps"] > 0) != self.guard.of_samples for each in released):
                raise self._another_kind(line["round"])
            for name in KINDS:
                for client, release in line.get(name, {}).items():
                    key = line["round"], name, client
                    booked[key] -= 1
                    if booked[key] < 0:
                        self._take_up(name, int(client), release)

    def _take_up(self, name: str, client: int, release: Mapping[str, Any]) -> None:
        self.releases.setdefault(client, []).append(Release(**release))
        if name == PLACED:
            self.questions[client] += 1

    def instruct(
        self, server_round: int, instructions: Sequence[tuple[ClientProxy, FitIns]], roster: Roster
    ) -> None:
        """Add the clip bound of the round to every instruction, and note who is asked."""
        asked, self._answers = dict[int, Release](), {}
        for proxy, ins in instructions:
            client = roster.client_id(proxy)
            ins.config[BOUND], ins.config[SHARED] = self.bound, self.plan(1).losses
            asked[client] = self._release(client, roster)
            if answers(ins.config, len(ins.parameters.tensors)):
                self._answers[client] = self._loss_release(client, roster)
        if self.asked is not None:
            self.asked.append(server_round, released=_plain(asked), answered=_plain(self._answers))

    def question(
        self, server_round: int, client: int, models: int, roster: Roster
    ) -> Mapping[str, bool] | None:
        """Book an answer with losses of a newcomer; return what the question says of it.

        None, and nothing is booked: noise would hide the differences of the losses of `models`, or
        the budget does not suffice.
        """
        plan = self.plan(max(1, roster.samples(client)))
        release = self.guard.loss_release(plan)
        once_more = [*self.releases.get(client, []), release]
        cost = accountant.spent(once_more, self.guard.delta)
        if self.guard.hides_losses(plan, models) or cost > self.guard.limit * (1 + 1e-6):
            return None
        self.releases[client], self._placed[client] = once_more, release
        self.questions[client] += 1
        if self.asked is not None:
            self.asked.append(server_round, placed=_plain({client: release}))
        return {SHARED: plan.losses}

    def book(self, outcome: Outcome, roster: Roster) -> dict[str, Any]:
        """Add the releases of a round; return its record with releases and spent budgets."""
        cohort = outcome.cohort
        released = {client: self._release(client, roster) for client in cohort}
        told = {client: each for client, each in self._answers.items() if client in released}
        placed, self._placed = self._placed, {}
        self._left -= released.keys()  # after a resume with a larger budget
        for every in (released, told):
            for client, release in every.items():
                self.releases.setdefault(client, []).append(release)
        epsilon = {client: self.spent(client) for client in self.releases}
        now, fitting = self.bound, self._fitting(outcome.metrics, released)
        self._adapt(fitting)
        return {
            "kind": self.guard.kind,
            "delta": self.guard.delta,
            "budget": self.guard.budget,
            "limit": self.guard.limit,
            "epsilon": {
                "max": max(epsilon.values(), default=0.0),
                "mean": float(np.mean(list(epsilon.values()))) if epsilon else 0.0,
                "clients": {str(client): epsilon[client] for client in {**released, **placed}},
            },
            "noise_multiplier": max((r.noise_multiplier for r in released.values()), default=None),
            "clip": now,
            "next_clip": self.bound,
            "fitting": fitting,
            "released": _plain(released),
            "answered": _plain(told),
            "placed": _plain(placed),
        }

    def spent(self, client: int) -> float:
        """Return the epsilon that a client has spent so far."""
        return accountant.spent(self.releases.get(client, []), self.guard.delta)

    def over(self, roster: Roster) -> list[int]:
        """Return the present clients whose budget does not suffice for another round."""
        return self._spent_among(roster.proxies(), roster)

    def exhausted(self, roster: Roster, least: int) -> Event | None:
        """Return the event that ends the run, else None.

        The run ends when at least half of the clients cannot train, or fewer than `least` can.
        Before that, only the clients without budget stop. Therefore a client that claims few
        samples, and thus spends more per round, cannot end the run of the others, nor while some
        of them are not connected, who may come back.
        """
        members = roster.members()
        over, clients = self._spent_among(members, roster), len(members)
        if not over or (2 * len(over) < clients and clients - len(over) >= least):
            return None
        return Event(SPENT, self._costs(over))

    def _costs(self, over: Sequence[int]) -> str:
        most = max(self.spent(client) for client in over)
        return (
            f"one more round would cost clients {list(over)} more than epsilon "
            f"{self.guard.limit:g}; spent {most:.3g} at delta {self.guard.delta:g}"
        )

    def leaving(self, over: Sequence[int]) -> Event | None:
        """Return an event for clients that cannot train on since they last did, else None."""
        new = [client for client in over if client not in self._left]
        self._left.update(new)
        return Event(LEFT, self._costs(new), new) if new else None

    def _spent_among(self, clients: Iterable[int], roster: Roster) -> list[int]:
        if not isfinite(self.guard.limit):
            return []
        return [client for client in clients if not self._affords(client, roster)]

    def _affords(self, client: int, roster: Roster) -> bool:
        once_more = [*self.releases.get(client, []), self._release(client, roster)]
        if self.plan(1).losses:
            once_more.append(self._loss_release(client, roster))
        return accountant.spent(once_more, self.guard.delta) <= self.guard.limit * (1 + 1e-6)

    def _release(self, client: int, roster: Roster) -> Release:
        # a client that reports no samples counts as having one, to avoid a division by zero
        release = self.guard.release(self.plan(max(1, roster.samples(client))))
        assert release is not None
        return release

    def _loss_release(self, client: int, roster: Roster) -> Release:
        return self.guard.loss_release(self.plan(max(1, roster.samples(client))))

    @staticmethod
    def _fitting(
        metrics: Mapping[int, Mapping[str, float]], released: Mapping[int, Release]
    ) -> float | None:
        """Return the share of the clients' updates within the bound, by their noisy reports."""
        known = [
            share_within(each[FITTING], deviation=released[client].noise_multiplier)
            for client, each in metrics.items()
            if FITTING in each and client in released
        ]
        return float(np.mean(known)) if known else None

    def _adapt(self, fitting: float | None) -> None:
        if isinstance(self.guard, LocalDp) and fitting is not None and isfinite(fitting):
            self.bound = self.guard.next_bound(self.bound, fitting)


def _plain(releases: Mapping[int, Release]) -> dict[str, Any]:
    return {str(client): asdict(release) for client, release in releases.items()}
