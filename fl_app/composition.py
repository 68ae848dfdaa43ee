"""Composes Hydra overrides to a tree of settings, and tells which overrides are wrong."""

import logging
import threading
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from fl_app import own
from fl_app.override_errors import NOT_COMPOSED, first_line, hydra_reasons, judged, only_swept

_PACKAGE = Path(__file__).resolve().parent
CONF = next((p for p in (_PACKAGE / "conf", _PACKAGE.parent / "conf") if p.is_dir()), _PACKAGE)
"""The Hydra tree: in an installed package, or next to it in a checkout and Flower's bundle."""

own.use(CONF.parent / own.PROJECT)  # what travels with Flower's bundle

_compose_lock = threading.Lock()
logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # the errors here have the same text
_FAILS = (ValueError, TypeError, OSError, RecursionError, AttributeError, AssertionError)
"""So Hydra fails for a number as a group, nested braces, a very long name, or nulls of its own."""


def choices(group: str) -> list[str]:
    """Return the names of the options of a group, such as `strategy`."""
    files = (path for folder in (CONF, *own.searched) for path in (folder / group).glob("*.yaml"))
    return sorted({path.stem for path in files})


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return the Hydra tree of these overrides, which must not be changed (cached).

    It is composed with a lock because Hydra has global state. Raises HydraException or
    OmegaConfBaseException for overrides that cannot be composed.
    """
    with _compose_lock:
        return _composed((*own.overrides(), *overrides), own.versions())


@lru_cache(maxsize=32)
def _composed(overrides: tuple[str, ...], versions: tuple[object, ...]) -> DictConfig:
    """Return the tree of these overrides; `versions` change with the files of the user."""
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            composed = hydra.compose("config", overrides=[*overrides])
    except NOT_COMPOSED:
        raise
    except yaml.YAMLError as error:
        raise HydraException(_unread(error)) from error
    except _FAILS as error:
        raise HydraException(first_line(error)) from error
    OmegaConf.set_readonly(composed, True)
    return composed


def _unread(error: yaml.YAMLError) -> str:
    """Return where and why a file with options is no YAML."""
    mark, why = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None:
        return f"a file with options must be YAML: {first_line(error)}"
    return f"{mark.name} must be YAML, got {why} in line {mark.line + 1}; correct it"


def compose_sound(overrides: tuple[str, ...]) -> tuple[DictConfig | None, list[str]]:
    """Compose without the wrong overrides, so that one wrong override does not hide others."""
    try:
        return compose(overrides), []
    except NOT_COMPOSED as error:
        try:
            sound, found = judged(overrides, compose, _choices_of)
            composed = compose(sound) if found else None
        except NOT_COMPOSED as left:  # the sound ones are not in their order, or none is
            return None, [first_line(left)]
        return composed, found or [first_line(error)]


def reasons_of(error: Exception, words: Sequence[str]) -> list[str]:
    """Return why Hydra fails on the words of a command line."""
    return hydra_reasons(error, words, compose, _choices_of)


def settings_of_swept(words: Sequence[str]) -> set[str]:
    """Return the overrides of a sweep that fit its runs, and not the default configuration."""
    return only_swept(words, compose, _choices_of)


def _choices_of(key: str) -> list[str]:
    return choices(key) if key in _groups() else []


@cache
def _groups() -> set[str]:
    return {path.parent.relative_to(CONF).as_posix() for path in CONF.glob("*/**/*.yaml")}
