"""What a resumed run keeps of the run before: its clients' ids, and the form of its data."""

from pathlib import Path

from omegaconf import OmegaConf

from fl_app import former_form
from fl_app.command_words import override
from fl_app.config import Config, ConfigError, compose
from fl_app.data.natural import by_column, encoded
from fl_app.override_errors import NOT_COMPOSED
from fl_app.records import checkpoint
from fl_app.records.names import CHECKPOINTS
from fl_app.records.reading import read_names
from fl_app.strategies.state import check_models
from fl_app.wiring import initial_model, shared_population


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
    """Raise ConfigError for data or a network that the models of the run do not fit.

    Not for a run on another federation, whose data are not on this machine.
    """
    if config.engine.connection is not None:
        return
    try:
        form = shared_population(config).dataset.form()
        former_form.check(folder, config.population.path, form)
        check_models(checkpoint.shapes(folder / CHECKPOINTS), initial_model(config)[0].size)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
