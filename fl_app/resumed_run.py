"""What a resumed run keeps of the run before: its clients' ids, and the form of its data."""

import contextlib
from collections.abc import Mapping
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from fl_app import former_form
from fl_app.command_words import override
from fl_app.composition import compose
from fl_app.config import Config, ConfigError
from fl_app.data.clients import Population
from fl_app.data.natural import by_column, encoded
from fl_app.data.population import own
from fl_app.override_errors import NOT_COMPOSED, key_of
from fl_app.records import checkpoint, run_state
from fl_app.records.names import CHECKPOINTS
from fl_app.records.reading import read_config, read_names
from fl_app.schema import EngineConfig
from fl_app.server_wiring import strategy
from fl_app.strategies.state import check_models, check_saved
from fl_app.wiring import initial_model, shared_population

log = getLogger(__name__)
_COMPARED = 100
"""Clients whose samples are compared: where the number matters, it does for the first ones."""


def fitting(saved: list[str], changes: list[str]) -> list[str]:
    """Return the overrides of a run without those that only its former engine has a use for."""
    chosen = [each.partition("=")[2] for each in changes if key_of(each) == "engine"]
    idle = {
        f"engine.{name}"
        for name, when in EngineConfig.used_with.items()
        if chosen and when.setting == "name" and not when.holds(chosen[-1])
    }
    return [each for each in saved if key_of(each) not in idle]


def kept(folder: Path, overrides: list[str]) -> list[str]:
    """Return the overrides with which a resumed run keeps what it cannot find anew."""
    try:
        compose(overrides)
    except NOT_COMPOSED:
        return []  # load says what is wrong
    return [*_known_clients(folder, overrides), *_known_form(folder, overrides)]


def _known_clients(folder: Path, overrides: list[str]) -> list[str]:
    """Return the override with which the clients that data name keep their ids."""
    names = read_names(folder)
    if not names or any(each.startswith("population.names=") for each in overrides):
        return []
    people = OmegaConf.select(compose(overrides), "population._target_")
    if people != f"{by_column.__module__}.{by_column.__name__}":
        return []
    return [override("population.names", encoded(names))]


def _known_form(folder: Path, overrides: list[str]) -> list[str]:
    """Return the override with which the data keep their form, as scaling and categories."""
    found = former_form.settings(folder, compose(overrides))
    return [
        override(f"data.{name}", value) if isinstance(value, str) else f"data.{name}={value}"
        for name, value in found.items()
    ]


def check_fits(config: Config, folder: Path) -> None:
    """Raise ConfigError for data, a network, clients or a method that the run does not fit.

    Of a run on another federation, whose data are not on this machine, only for their settings.
    """
    try:
        former_form.check_settings(folder, config.data.options)
        if config.engine.connection is not None:
            return
        population = shared_population(config)
        former_form.check(folder, config.population.path, population.dataset.form())
        _check_split(config, folder, population)
        check_models(checkpoint.shapes(folder / CHECKPOINTS), initial_model(config)[0].size)
        if checkpoint.exists(folder / CHECKPOINTS):
            _check_state(config, folder)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def check_under_way(folder: Path) -> None:
    """Raise ConfigError for a run without a checkpoint, unless it is under way over gRPC.

    Such a run is only followed. To resume another one would replace what is known of its end.
    """
    state = run_state.read(folder)
    if state is not None and state.unfinished:
        return
    raise ConfigError([
        f"{folder / CHECKPOINTS} must have a checkpoint from which the run goes on, got none, as "
        "after a full disk; its results stay as they are, so start a new run in another folder"
    ])  # fmt: skip


def _check_state(config: Config, folder: Path) -> None:
    """Raise ValueError if the method cannot continue the state in the checkpoint."""
    try:
        check_saved(strategy(config).state, checkpoint.state(folder / CHECKPOINTS))
    except ValueError as error:
        former = _former(folder, "strategy").get("_target_")
        if former in (None, config.strategy.path):
            raise
        raise ValueError(
            f"strategy must be that of the run, {former}, whose state {config.strategy.path} "
            "cannot continue; resume without strategy=, or start a new run"
        ) from error


def clients_to_keep(folder: Path) -> int | None:
    """Return the clients of a run that split one data set, None if each has data of its own."""
    former = _former(folder, "population")
    alone = {f"{each.__module__}.{each.__name__}" for each in (by_column, own)}
    clients = former.get("clients")
    return clients if isinstance(clients, int) and former.get("_target_") not in alone else None


def _check_split(config: Config, folder: Path, after: Population) -> None:
    """Raise ConfigError if another number of clients changes what those of the run train on."""
    former = _former(folder, "population").get("clients")
    if not isinstance(former, int) or former == after.clients:
        return
    options = {**config.population.options, "clients": former}
    try:
        before = config.population.resolve()(after.dataset, seed=config.seed, **options)
    except ValueError:
        return  # the data no longer have so many clients
    known = range(min(former, after.clients, _COMPARED))
    told = [_changed(before.train[each], after.train[each], each, "training") for each in known]
    if lost := next(filter(None, told), None):
        raise ConfigError(
            [
                f"population.clients must stay {former} in this run, got {after.clients}: the "
                f"clients of the run would train on other samples ({lost}); resume without it, or "
                "start a new run, with population.train_samples and .test_samples that leave "
                "samples for more clients"
            ]
        )
    told = [_changed(before.test[each], after.test[each], each, "test") for each in known]
    if lost := next(filter(None, told), None):
        log.warning("with %d clients instead of %d, %s", after.clients, former, lost)


def _changed(had: np.ndarray, gets: np.ndarray, client: int, kind: str) -> str | None:
    """Return how many of its samples a client keeps, None if all and no others."""
    if np.array_equal(had, gets):
        return None
    kept = len(np.intersect1d(had, gets))
    return f"client {client} keeps {kept} of its {len(had)} {kind} samples"


def _former(folder: Path, group: str) -> Mapping[str, Any]:
    """Return the settings of a group of a run; empty if its configuration is damaged."""
    with contextlib.suppress(ValueError):
        found = read_config(folder).get(group)
        return found if isinstance(found, Mapping) else {}
    return {}
