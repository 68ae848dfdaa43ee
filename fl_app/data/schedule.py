"""Changes during a run: clients join, leave, drift or are temporarily unavailable."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from pydantic import ConfigDict, Field

from fl_app.rng import generator
from fl_app.types import ChangeKind, NonNegativeInt, PositiveInt
from fl_app.used_with import When

Drift = Literal["group", "rotation", "labels"]
Kind = Literal["join", "leave", "drift"]
NUMBERS: Mapping[Kind, str] = {"join": "newcomers", "leave": "leavers", "drift": "drifters"}
"""The setting with the number of clients of each kind of change."""
FULL_TURN = 4
"""Drifts by rotation, of 90 degrees each, after which a client has its first data again."""
Rounds = list[PositiveInt]


@dataclass(frozen=True, kw_only=True)
class Dynamics:
    """How many clients join, leave and drift at each change, and the share that is available.

    Each kind of change happens in its `*_rounds` and also every `*_every` rounds (null: never).
    Newcomers have the last ids; leavers and drifters are drawn with the seed from the others.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")
    used_with = MappingProxyType(
        {
            "drift": When("drifters", unless=(0,)),
            "pattern": When("availability", unless=(1.0,)),
            "period": When("pattern", ("periodic",)),
        }
    )
    newcomers: NonNegativeInt
    join_every: PositiveInt | None
    join_rounds: Rounds
    leavers: NonNegativeInt
    leave_every: PositiveInt | None
    leave_rounds: Rounds
    drifters: NonNegativeInt
    drift_every: PositiveInt | None
    drift_rounds: Rounds
    drift: Drift
    availability: Annotated[float, Field(gt=0, le=1)]
    pattern: Literal["random", "periodic"]
    period: PositiveInt


@dataclass(frozen=True)
class Change:
    """A change of clients at the start of a round: they joined, left or drifted."""

    kind: ChangeKind
    clients: tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """The changes of a run of `rounds` rounds with `clients` ids, determined by the seed.

    turned: the planted groups differ by rotations, as those of `population.rotation`.
    """

    dynamics: Dynamics
    clients: int
    rounds: int
    seed: int
    turned: bool = False

    def check(self) -> None:
        """Raise ValueError if more clients would join, leave or drift than exist, or never do."""
        for what, number in NUMBERS.items():
            if getattr(self.dynamics, number) and not self._times_of(what):
                raise ValueError(
                    f"population.dynamics.{number}={getattr(self.dynamics, number)} needs the "
                    f"rounds of the changes; give population.dynamics.{what}_every or "
                    f"population.dynamics.{what}_rounds"
                )
        joining = self.dynamics.newcomers * len(self._rounds_of("join"))
        leaving = self.dynamics.leavers * len(self._rounds_of("leave"))
        if joining + leaving >= self.clients:
            raise ValueError(
                "at least one client must be present in all rounds, but population.dynamics lets "
                f"{joining} of population.clients={self.clients} join later and {leaving} leave; "
                "use fewer newcomers or leavers"
            )
        if self.dynamics.drifters > self.clients - joining:
            raise ValueError(
                f"population.dynamics.drifters must be at most the {self.clients - joining} "
                f"clients that are present from the start, got {self.dynamics.drifters}; lower it"
            )

    @property
    def still(self) -> bool:
        """Whether nothing ever changes."""
        return not self._changes and self.dynamics.availability == 1.0

    @property
    def first(self) -> int:
        """Number of clients that are present from the start."""
        late = sum(
            len(c.clients) for cs in self._changes.values() for c in cs if c.kind == "joined"
        )
        return self.clients - late

    def changes(self, server_round: int) -> Sequence[Change]:
        """Return the changes at the start of a round."""
        return self._changes.get(server_round, ())

    def absent(self, server_round: int) -> set[int]:
        """Return the clients that have not joined yet or have left."""
        found = set(range(self.first, self.clients))
        for number in range(1, server_round + 1):
            for change in self.changes(number):
                if change.kind == "joined":
                    found -= set(change.clients)
                elif change.kind == "left":
                    found |= set(change.clients)
        return found

    def unavailable(self, server_round: int) -> set[int]:
        """Return the members of the federation that cannot train in a round.

        `random`: each client with probability 1 - availability, drawn with the seed. `periodic`:
        each client for this share of its period; the phases of the clients differ.
        """
        how = self.dynamics
        if how.availability == 1.0:
            return set()
        ids = np.arange(self.clients)
        if how.pattern == "periodic":
            phase = (server_round + ids * how.period // self.clients) % how.period
            away = phase >= math.ceil(round(how.availability * how.period, 9))
        else:
            draw = generator(self.seed, purpose="availability", round=server_round)
            away = draw.random(self.clients) >= how.availability
        return set(ids[away].tolist())

    def stage(self, client_id: int, server_round: int) -> int:
        """Return how often a client has drifted up to a round."""
        return sum(
            client_id in change.clients
            for number, changes in self._changes.items()
            for change in changes
            if change.kind == "drifted" and number <= server_round
        )

    def regrouped(self, planted: Mapping[int, int], server_round: int) -> dict[int, int]:
        """Return the group of each client after its drifts; -1 (unknown) stays.

        Clients of one group with as many drifts by rotation or of labels are one group, which has
        a new number unless their data are again those of a planted group.
        """
        count = max(planted.values(), default=-1) + 1
        return {
            client: group
            if group < 0
            else self._after(group, count, self.stage(client, server_round))
            for client, group in planted.items()
        }

    def _after(self, group: int, count: int, drifts: int) -> int:
        """Return the group, of first `count`, that a client of `group` is in after its drifts."""
        if self.dynamics.drift == "group":
            return (group + drifts) % count
        if self.dynamics.drift == "labels":
            return group + count * drifts
        if not self.turned:
            return group + count * (drifts % FULL_TURN)
        angle = (group * FULL_TURN + drifts * count) % (FULL_TURN * count)  # of a planted one: 4g
        planted, rest = divmod(angle, FULL_TURN)
        return planted if not rest else count + angle - planted - 1

    def _times_of(self, what: Kind) -> bool:
        """Whether a kind of change is given any round, in this run or after it."""
        named, every = (getattr(self.dynamics, f"{what}_{end}") for end in ("rounds", "every"))
        return bool(named or every)

    def _rounds_of(self, what: Kind) -> list[int]:
        named: list[int] = getattr(self.dynamics, f"{what}_rounds")
        every: int | None = getattr(self.dynamics, f"{what}_every")
        if not getattr(self.dynamics, NUMBERS[what]):
            return []
        regular = range(every + 1, self.rounds + 1, every) if every else ()
        return sorted({*named, *regular})

    @cached_property
    def _changes(self) -> dict[int, list[Change]]:
        how, found = self.dynamics, dict[int, list[Change]]()
        joins = self._rounds_of("join")
        here = self.clients - how.newcomers * len(joins)
        for place, number in enumerate(joins):
            first = here + place * how.newcomers
            joined = tuple(range(first, first + how.newcomers))
            found.setdefault(number, []).append(Change("joined", joined))
        draw = generator(self.seed, purpose="leavers")
        order = draw.permutation(here).tolist()
        for place, number in enumerate(self._rounds_of("leave")):
            gone = tuple(sorted(order[place * how.leavers : (place + 1) * how.leavers]))
            found.setdefault(number, []).append(Change("left", gone))
        for number in self._rounds_of("drift"):
            draw = generator(self.seed, purpose="drifters", round=number)
            chosen = tuple(sorted(draw.choice(here, how.drifters, replace=False).tolist()))
            found.setdefault(number, []).append(Change("drifted", chosen))
        return found
