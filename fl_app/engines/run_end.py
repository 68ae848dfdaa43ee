"""When a run ends before its last round, and in which rounds its clients evaluate."""

from logging import getLogger

from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.records.history import FINISHED
from fl_app.strategies.outcome import Event, Outcome
from fl_app.strategies.roster import Roster
from fl_app.strategies.server_context import ServerContext

log = getLogger(__name__)


class RunEnd:
    """The end of a run: after its last round, by the method itself, or of a spent budget."""

    def __init__(
        self, context: ServerContext, budget: PrivacyBudget | None, roster: Roster
    ) -> None:
        self.context, self.budget, self.roster = context, budget, roster
        self.spent: str | None = None
        """Why the budget allows no further round, if it does not."""

    def exhausted(self) -> Event | None:
        """Return that too few clients have a budget for another round; None if enough have."""
        least = self.context.min_success
        return None if self.budget is None else self.budget.exhausted(self.roster, least)

    def after(self, server_round: int, outcome: Outcome) -> Event | None:
        """Return why no round follows this one; None after the last one."""
        if server_round >= self.context.rounds:
            return None
        end = self._ending(server_round)
        if end is not None:
            return end
        return Event(FINISHED, outcome.finished) if outcome.finished else None

    def before(self, server_round: int) -> bool:
        """Whether the budget allows no round from this one on, as in a resumed run.

        Raises ValueError if it allows none at all.
        """
        if server_round > 1:
            return self._ending(server_round - 1) is not None
        end = self.exhausted()
        if end is not None:
            raise ValueError(f"{end.detail}; use more noise or a larger privacy.epsilon")
        return False

    def _ending(self, done: int) -> Event | None:
        end = self.exhausted()
        if end is not None and end.detail != self.spent:
            log.warning("the run ends after round %d: %s", done, end.detail)
        self.spent = None if end is None else end.detail
        return end

    def measures(self, server_round: int, outcome: Outcome, *, ends: bool) -> bool:
        """Whether the clients evaluate after this round, which `ends` the run early or does not."""
        if self.context.evaluate_at_most == 0:
            return False
        last = ends or server_round == self.context.rounds or bool(outcome.finished)
        return last or outcome.measures or server_round % self.context.evaluate_every == 0
