"""Methods as users write them, each by `strategy._target_`: they ask for more than a model."""

from dataclasses import replace
from itertools import count
from typing import ClassVar

import numpy as np
from flwr.common import Parameters, Scalar

from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.client.sgd import SgdLearner
from fl_app.learner_reports import Report
from fl_app.strategies.cohort import FitFailures, FitReplies
from fl_app.strategies.encoding import encode
from fl_app.strategies.fedavg import FedAvg
from fl_app.strategies.replies import Replies

LOSSES = Report(length="classes", low=0, high=1000)
COUNTS = Report(length="classes", low=0, high=1e9)


class Asking(FedAvg):
    """FedAvg that asks for the losses and counts of the classes, and stores them."""

    asks = {"class_losses": LOSSES, "class_counts": COUNTS}  # noqa: RUF012
    received: ClassVar[list[Replies]] = []

    def aggregate_fit(
        self, server_round: int, results: FitReplies, failures: FitFailures
    ) -> tuple[Parameters, dict[str, Scalar]]:
        replies = self.receive(server_round, results, failures)
        self.received.append(replies)
        self.aggregator.update(self.state.communities.models, replies)
        return encode(self.state.communities.models[0]), {"train_loss": replies.loss}


class AskingForMore(FedAvg):
    """Asks for a report that SGD cannot send."""

    asks = {"histogram": Report(length=4, low=0, high=1)}  # noqa: RUF012


class AskingLate(FedAvg):
    """Sets its reports in the constructor."""

    def __init__(self, *given: object, participation: float, weighting: str) -> None:
        super().__init__(*given, participation=participation, weighting=weighting)
        self.asks = {"histogram": Report(length=4, low=0, high=1)}


class AskingForOne(Asking):
    """Asks for a vector and for one number."""

    asks = {"losses": Report(length=3, low=0, high=10), "norm": Report(length=None, low=0, high=1)}  # noqa: RUF012


class Lying(SgdLearner):
    """Sends wrong reports of three kinds for the first three clients that train."""

    trained = count()

    def train(self, job: TrainingJob) -> TrainingResult:
        done = super().train(job)
        losses, counts = (done.reports[name] for name in ("class_losses", "class_counts"))
        lies = [
            {"class_losses": losses},
            {"class_losses": np.append(losses, 1.0), "class_counts": counts},
            {"class_losses": losses * np.nan, "class_counts": counts},
        ]
        place = next(self.trained)
        return replace(done, reports=lies[place]) if place < len(lies) else done


def packed(*numbers: float) -> bytes:
    """Return numbers as a client sends them."""
    return np.array(numbers, "<f4").tobytes()
