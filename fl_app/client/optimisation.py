"""The optimiser of a client by its name in torch.optim, with a learning rate for each round."""

import threading
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

SHORT = frozenset({"lr", "momentum", "weight_decay"})
"""Arguments of SGD that the settings of the group `client` have too."""
Build = Callable[..., Any]


@dataclass(eq=False)
class Optimisation:
    """Builds an optimiser for one client in one round; it keeps no state between rounds.

    `options` are the arguments of `build`, an optimiser of torch. `schedule` builds a scheduler of
    torch from an optimiser, which steps once a round; None: the learning rate is constant.
    """

    build: Build
    options: Mapping[str, Any]
    schedule: Callable[[Optimizer], Any] | None = None
    _rounds: list[Mapping[str, Any]] = field(default_factory=list)
    _source: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def plain(self) -> bool:
        """Whether it is SGD with nothing but SHORT, which a fused cohort and DP-SGD have too."""
        return self.build is torch.optim.SGD and set(self.options) <= SHORT

    def at(self, server_round: int) -> Mapping[str, Any]:
        """Return the arguments in a round, the first of which is 1."""
        if self.schedule is None:
            return self.options
        with self._lock:
            while len(self._rounds) < server_round:
                self._rounds.append(self._next())
            return self._rounds[server_round - 1]

    def make(self, parameters: Sequence[nn.Parameter], server_round: int) -> Optimizer:
        """Return the optimiser of these parameters for a round."""
        made: Optimizer = self.build(list(parameters), **self.at(server_round))
        return made

    def _next(self) -> Mapping[str, Any]:
        """Return the arguments of the next round, as the scheduler leaves them in the optimiser."""
        assert self.schedule is not None
        if self._source is None:
            optimiser = self.build([_parameter()], **self.options)
            arguments = signature(self.build).parameters
            first = {k: deepcopy(v) for k, v in optimiser.param_groups[0].items() if k in arguments}
            self._source = optimiser, self.schedule(optimiser), first
        else:
            self._source[0].step()  # else torch warns that the scheduler steps first
            self._source[1].step()
        optimiser, _, first = self._source
        now = {name: optimiser.param_groups[0][name] for name in first}
        return {**self.options, **{k: v for k, v in now.items() if v != first[k] or k == "lr"}}


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
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(told) from error


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
