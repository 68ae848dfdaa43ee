"""Parts as users write them, whose constructors raise."""

from typing import Any

import torch
from torch import nn
from torchmetrics import Metric

from fl_app.client.attacks import Attack as AppAttack
from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.client.privacy import NoPrivacy
from fl_app.client.sgd import SgdLearner
from fl_app.client.training import Score
from fl_app.strategies.fedavg import FedAvg


def _fail(*given: Any, **more: Any) -> None:
    raise RuntimeError("no licence\nfor this ward")


def network(shape: tuple[int, ...], classes: int, *, hidden: list[int]) -> Any:
    """Raise an error in the place of a network."""
    _fail()


def data(*, test_share: float, standardise: bool, seed: int) -> Any:
    """Raise an error in the place of a data set."""
    _fail()


def people(dataset: Any, *, seed: int, clients: int) -> Any:
    """Raise an error in the place of a population."""
    _fail()


class Optimizer(torch.optim.Adam):
    __init__ = _fail


class Scheduler(torch.optim.lr_scheduler.LRScheduler):
    __init__ = _fail


class Loss(nn.Module):
    __init__ = _fail


class Recall(Metric):
    __init__ = _fail

    def update(self, *given: Any) -> None:
        """Count nothing."""

    def compute(self) -> float:
        """Return no recall."""
        return 0.0


class Transform(nn.Module):
    __init__ = _fail


class Learner(SgdLearner):
    __init__ = _fail


class OtherLearner(SgdLearner):
    """Trains and scores in its own way, so that loss and metrics are not tried with a network."""

    __init__ = _fail

    def train(self, job: TrainingJob) -> TrainingResult:
        raise AssertionError

    def score(self, *given: Any) -> Score:
        raise AssertionError


class Attack(AppAttack):
    def __init__(self, *, share: float, start: int) -> None:
        _fail()


class Privacy(NoPrivacy):
    def __init__(self) -> None:
        _fail()


class Leaving(NoPrivacy):
    """Ends the program, as a constructor that reads arguments does."""

    def __init__(self) -> None:
        raise SystemExit("usage: leaving")


class Strategy(FedAvg):
    def __init__(self, context: Any, *, participation: float, weighting: str) -> None:
        _fail()


class Other:
    """None of the parts of the app."""
