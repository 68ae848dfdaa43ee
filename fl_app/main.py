"""The `fl-app` command: run, resume, report, compare, new, and use a finished run.

fl-app [settings]                 one run, or a sweep with --multirun
fl-app --config-dir <folder> ...  the same with options of your own
fl-app resume=<output folder>     continue a run from its last checkpoint
fl-app report <output folder>     write the report.html of a run, also while it continues
fl-app compare <folders>          compare runs: a page and tables
fl-app new <folder>               begin a project with data, network and method of your own
fl-app evaluate <output folder>   compute the scores of a finished run again
fl-app predict <output folder>    write what one of its models answers to raw samples
fl-app export <output folder>     write its models as ONNX and in other formats
fl-app assign <output folder>     find the community of a client that was never there
fl-app fine-tune <output folder>  train a model further on the data of one client
fl-app watch <folder, connection> show a run that is under way
fl-app audit <folder>             check the audit log of a run or a federation

A command with --help tells its options. Settings are name=value, as rounds=5.
"""

from fl_app.engines import signals

if __name__ == "__main__":
    signals.answer()  # before the imports, which take seconds

import logging
import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fl_app import command_line, folder_check, own
from fl_app.compatibility import problems
from fl_app.composition import CONF, reasons_of, settings_of_swept
from fl_app.config import ConfigError, load
from fl_app.one_run import resume, run
from fl_app.override_errors import NOT_COMPOSED, key_of
from fl_app.printed_errors import errors_printed
from fl_app.records.structured_logs import ONCE
from fl_app.schema import USAGE_ERROR
from fl_app.subcommands import COMMANDS

RESUME = "resume="
_failed: list[Path] = []
"""Folders of the runs of a sweep that failed."""
_refused: dict[str, tuple[str, ...]] = {}
"""Errors of the runs of a sweep that are not configured right, by their overrides."""
_begun: list[Path] = []
"""Folders of the runs of this command."""
_forced: set[str] = set()
"""Overrides that Hydra gets with ++, because only the options that a sweep chooses have them."""
_bugs: list[Exception] = []
"""Errors of runs that are not the user's."""
FULL_ERROR = "HYDRA_FULL_ERROR"
"""The variable by which Hydra raises errors; by a user, also for their tracebacks."""


def main() -> None:
    """Run the command line; the exit status is 0 only for a completed run."""
    with signals.answered():
        _main()


def _main() -> None:
    if logging.lastResort is not None:  # writes warnings to the terminal until a run has a log
        logging.lastResort.addFilter(ONCE)
    folders, arguments = own.taken_from(sys.argv[1:])
    sys.path.append(os.getcwd())  # where a user's modules are; installed ones come first
    for folder in folders:
        own.search(folder)
    with errors_printed():
        command_line.refuse_empty(arguments)
    if arguments and arguments[0] in COMMANDS:
        with errors_printed():
            COMMANDS[arguments[0]](arguments[1:])
        return
    with errors_printed():
        command_line.refuse_settings(arguments)
    if any(a.startswith(RESUME) for a in arguments):
        _resume(arguments)
    elif arguments == ["--version"]:
        print(f"fl-app {version('fl-app')}")
    else:
        _run_or_sweep(arguments)


def _resume(arguments: list[str]) -> None:
    """Continue the run in the folder that was named last."""
    folders = [a.removeprefix(RESUME) for a in arguments if a.startswith(RESUME)]
    folder = Path(folders[-1]).resolve()
    with errors_printed(folder):
        command_line.refuse_sweep(arguments)
        resume(folder, [a for a in arguments if RESUME not in a])


def _run_or_sweep(arguments: list[str]) -> None:
    """Do the runs of the settings, or what Hydra's options ask for."""
    with errors_printed():
        command_line.refuse_options(arguments)
    if {*arguments} & {"-h", "--help"}:
        print(__doc__)  # Hydra's help, which follows, knows settings alone
    if not any(argument.startswith("-") for argument in arguments):
        with errors_printed():
            command_line.refuse_words(arguments, COMMANDS)
            wrong = folder_check.named(arguments)
            # all at once, before Hydra stops at the first
            load(arguments, also=lambda values: [*problems(values), *wrong])
    for former in (_begun, _failed, _refused, _forced):
        former.clear()
    with _hydra_answers(arguments):
        _run_hydra(arguments)
    if {*arguments} & {"-m", "--multirun"} and not _begun:
        with errors_printed():
            raise ConfigError(["a sweep must have a run, got overrides without a value; give one"])
    _end_of_sweep()


