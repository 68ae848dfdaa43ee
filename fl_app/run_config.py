"""The configuration of a run as text in Flower's run_config, which has only scalar values."""

import json
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from omegaconf import OmegaConf

from fl_app import own
from fl_app.composition import CONF, compose
from fl_app.config import Config, check, checked, load
from fl_app.override_errors import NOT_COMPOSED

_RESOLVER = re.compile(r"\$\{[^}]*:")
_UNRESOLVED = ("${", "???")
"""In the text of a tree that OmegaConf must resolve, or whose missing values it must name."""


def of_run(run_config: Mapping[str, object], *, on_client: bool = False) -> Config:
    """Return the configuration of Flower's run_config; on a client, see `load`."""
    composed = str(run_config.get("composed", ""))
    return load_text(str(run_config["overrides"]), composed, on_client=on_client)


@lru_cache(maxsize=32)
def load_text(overrides: str, composed: str = "", *, on_client: bool = False) -> Config:
    """Return the configuration of one shell-quoted string of overrides (cached).

    Flower's run_config has only scalar values, so the overrides are sent as one string. They are
    not composed if `composed` is what `carried` returned for them.
    """
    known = _received(overrides, composed)
    if known is None:
        return load(shlex.split(overrides), on_client=on_client)
    problems = own.problems(CONF)
    if any(sign in composed for sign in _UNRESOLVED):
        return check(OmegaConf.create(known), problems, on_client=on_client)
    return checked(known, problems, on_client=on_client)


def carried(overrides: str) -> str:
    """Return the composed tree of `overrides` as text for `load_text`, empty if it has none.

    Composing takes longer than many a round, and a deployment starts a process for each message.
    Interpolations stay as they are if a resolver is among them, because a client may have other
    environment variables. Otherwise the tree is resolved, and no client needs OmegaConf for it.
    """
    try:
        tree = OmegaConf.to_container(compose(shlex.split(overrides)))
        if not _RESOLVER.search(json.dumps(tree)):
            tree = OmegaConf.to_container(compose(shlex.split(overrides)), resolve=True)
        text = json.dumps({"overrides": overrides, "tree": tree})
    except (*NOT_COMPOSED, TypeError, ValueError):
        return ""  # the process that needs it says what is wrong
    return text if json.loads(text)["tree"] == tree else ""  # JSON has only texts as keys


def _received(overrides: str, composed: str) -> dict[str, Any] | None:
    """Return the tree that came with the overrides; None without one, or for others."""
    try:
        found = json.loads(composed)
        tree = found["tree"] if found["overrides"] == overrides else None
    except (ValueError, TypeError, KeyError):
        return None
    return tree if isinstance(tree, dict) else None
