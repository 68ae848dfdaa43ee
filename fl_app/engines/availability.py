"""Which clients are available in a round, by the schedule and by their privacy budgets."""

from logging import getLogger

from fl_app.data.schedule import Schedule
from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.strategies.outcome import Event
from fl_app.strategies.roster import Roster

log = getLogger(__name__)


class Availability:
    """Hides absent clients in the roster. None means no schedule or no budget."""

    def __init__(
        self, roster: Roster, schedule: Schedule | None, budget: PrivacyBudget | None
    ) -> None:
        self.roster, self.schedule, self.budget = roster, schedule, budget

    def show_members(self, server_round: int) -> None:
        """Show the clients that belong to the federation in this round."""
        gone = self.schedule.absent(server_round) if self.schedule is not None else set()
        self.roster.absent = frozenset(gone)

    def show_trainable(self, server_round: int) -> Event | None:
        """Show only clients that can train in this round.

        Returns an event for the clients whose budget does not suffice for the first time.
        """
        self.show_members(server_round)
        away = self.schedule.unavailable(server_round) if self.schedule is not None else set()
        if self.budget is None:
            self.roster.absent |= away
            return None
        over = self.budget.over(self.roster)
        event = self.budget.leaving(over)
        if event is not None:
            log.warning("round %d: %s", server_round, event.detail)
        self.roster.absent |= away | set(over)
        return event
