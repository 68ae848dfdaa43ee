"""Checks whether a given noise leaves clients a budget for a round."""

from collections.abc import Mapping
from typing import Any

from fl_app.client.privacy import Budgeted
from fl_app.data.datasets import Dataset
from fl_app.data.population import Population, own
from fl_app.strategies.abilities import asks_losses
from fl_app.wiring import privacy_of, training_plan


def check_budget(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a privacy of samples with a noise that costs too much in one round.

    With `budget=round` each client must afford it. With `budget=run` half of them must, since the
    others only do not train. The client itself compares the noise of a whole update, whose cost
    depends on no data.
    """
    given, client, method = values["privacy"], values["client"], values["strategy"]
    if any(each is None or not each.sound for each in (given, method)) or client is None:
        return
    guard, people, rounds = privacy_of(given), values["population"], values["rounds"]
    if not (isinstance(guard, Budgeted) and guard.of_samples and rounds):
        return
    if guard.noise_multiplier is None or guard.epsilon is None:
        return
    if people.resolve() is own:  # nobody here knows the samples of a node
        _check_unknown(guard)
        return
    built: Population = people.resolve()(data, seed=values["seed"], **people.options)
    counts = sorted(built.samples(each) for each in range(built.clients))
    samples = counts[0] if guard.budget == "round" else counts[(len(counts) - 1) // 2]
    losses = asks_losses(method.resolve(), method.options)
    plan = training_plan(rounds, method, people, client, max(1, samples), losses=losses)
    guard.check_cost(guard.round_cost(plan), f" of a client with {samples} samples")


def _check_unknown(guard: Budgeted) -> None:
    if guard.budget == "round":
        raise ValueError(
            "privacy.noise_multiplier must be null with privacy.budget=round and population=own, "
            f"whose samples decide what a round costs, got {guard.noise_multiplier:g} with "
            f"privacy.epsilon={guard.epsilon:g}; remove it, or give privacy.epsilon=null"
        )
