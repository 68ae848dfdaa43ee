"""The fallback to one model: clients' own validation decides whether communities stay.

After a split, clients compare their community's model with a common one: `fl_app.strategies.trial`.
Then the split is kept, undone, or left by those whom it harms: `fl_app.evaluation.benefit.judge`.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fl_app.evaluation.benefit import FEWEST, LEVEL, WORTH, Verdict, judge
from fl_app.learner_reports import HELD_OUT_PARTS
from fl_app.records.history import FELL_BACK, GIVEN_UP, KEPT, UNDONE
from fl_app.records.rounding import counted
from fl_app.strategies.outcome import Event
from fl_app.strategies.state import Communities
from fl_app.strategies.trial import JudgedState, SettledState, forget
from fl_app.types import Vector

LOOKS = (5, 10)
"""Rounds after a split in which it is judged, each time by the evidence since the last one."""
PROLONGED = 20
"""The round after a split of one more look, if each community seems to gain, but that is not shown.

In a large federation only a few clients of each community compare models in a round.
"""
AT_ONCE = LEVEL / LOOKS[-1]
"""Level of the test by which a split is kept between these rounds, which is made in each of them.

By Bonferroni's inequality, all of these tests together have at most LEVEL; twice that where models
began apart and their trial goes on to PROLONGED.
"""
EARLIEST = 1 / 3
"""Share of the rounds before a split is undone by its first look, as models first have to learn."""


def decide(
    state: JudgedState,
    server_round: int,
    rounds: int,
    *,
    whole: bool = False,
    apart: bool = False,
    members: Mapping[int, int] | None = None,
    worth: float = WORTH,
) -> list[Event]:
    """Judge a split in the rounds of LOOKS, or at the end of a run of `rounds`.

    A look whose round is skipped is made in the next one. A split is kept or undone, or parts of
    it. If the evidence does not tell, the trial goes on, up to the last of LOOKS, or to PROLONGED
    if it is promising. At its end a promising split is kept. Of
    another one only the communities stay that gain, and without any it is undone: the burden of
    proof is on it, since what it divides learns from fewer clients. A look in the last round also
    keeps what is shown to be better by less than `worth`: no round is left in which one model
    would learn more. In a run that ends before the first look, a split is undone only if it is
    shown to be worse than one model: its models had too few rounds to be better by `worth`. In
    each other round up to the last of LOOKS, it is kept if this round shows that it serves all.
    With `whole` no part of it is undone. With `apart` its models began apart, before they had
    learned. Then they harm nobody yet: they are kept before the last of LOOKS only after EARLIEST
    of the rounds, and if they also seem to serve each client that stays. And they serve nobody yet:
    while the gains rise, none is undone before PROLONGED. `members` has the row of each client if
    the communities have no members, `worth` is the gain that is asked for.
    """
    if state.common is None:
        return []
    before = state.communities
    if members is not None:
        before = Communities(before.models, dict(members))
    end = server_round >= rounds
    early = not end and server_round < EARLIEST * rounds
    how = {"whole": whole, "apart": apart, "end": end, "early": early}
    trial = _Trial(state, before.members, worth=worth, **how)
    verdict = trial.verdict(server_round - state.split_at)
    if verdict is None:
        return []
    common, state.common = state.common, None
    forget(state)
    return [] if verdict.keeps is None else _judged(state, before, verdict, common)


@dataclass(frozen=True)
class _Trial:
    """A round of the trial of communities with these members: see `decide`.

    `end` says whether it is the last round, `early` whether a look undoes nothing yet.
    """

    state: JudgedState
    members: Mapping[int, int]
    _: KW_ONLY
    worth: float
    whole: bool
    apart: bool
    end: bool
    early: bool

    def verdict(self, age: int) -> Verdict | None:
        """Return the verdict `age` rounds after the split, None if the trial goes on.

        One that tells neither ends the trial of communities that stay as they are.
        """
        state, late = self.state, age >= LOOKS[-1]
        if self.end and (age < LOOKS[0] or not state.gains):
            return self._by_parts(self._since_last_look(0.0), last=False)
        first = age >= LOOKS[0] and not state.looked
        due = age >= PROLONGED if state.prolonged else first or late
        if due or self.end:
            return self._at_look(late=late)
        return None if late and not self.apart else self._at_once()

    def _rises(self) -> bool:
        """Whether models that began apart gain, and more than they did since the last look."""
        if not (self.apart and self.state.latest):
            return False
        means = self._means()
        pairs = [(np.mean(each), means[c].mean()) for c, each in self.state.latest.items()]
        now, mean = np.array(pairs).mean(axis=0)
        return bool(now > mean and now > 0)

    def _at_look(self, *, late: bool) -> Verdict | None:
        if self.end and (better := self._since_last_look(0.0)).keeps:
            return self._by_parts(better, last=True)
        state, found = self.state, self._since_last_look(self.worth)
        state.looked = True
        rises = not found.keeps and self._rises()
        goes_on = late and (found.promising or rises) and not (self.end or state.prolonged)
        last, told = self.end or (late and not goes_on), bool(state.gains)
        verdict = self._by_parts(found.at_the_end() if last else found, last=last)
        state.prolonged |= goes_on
        # the evidence of a promising split counts at the last look too, which alone shows as little
        if not (goes_on and found.promising):
            forget(state)
        waits = self.early or rises
        if verdict.keeps:
            waits = self.apart and not late and (waits or found.doubts)
        if verdict.keeps is not None and (last or not waits):
            return verdict
        return Verdict(False if told else None) if last else None

    def _by_parts(self, found: Verdict, *, last: bool) -> Verdict:
        if self.whole:
            return Verdict(found.keeps)
        return found.by_parts(self.members.values(), last=last)

    def _since_last_look(self, worth: float) -> Verdict:
        """Return the verdict from the mean gains since the last look."""
        return _verdict(self._means(), self.members, worth, LEVEL)

    def _means(self) -> dict[int, Vector]:
        """Return the mean gains (p,) of each client since the last look."""
        looks = self.state.looks
        return {c: np.array(each) / looks[c] for c, each in self.state.gains.items()}

    def _at_once(self) -> Verdict | None:
        """Return that a split is kept if the last round shows that it serves all, else None.

        A round with fewer than FEWEST clients shows nothing: two that lie alike would decide. With
        `apart`, clients that were not in it are heard by what they told since the last look.
        """
        latest = self.state.latest
        if len(latest) < FEWEST:
            return None
        gains = {client: np.array(each) for client, each in latest.items()}
        found = _verdict(gains, self.members, self.worth, AT_ONCE)
        every = _verdict(self._means() | gains, self.members, self.worth, AT_ONCE)
        waits = self.apart and (self.early or every.harms or every.doubts)
        return found if found.serves_all and not waits else None


def _judged(
    state: JudgedState, before: Communities, verdict: Verdict, common: Vector
) -> list[Event]:
    """Keep the communities, or those that stay; return the event."""
    count = counted(len(before.models), "community", "communities")
    after = fallen_back(before, verdict, common)
    if after is not before:
        state.communities, state.evaluated = after, {}  # its rows are those of the models before
    if not verdict.keeps:
        return [Event(UNDONE, f"{count} are one again: they are not better for their clients")]
    fallen = sorted(c for c, row in before.members.items() if _falls(c, row, verdict))
    if not fallen:
        return [Event(KEPT, f"{count} are better for their clients than one model")]
    told = f"{len(fallen)} of {counted(len(before.members), 'client', 'clients')} in {count}"
    return [Event(FELL_BACK, f"one model is better for {told}", fallen)]


def settle(
    state: SettledState, server_round: int, rounds: int, *, apart: bool = False
) -> list[Event]:
    """Judge a split as `decide` does, and note whether it was undone or left."""
    found = decide(state, server_round, rounds, apart=apart)
    state.settled |= any(event.kind in GIVEN_UP for event in found)
    return found


def _verdict(
    gains: Mapping[int, Vector], members: Mapping[int, int], worth: float, level: float
) -> Verdict:
    clients = sorted(gains.keys() & members.keys())
    rows = np.array([members[client] for client in clients], int)
    parts = np.array([gains[client] for client in clients]).reshape(-1, HELD_OUT_PARTS)
    return judge(np.array(clients, int), rows, parts, worth=worth, level=level)


def fallen_back(now: Communities, verdict: Verdict, common: Vector) -> Communities:
    """Return the communities after a verdict: who falls back forms one of the common model (d,).

    Communities without other members are removed.
    """
    if not verdict.keeps:
        return Communities(common[None, :].copy(), dict.fromkeys(now.members, 0))
    stay = {c: row for c, row in now.members.items() if not _falls(c, row, verdict)}
    if len(stay) == len(now.members):
        return now
    rows = sorted(set(stay.values()))
    place = {row: k for k, row in enumerate(rows)}
    members = {c: place[stay[c]] if c in stay else len(rows) for c in now.members}
    return Communities(np.concatenate([now.models[rows], common[None, :]]), members)


def _falls(client: int, row: int, verdict: Verdict) -> bool:
    return row in verdict.communities or client in verdict.clients
