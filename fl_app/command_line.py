"""Refuses words of the command line that no run could use, before Hydra reads them."""

import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from fl_app.schema import ConfigError

HYDRA_OPTIONS = (
    "--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun",
    "--shell-completion", "--config-path", "--config-name", "--config-dir",
    "--experimental-rerun", "--info",
)  # fmt: skip
"""The options of Hydra's command."""
FOLDERS = ("resume", "to")
"""Words of a command that name a folder as settings are given."""
SET = {
    "records.folder": "writes into hydra.run.dir; give that",
    "records.resume": "sets it with resume=<output folder>; give that",
    "records.restarts": "counts them, at most engine.restarts; give that",
    "records.started_by": "names the user of this process; remove it",
    "records.id": "draws it; remove it",
}
"""Settings that no user gives, and what to give instead."""


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise ConfigError for an empty word or value of the command itself.

    As a path it would be the current folder. A setting of a run can be empty.
    """
    wrong = []
    for before, word in zip(["", *arguments], arguments, strict=False):
        name, given, value = word.partition("=")
        if not word:
            wrong.append(before if before.startswith("--") and "=" not in before else "an argument")
        elif given and not value and (name.startswith("--") or name in FOLDERS):
            wrong.append(f"{name}=")
    if wrong:
        remedy = "give one; a variable of the shell may be unset"
        raise ConfigError([f"{each} must have a value, got ''; {remedy}" for each in wrong])


def refuse_words(arguments: Sequence[str], commands: Iterable[str]) -> None:
    """Raise ConfigError for words that are neither settings nor of `commands`."""
    wrong = [word for word in arguments if "=" not in word and not word.startswith("~")]
    rule = "must be a setting, as rounds=5, or begin with a command; see fl-app --help"
    if "=" in arguments:
        told = shlex.join(arguments)
        raise ConfigError([f"a setting must have no spaces around its =, as rounds=5; got {told}"])
    if wrong:
        close = get_close_matches(arguments[0], list(commands), 1)
        meant = f"; did you mean fl-app {close[0]}?" if close else ""
        raise ConfigError([f"arguments {rule}; got {' '.join(wrong)}{meant}"])


def refuse_settings(arguments: Sequence[str]) -> None:
    """Raise ConfigError for settings that the command itself gives a run."""
    given = {each.lstrip("+~").partition("=")[0] for each in arguments}
    if wrong := [
        f"{name} must be left to fl-app, which {does}"
        for name, does in SET.items()
        if name in given
    ]:
        raise ConfigError(wrong)


def refuse_sweep(arguments: Sequence[str]) -> None:
    """Raise ConfigError for a sweep of a run that is resumed."""
    if {"-m", "--multirun"} & {*arguments}:
        raise ConfigError(["resume continues one run; start a sweep without it"])


def refuse_options(arguments: Sequence[str]) -> None:
    """Raise ConfigError for an option that neither fl-app nor Hydra has."""
    words = [each.partition("=")[0] for each in arguments if each.startswith("--")]
    wrong = [each for each in words if each not in HYDRA_OPTIONS]
    if wrong:
        name = wrong[0].lstrip("-").replace("-", "_")
        raise ConfigError(
            [f"{wrong[0]} is no option; a setting is given without dashes, as {name}=<value>; see "
             "fl-app --help"]
        )  # fmt: skip
