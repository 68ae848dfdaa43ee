"""What cannot be combined with secure aggregation, since it needs single replies."""

from collections.abc import Mapping
from typing import Any

from fl_app.client.sketch_release import SketchRelease
from fl_app.masking.settings import SecAgg
from fl_app.masking.stages import FEWEST
from fl_app.rng import cohort_size
from fl_app.schema import EngineConfig, Target
from fl_app.strategies.from_sums import FromSums
from fl_app.wiring import masking, task

WITH = "with masking=secagg"
PRESETS = {
    "fl_app.strategies.ifca.Ifca": "secure_ifca",
    "fl_app.strategies.secure_flic.SecureFlic": "secure_flic",
}
"""The experiment whose settings suit a method under masks, by the path of the method."""


def masking_problems(values: Mapping[str, Any]) -> list[str]:
    """Return a problem for each setting that contradicts the masks of a run.

    `values` are the typed groups by name. Empty without masks, or if a group is wrong by itself.
    """
    names = ("masking", "strategy", "engine", "population", "privacy", "task")
    groups = [values[name] for name in names]
    if any(each is None for each in groups) or not values["masking"].sound:
        return []
    settings, method = masking(values["masking"]), values["strategy"].resolve()
    if not isinstance(settings, SecAgg):
        return _without_masks(values["strategy"]) if getattr(method, "needs_masks", False) else []
    found = _of_method(values["strategy"]) + _of_engine(values["engine"])
    if found and (preset := PRESETS.get(values["strategy"].path)):
        found[-1] += f"; experiment={preset} has all of these settings"
    found += _of_cohort(values["strategy"], values["population"], settings)
    found += _of_sketches(values["strategy"], settings, values["engine"])
    privacy = values["privacy"].resolve()
    if privacy.kind != "none":
        found.append(
            f"privacy must be none {WITH}, got {privacy.kind}: its budget needs the number of "
            "samples of each client; remove one of the two"
        )
    if values["task"].sound and not task(values["task"]).has_accuracy:
        found.append(
            f"task must have an accuracy {WITH}, got {values['task'].path}: the range of other "
            "metrics is not known before the sum; give task=classification"
        )
    return found


def _of_method(strategy: Target) -> list[str]:
    """Return the problems of a method that needs single replies, at all or by its settings."""
    kind = strategy.resolve()
    if not (isinstance(kind, type) and issubclass(kind, FromSums)):
        return [
            f"strategy must be ifca, fedavg or secure_flic {WITH}, got {strategy.path}: it needs "
            "the update of each client, and the server learns only sums; use one of them, derive "
            "your own from FromSums, or give masking=none"
        ]
    wanted = {**kind.sums_suffice, "fallback": (False, "auto")}
    return [
        f"strategy.{name} must be {' or '.join(map(str, allowed))} {WITH}, got "
        f"{strategy.options[name]}: it needs more than sums over clients; give "
        f"strategy.{name}={allowed[0]}"
        for name, allowed in wanted.items()
        if name in strategy.options and strategy.options[name] not in allowed
    ]


def _without_masks(strategy: Target) -> list[str]:
    return [
        f"masking must be secagg with {strategy.path}, got none: without masks the server sees "
        "every update, and noise in a sketch hides nothing; give masking=secagg, or strategy=flic"
    ]


def _of_sketches(strategy: Target, settings: SecAgg, engine: EngineConfig) -> list[str]:
    """Return the problems of a method that clusters sketches and sums inside of communities."""
    release, found = SketchRelease.of(strategy.options), list[str]()
    if release is None or not strategy.sound:
        return found
    if engine.name == "deployment" and release.randomness == "seed":
        found.append(
            "strategy.randomness must be system with engine=deployment, got seed: the server knows "
            "the seed and could remove the noise; give strategy.randomness=system"
        )
    smallest, share = strategy.options["smallest"], strategy.options["participation"]
    least = max(settings.smallest, FEWEST)
    sampled = cohort_size(share, smallest)
    if sampled < least:
        found.append(
            f"strategy.smallest must be so large that {least} clients or more of a community are "
            f"sampled {WITH}, got {smallest} with strategy.participation={share:g}, which is "
            f"{sampled}; raise one of them"
        )
    return found


def _of_engine(engine: EngineConfig) -> list[str]:
    """Return the problems of checks that need the update or the losses of one client."""
    found = [
        f"engine.{name} must be null {WITH}, got {value:g}: the server sees no update whose length "
        f"it could check; give engine.{name}=null and limit changes by masking.largest_change"
        for name, value in (
            ("largest_update", engine.largest_update),
            ("clip_update", engine.clip_update),
        )
        if value is not None
    ]
    if engine.place_newcomers:
        found.append(
            f"engine.place_newcomers must be false {WITH}, got true: a newcomer tells its losses; "
            "remove it"
        )
    return found


def _of_cohort(strategy: Target, population: Target, settings: SecAgg) -> list[str]:
    """Return a problem if fewer clients train in a round than a sum needs."""
    share, clients = strategy.options.get("participation"), population.options.get("clients")
    if not isinstance(share, float) or not isinstance(clients, int):
        return []
    sampled = cohort_size(share, clients)
    least = max(settings.smallest, FEWEST)
    if sampled >= least:
        return []
    why = WITH if least == FEWEST else f"with masking.smallest={least}"
    return [
        f"strategy.participation must sample {least} clients or more {why}, got {share:g} of "
        f"{clients}, which is {sampled}; raise it"
    ]
