"""The settings of the options of conf: those that do not count as given."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fl_app.schema import TARGETS, Target

PLAIN = ("client", "graph", "metrics")
"""Groups with fixed settings that have one option, `default`."""
PARTS = {"optimizer": "sgd", "scheduler": "none", "transform": "none"}
"""The options of the parts of the group `client` that do not count as given."""
TARGET, BASES = "_target_", "defaults"


def usual_settings(values: Mapping[str, Any], conf: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the default settings of each typed group, for the option that is chosen."""
    found: dict[str, Mapping[str, Any]] = {name: _option(conf, name, "default") for name in PLAIN}
    parts = {part: _option(conf, f"client/{part}", name) for part, name in PARTS.items()}
    found["client"] = {**found["client"], **parts}
    found["dynamics"] = _option(conf, "population/dynamics", "none")
    if (engine := values["engine"]) is not None:
        found["engine"] = _option(conf, "engine", engine.name)
    chosen = {
        name: _of_target(conf, name, group.path)
        for name in TARGETS
        if isinstance(group := values[name], Target)
    }
    return {"strategy": {}} | found | chosen


@cache
def _of_target(conf: Path, group: str, path: str) -> Mapping[str, Any]:
    """Return the settings of the option with this target, none for a user's own target.

    Of several, it is the one that is based on fewest others.
    """
    names = [file.stem for file in sorted((conf / group).glob("*.yaml"))]
    options = [each for name in names if (each := _option(conf, group, name))[TARGET] == path]
    return min(options, key=lambda option: len(option[BASES]), default={})


@cache
def _option(conf: Path, group: str, name: str) -> Mapping[str, Any]:
    """Return the settings of an option, with those of its BASES."""
    tree = OmegaConf.to_container(OmegaConf.load(conf / group / f"{name}.yaml"))
    assert isinstance(tree, dict)
    bases = [each for each in tree.pop("defaults", []) if each != "_self_"]
    settings: dict[str, Any] = {TARGET: None}
    for base in bases:
        settings |= _option(conf, group, base)
    return settings | {str(key): value for key, value in tree.items()} | {BASES: bases}
