"""Checks the folders of a run or sweep before Hydra makes them, and those that a command names."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from fl_app.records import output_folder
from fl_app.schema import USAGE_ERROR, ConfigError

RUN = "hydra.run.dir="


class CheckFolders(Callback):
    """Hydra callback that ends the command where Hydra could not make the folder of its results.

    It exits by itself: Hydra turns the exceptions of a callback into warnings.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the output folder of a run."""
        with suppress(OmegaConfBaseException):  # Hydra reads it next, and says what is wrong
            _require([Path(config.hydra.run.dir)])

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the folder of a sweep, and that of the further file for its table."""
        page = config.hydra.callbacks.table.page if "table" in config.hydra.callbacks else None
        with suppress(OmegaConfBaseException):
            _require([Path(config.hydra.sweep.dir), *([Path(page).parent] if page else [])])


def named(arguments: Sequence[str]) -> list[str]:
    """Return what is wrong with the output folder that overrides name without interpolation."""
    given = [argument for argument in arguments if argument.startswith(RUN)]
    if not given or "${" in given[-1]:
        return []
    try:
        folder = OverridesParser.create().parse_override(given[-1]).value()
    except HydraException:  # load says what is wrong with it
        return []
    fault = output_folder.problem(Path(str(folder))) if isinstance(folder, str) else None
    return [fault] if fault else []


def _require(folders: Sequence[Path]) -> None:
    if faults := [fault for folder in folders if (fault := output_folder.problem(folder))]:
        print(ConfigError(faults), file=sys.stderr)
        sys.exit(USAGE_ERROR)
