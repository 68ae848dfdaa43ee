"""Checks whether a noise leaves clients a budget for a round, and losses that are of use."""

from collections.abc import Mapping
from typing import Any

from fl_app.client import held_out
from fl_app.client.privacy import Budgeted
from fl_app.client.privacy_base import USELESS
from fl_app.client.training_plan import TrainingPlan
from fl_app.data.datasets import Dataset
from fl_app.data.population import Population, own
from fl_app.schema import Target
from fl_app.strategies.abilities import asks_losses
from fl_app.wiring import privacy_of, training_plan

Uses = Mapping[tuple[str, str], float]
"""Deviations of the noise on a loss, by what uses it and what it decides."""


def check_budget(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a privacy of samples with a noise that costs too much in one round.

    With `budget=round` each client must afford it. With `budget=run` half of them must, since the
    others only do not train. The client itself compares the noise of a whole update, whose cost
    depends on no data.
    """
    guard, method = _guard(values), values["strategy"]
    if guard is None or not guard.of_samples:
        return
    if guard.noise_multiplier is None or guard.epsilon is None:
        return
    if values["population"].resolve() is own:  # nobody here knows the samples of a node
        _check_unknown(guard)
        return
    counts = _samples(values, data)
    samples = counts[0] if guard.budget == "round" else _middle(counts)
    plan = _plan(values, samples, losses=asks_losses(method.resolve(), method.options))
    guard.check_cost(guard.round_cost(plan), f" of a client with {samples} samples")


def check_losses(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a method whose clients tell losses that noise would hide."""
    guard, method = _guard(values), values["strategy"]
    if guard is None or not asks_losses(method.resolve(), method.options):
        return
    plan = _plan(values, _middle(_samples(values, data)), losses=True)
    for (use, what), deviation in _deviations(guard, method, plan).items():
        if deviation > USELESS * guard.loss_bound:
            raise ValueError(
                f"privacy={guard.kind} must leave the losses of use by which {use}, got noise of "
                f"deviation {deviation:.3g} on losses of at most privacy.loss_bound="
                f"{guard.loss_bound:g}, so that {what} would be drawn by lot; give "
                f"{'a' if guard.of_samples else 'privacy=sample_dp, a'} larger privacy.epsilon or "
                "privacy.loss_share, fewer rounds, clients with more samples, another strategy, or "
                "no strategy.fallback"
            )


def _guard(values: Mapping[str, Any]) -> Budgeted | None:
    """Return the privacy of a run, None without a budget or if a group is wrong by itself."""
    given, client, method = values["privacy"], values["client"], values["strategy"]
    if any(each is None or not each.sound for each in (given, method)) or client is None:
        return None
    guard = privacy_of(given)
    return guard if isinstance(guard, Budgeted) and values["rounds"] else None


def _samples(values: Mapping[str, Any], data: Dataset) -> list[int]:
    """Return the numbers of samples of the clients, in ascending order."""
    people = values["population"]
    built: Population = people.resolve()(data, seed=values["seed"], **people.options)
    return sorted(built.samples(each) for each in range(built.clients))


def _middle(counts: list[int]) -> int:
    """Return the lower median."""
    return counts[(len(counts) - 1) // 2]


def _plan(values: Mapping[str, Any], samples: int, *, losses: bool) -> TrainingPlan:
    """Return the plan of the run for a client with so many samples, at least one."""
    rounds, method, people = values["rounds"], values["strategy"], values["population"]
    return training_plan(rounds, method, people, values["client"], max(1, samples), losses=losses)


def _check_unknown(guard: Budgeted) -> None:
    if guard.budget == "round":
        raise ValueError(
            "privacy.noise_multiplier must be null with privacy.budget=round and population=own, "
            f"whose samples decide what a round costs, got {guard.noise_multiplier:g} with "
            f"privacy.epsilon={guard.epsilon:g}; remove it, or give privacy.epsilon=null"
        )


def _deviations(guard: Budgeted, method: Target, plan: TrainingPlan) -> Uses:
    found, options = {}, dict(method.options)
    if options.get("fallback") is True:
        out = held_out.count(plan.samples)
        found["strategy.fallback judges a split", "verdicts"] = guard.trial_deviation(plan, out)
    if asks_losses(method.resolve(), options | {"fallback": False}):
        each = guard.loss_deviation(plan, int(options.get("communities") or 1), plan.samples)
        found[f"clients of {method.path} compare models", "choices"] = each
    return found
