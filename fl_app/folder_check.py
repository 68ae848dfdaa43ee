"""Checks the folders of a run or sweep before Hydra makes them, and those that a command names.

Also the measures for the table of a sweep, which is written after hours.
"""

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
from fl_app.report.compare.measures import MEASURES, METRIC
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
        """Check the folder of a sweep, that of the further file for its table, and its measures."""
        table = config.hydra.callbacks.get("table")
        page = table.page if table else None
        with suppress(OmegaConfBaseException):
            _require(
                [Path(config.hydra.sweep.dir), *([Path(page).parent] if page else [])],
                _unmeasured(table.measures or ()) if table else [],
            )


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


def _unmeasured(names: Sequence[str]) -> list[str]:
    """Return a problem for each name that is no measure; those of metrics only a run knows."""
    rule = f"must be of {', '.join(MEASURES)}, or {METRIC}<name of a metric>"
    return [
        f"hydra.callbacks.table.measures {rule}, got {name}; correct or remove it"
        for name in names
        if name not in MEASURES and not name.startswith(METRIC)
    ]


def _require(folders: Sequence[Path], wrong: Sequence[str] = ()) -> None:
    faults = [fault for folder in folders if (fault := output_folder.problem(folder))]
    if faults := [*faults, *wrong]:
        print(ConfigError(faults), file=sys.stderr)
        sys.exit(USAGE_ERROR)
