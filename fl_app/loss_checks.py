"""Checks whether losses that clients tell under a privacy are of use beneath their noise."""

from collections.abc import Mapping
from typing import Any

from fl_app.client import held_out
from fl_app.client.privacy import Budgeted
from fl_app.client.privacy_base import USELESS
from fl_app.client.training_plan import TrainingPlan
from fl_app.data.datasets import Dataset
from fl_app.data.population import Population
from fl_app.schema import Target
from fl_app.strategies.abilities import asks_losses
from fl_app.wiring import privacy_of, training_plan

Uses = Mapping[tuple[str, str], float]
"""Deviations of the noise on a loss, by what uses it and what it decides."""


def check_losses(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a method whose clients tell losses that noise would hide."""
    given, client, method = values["privacy"], values["client"], values["strategy"]
    if any(each is None or not each.sound for each in (given, method)) or client is None:
        return
    guard, rounds = privacy_of(given), values["rounds"]
    if not isinstance(guard, Budgeted) or not asks_losses(method.resolve(), method.options):
        return
    if not rounds:
        return
    samples = _usual_samples(values, data)
    plan = training_plan(rounds, method, values["population"], client, samples, losses=True)
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


def _deviations(guard: Budgeted, method: Target, plan: TrainingPlan) -> Uses:
    found, options = {}, dict(method.options)
    if options.get("fallback") is True:
        out = held_out.count(plan.samples)
        found["strategy.fallback judges a split", "verdicts"] = guard.trial_deviation(plan, out)
    if asks_losses(method.resolve(), options | {"fallback": False}):
        each = guard.loss_deviation(plan, int(options.get("communities") or 1), plan.samples)
        found[f"clients of {method.path} compare models", "choices"] = each
    return found


def _usual_samples(values: Mapping[str, Any], data: Dataset) -> int:
    """Return the lower median of the clients' samples."""
    people = values["population"]
    built: Population = people.resolve()(data, seed=values["seed"], **people.options)
    counts = sorted(built.samples(client) for client in range(built.clients))
    return max(1, counts[(len(counts) - 1) // 2])