def _run_hydra(arguments: list[str]) -> None:
    """Let Hydra compose and run; again if settings are unknown to it before the sweep chooses."""
    sys.argv[1:] = arranged(arguments)
    try:
        _hydra_main()
    except NOT_COMPOSED:
        _forced.update(settings_of_swept(arguments))
        if _begun or not _forced:
            raise
        sys.argv[1:] = arranged([f"++{a}" if a in _forced else a for a in arguments])
        _hydra_main()


def _end_of_sweep() -> None:
    """Name the runs of a sweep that did not complete, and exit with the status of the worst."""
    if _failed:
        print(f"failed: {', '.join(map(str, _failed))}", file=sys.stderr)
    for words in _refused:
        print(f"refused: {words}", file=sys.stderr)
    if _failed or _refused:
        sys.exit(1 if _failed else USAGE_ERROR)


@contextmanager
def _hydra_answers(arguments: list[str]) -> Iterator[None]:
    """Report what Hydra fails on as a configuration error; a bug in a run keeps its traceback.

    Hydra itself would print a part of the error and exit with 1, unless it is told to raise.
    """
    asked = FULL_ERROR in os.environ
    os.environ.setdefault(FULL_ERROR, "1")
    try:
        yield
    except Exception as error:
        if isinstance(error, BrokenPipeError) and error not in _bugs:
            _no_more_output()
        if asked or error in _bugs:
            raise
        with errors_printed():
            raise ConfigError(reasons_of(error, arguments)) from error
    finally:
        if not asked:
            del os.environ[FULL_ERROR]


def _no_more_output() -> NoReturn:
    """Exit after the reader of the output has closed it; Python must not flush into it either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def arranged(arguments: list[str]) -> list[str]:
    """Return the command line for Hydra, whose parser wants all settings beside each other."""
    settings = [a for a in arguments if a.startswith("~") or ("=" in a and not a.startswith("-"))]
    options = [a for a in arguments if a not in settings]
    return [*options, *own.overrides(), *settings]


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _hydra_main(composed: DictConfig) -> tuple[str, ...]:
    """Do one run, and return the configuration errors for which it was refused in a sweep."""
    runtime = HydraConfig.get()
    folder, overrides = Path(runtime.runtime.output_dir), _as_typed(runtime.overrides.task)
    if runtime.mode is RunMode.MULTIRUN:
        print(f"run {runtime.job.num + 1} of the sweep: {shlex.join(overrides)}", flush=True)
    taken = folder in _begun
    _begun.append(folder)
    try:
        with errors_printed(folder), _refusals(shlex.join(overrides), folder):
            _refuse_taken(folder, taken=taken)
            run(overrides, folder)
    except Exception as error:
        _bugs.append(error)
        raise
    except SystemExit as end:
        if runtime.mode is not RunMode.MULTIRUN or end.code not in (1, USAGE_ERROR):
            raise
        if end.code == 1:
            _failed.append(folder)  # a failed run must not stop the other runs of a sweep
    return _refused.get(shlex.join(overrides), ())


def _refuse_taken(folder: Path, *, taken: bool) -> None:
    """Raise ConfigError for a run that would replace an earlier one of its sweep."""
    if taken:
        raise ConfigError([
            f"hydra.sweep.subdir must give each run of a sweep a folder of its own, got {folder} "
            "for several; name in it all that is swept, or remove it"
        ])  # fmt: skip


def _as_typed(overrides: Iterable[str]) -> list[str]:
    """Return the overrides of a run without the ++ that Hydra alone needs."""
    forced = {each.partition("=")[0] for each in _forced}
    return [a.lstrip("+") if key_of(a) in forced else a for a in overrides]


@contextmanager
def _refusals(words: str, folder: Path) -> Iterator[None]:
    """Note the configuration errors of a run, and remove the empty folder that Hydra made.

    Errors that an earlier run of the sweep had too are not printed again.
    """
    try:
        yield
    except ConfigError as error:
        told = error.problems in _refused.values()
        _refused[words] = error.problems
        with suppress(OSError):  # it has files of an earlier run
            folder.rmdir()
        if told:
            sys.exit(USAGE_ERROR)
        raise


if __name__ == "__main__":
    main()
