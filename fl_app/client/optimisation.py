"""The optimiser of a client by its name in torch.optim, with a learning rate for each round."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fl_app.reasons import reason_of

SHORT = frozenset({"lr", "momentum", "weight_decay"})
"""Arguments of SGD that the settings of the group `client` have too."""
Build = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]
Values = Mapping[str, Any]


@dataclass(eq=False)
class Optimisation:
    """Builds an optimiser for one client in one round; it keeps no state between rounds.

    `options` are the arguments of `build`, an optimiser of torch. `schedule` builds a scheduler of
    torch from an optimiser, which steps once a round; None: the learning rate is constant.
    """

    build: Build
    options: Mapping[str, Any]
    schedule: Callable[[Optimizer], Any] | None = None
    _courses: dict[Shapes, "_Course"] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plain(self) -> bool:
        """Whether it is SGD with nothing but SHORT, which a fused cohort and DP-SGD have too."""
        return self.build is torch.optim.SGD and set(self.options) <= SHORT

    def at(self, server_round: int) -> Mapping[str, Any]:
        """Return the arguments in a round, the first of which is 1, of a single parameter."""
        return {**self.options, **self._groups([_parameter()], server_round)[0]}

    def make(self, parameters: Sequence[nn.Parameter], server_round: int) -> Optimizer:
        """Return the optimiser of these parameters for a round."""
        made: Optimizer = self.build(list(parameters), **self.options)
        groups = self._groups(parameters, server_round)
        for group, now in zip(made.param_groups, groups, strict=self.schedule is not None):
            group.update(now)
        return made

    def _groups(self, parameters: Sequence[nn.Parameter], server_round: int) -> Sequence[Values]:
        """Return what the scheduler has set in each group of parameters until a round."""
        if self.schedule is None:
            return [{}]
        shapes = tuple(tuple(each.shape) for each in parameters)
        with self._lock:
            if shapes not in self._courses:
                unfilled = [nn.Parameter(torch.empty(each, device="meta")) for each in shapes]
                optimiser = self.build(unfilled, **self.options)
                self._courses[shapes] = _Course(optimiser, self.schedule)
            return self._courses[shapes].at(server_round)


class _Course:
    """What a scheduler sets in the groups of an optimiser, round after round."""

    def __init__(self, optimiser: Optimizer, schedule: Callable[[Optimizer], Any]) -> None:
        self.optimiser, self.first = optimiser, _values(optimiser)
        self.scheduler = schedule(optimiser)
        self.rounds = [self._changed()]

    def at(self, server_round: int) -> Sequence[Values]:
        """Return the values of each group in a round, the first of which is 1."""
        while len(self.rounds) < server_round:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the optimiser has not stepped before
                self.scheduler.step()
            self.rounds.append(self._changed())
        return self.rounds[server_round - 1]

    def _changed(self) -> Sequence[Values]:
        pairs = zip(self.first, _values(self.optimiser), strict=True)
        return [
            {k: now[k] for k, value in first.items() if k == "lr" or now[k] != value}
            for first, now in pairs
        ]


def _values(optimiser: Optimizer) -> Sequence[Values]:
    """Return copies of the settings of each group of parameters."""
    return [
        {name: deepcopy(value) for name, value in group.items() if name != "params"}
        for group in optimiser.param_groups
    ]


def check(optimisation: Optimisation, rounds: int) -> None:
    """Raise ValueError for an optimiser or a scheduler that cannot train `rounds`, by trying it.

    Plain SGD is not tried, because torch imports for a second when it makes its first optimiser.
    """
    if optimisation.plain and optimisation.schedule is None:
        _check_short(optimisation.options)
        return
    try:
        first = optimisation.make([_parameter()], 1)
        if not isinstance(first, Optimizer) or "lr" not in first.param_groups[0]:
            raise TypeError("it is no optimiser of torch with a learning rate lr")
        first.step()
        optimisation.at(max(2, rounds))  # some schedulers end after a number of steps
    except Exception as error:  # a user's class can raise anything
        raise ValueError(reason_of(error)) from error


def _check_short(options: Mapping[str, Any]) -> None:
    """Raise ValueError for an argument of SGD that is no number of at least 0."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"{name} is no number of at least 0: {value}")


def _parameter() -> nn.Parameter:
    """Return a matrix, because some optimisers, such as Muon, take nothing else."""
    made = nn.Parameter(torch.zeros(1, 1))
    made.grad = torch.zeros(1, 1)
    return made
