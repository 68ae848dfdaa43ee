"""What a client of a run is going to do, for the accountant of its privacy."""

from dataclasses import dataclass

from fl_app.client import accountant


@dataclass(frozen=True)
class TrainingPlan:
    """The plan of a run for one client: its `rounds`, the `participation`, and local training.

    `participation` is the share of the rounds in which the client is expected to train, `samples`
    the number of its samples; `batch_size` and `epochs` are those of SGD.
    `losses`: whether the method asks for losses on training data in each round, so that they have a
    share of the budget.
    """

    rounds: int
    participation: float
    samples: int
    batch_size: int
    epochs: int
    losses: bool = False

    @property
    def rounds_of_one(self) -> int:
        """Number of rounds for which a client's budget must suffice."""
        return accountant.rounds_of_one(self.rounds, self.participation)

    @property
    def rate(self) -> float:
        """Probability that a batch contains a given sample."""
        return min(1.0, self.batch_size / self.samples)

    @property
    def steps(self) -> int:
        """Number of batches in one round."""
        return self.epochs * max(1, round(1 / self.rate))
