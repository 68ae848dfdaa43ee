"""What every client has spent of its privacy, round by round, and when that is enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
from flwr.common import FitIns
from flwr.server.client_proxy import ClientProxy

from fl_app.client import accountant
from fl_app.client.accountant import Release
from fl_app.client.privacy import BOUND, FITTING, Budgeted, LocalDp, Privacy
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.roster import Roster

FARTHEST = 6.0
"""Standard deviations that Gaussian noise does not leave: it does once in a billion draws."""


class PrivacyBudget:
    """Books a release for every client that is asked to train, whether or not its reply arrives.

    `plan` gives how the run goes for a client of so many samples. What is booked can be read
    back from the records of the rounds, so that a resumed run forgets nothing. `bound` is the
    clip bound of the round, where it adapts.
    """

    def __init__(self, guard: Privacy, plan: Callable[[int], Any]) -> None:
        assert isinstance(guard, Budgeted)
        self.guard, self.plan = guard, plan
        self.releases: dict[int, list[Release]] = {}
        self.bound = guard.clip
        self._left: set[int] = set()

    def restore(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Take up what the records of earlier rounds say; raises ValueError for another kind."""
        for record in records:
            found = record["privacy"]
            if found is None or found["kind"] != self.guard.kind:
                raise ValueError(
                    f"a run keeps its kind of privacy, got {self.guard.kind} after round "
                    f"{record['round']} without it; start a new run"
                )
            for client, release in found["released"].items():
                self.releases.setdefault(int(client), []).append(Release(**release))
            self.bound = found["next_clip"]

    def instruct(self, instructions: Sequence[tuple[ClientProxy, FitIns]]) -> None:
        """Tell every client the clip bound of the round."""
        for _, ins in instructions:
            ins.config[BOUND] = self.bound

    def book(self, outcome: Outcome, roster: Roster) -> dict[str, Any]:
        """Book a round and return its record: what was released, and what it has come to."""
        cohort = outcome.cohort
        released = {client: self._release(client, roster) for client in cohort}
        for client, release in released.items():
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
                "clients": {str(client): epsilon[client] for client in cohort},
            },
            "noise_multiplier": max((r.noise_multiplier for r in released.values()), default=None),
            "clip": now,
            "next_clip": self.bound,
            "fitting": fitting,
            "released": {str(client): asdict(release) for client, release in released.items()},
        }

    def spent(self, client: int) -> float:
        """Return the epsilon that a client has spent so far."""
        return accountant.spent(self.releases.get(client, []), self.guard.delta)

    def over(self, roster: Roster) -> list[int]:
        """Return who of the clients that are there cannot train once more."""
        if not isfinite(self.guard.limit):
            return []
        return [client for client in roster.proxies() if not self._affords(client, roster)]

    def exhausted(self, roster: Roster, least: int) -> Event | None:
        """Return why the run is over: half of the clients, or all but `least`, cannot train on.

        Those who cannot are not asked while the others can: one that claims few samples, of which
        a round gives away more, ends its own part alone.
        """
        over, clients = self.over(roster), len(roster.proxies())
        if not over or (2 * len(over) < clients and clients - len(over) >= least):
            return None
        return Event("budget spent", self._costs(over))

    def _costs(self, over: Sequence[int]) -> str:
        most = max(self.spent(client) for client in over)
        return (
            f"one more round would cost clients {list(over)} more than epsilon "
            f"{self.guard.limit:g}; spent {most:.3g} at delta {self.guard.delta:g}"
        )

    def leaving(self, over: Sequence[int]) -> Event | None:
        """Return that clients train no more, the first time they do not."""
        new = [client for client in over if client not in self._left]
        self._left.update(new)
        return Event("trains no more", self._costs(new), new) if new else None

    def _affords(self, client: int, roster: Roster) -> bool:
        once_more = [*self.releases.get(client, []), self._release(client, roster)]
        return accountant.spent(once_more, self.guard.delta) <= self.guard.limit * (1 + 1e-6)

    def _release(self, client: int, roster: Roster) -> Release:
        # one without samples, as it says, is reckoned as having one: no division by zero
        release = self.guard.release(self.plan(max(1, roster.samples(client))))
        assert release is not None
        return release

    @staticmethod
    def _fitting(
        metrics: Mapping[int, Mapping[str, float]], released: Mapping[int, Release]
    ) -> float | None:
        """Return the mean of what the clients reported of their updates and the bound.

        Each is 0 or 1 with noise; what lies farther out than the noise goes counts as there.
        """
        known = []
        for client, each in metrics.items():
            if FITTING in each and client in released:
                far = FARTHEST * released[client].noise_multiplier
                known.append(min(max(each[FITTING], -far), 1 + far))
        return float(np.mean(known)) if known else None

    def _adapt(self, fitting: float | None) -> None:
        if isinstance(self.guard, LocalDp) and fitting is not None and isfinite(fitting):
            self.bound = self.guard.next_bound(self.bound, fitting)
