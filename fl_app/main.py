"""The `fl-app` command: run, resume, sweep, report, compare, new, and use a finished run.

fl-app [hydra overrides]        one run, or a sweep with --multirun
fl-app --config-dir <folder> …  the same with options of your own
fl-app resume=<output folder>   continue a run from its last checkpoint
fl-app report <output folder>   write the report.html of a run, also while it continues
fl-app compare <folders>        compare runs: a page and tables
fl-app new <folder>             begin a project with data, network and method of your own
fl-app evaluate <output folder> compute the scores of a finished run again
fl-app predict <output folder>  write what one of its models answers to raw samples
fl-app export <output folder>   write its models as ONNX and in other formats
fl-app assign <output folder>   find the community of a client that was never there
fl-app fine-tune <output folder> train a model further on the data of one client
fl-app watch <output folder>    show a run that is under way
fl-app audit <folder>           check the audit log of a run or a federation
"""

from fl_app.engines import signals

if __name__ == "__main__":
    signals.answer()  # before the imports, which take seconds

import contextlib
import json
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from fl_app import oversight, own
from fl_app.client.local_state import CLIENTS
from fl_app.compatibility import problems
from fl_app.config import CONF, Config, ConfigError, load
from fl_app.engines import processes, stop_request
from fl_app.launch import RunFailedError, launch
from fl_app.progress import show_result
from fl_app.records import checkpoint, run_state, structured_logs
from fl_app.records.atomic import replacing
from fl_app.records.audit import actor
from fl_app.records.history import read_rounds
from fl_app.records.names import OVERRIDES, ROUNDS, SUMMARY
from fl_app.records.newcomers import FILE as NEWCOMERS
from fl_app.records.recorder import CHECKPOINTS, RESUMED
from fl_app.records.results import summarise
from fl_app.records.summary import read_summary, write_summary
from fl_app.server_wiring import identity
from fl_app.strategies.replies import TooFewRepliesError
from fl_app.use import commands as use

log = logging.getLogger(__name__)
PAGE_S = 300.0
"""Time limit for the page of a run."""
USAGE_ERROR = 2
_failed: list[Path] = []
"""Folders of the runs of a sweep that failed."""


def main() -> None:
    """Run the command line; the exit status is 0 only for a completed run."""
    with signals.answered():
        _main()


def _main() -> None:
    folders, arguments = own.taken_from(sys.argv[1:])
    sys.path.append(os.getcwd())  # where a user's modules are; installed ones come first
    for folder in folders:
        own.search(folder)
    if arguments and arguments[0] in COMMANDS:
        with _errors_printed():
            COMMANDS[arguments[0]](arguments[1:])
        return
    resumed = [a.removeprefix("resume=") for a in arguments if a.startswith("resume=")]
    if resumed:
        with _errors_printed():
            _resume(Path(resumed[-1]).resolve(), [a for a in arguments if "resume=" not in a])
        return
    if not any(argument.startswith("-") for argument in arguments):
        with _errors_printed():
            load(arguments, also=problems)  # all at once, before Hydra stops at the first
    sys.argv[1:] = [*own.overrides(), *arguments]
    _hydra_main()
    if _failed:
        print(f"failed: {', '.join(map(str, _failed))}", file=sys.stderr)
        sys.exit(1)


@contextmanager
def _errors_printed() -> Iterator[None]:
    """Print a user's errors as a sentence and set the exit status; bugs keep their traceback."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    try:
        yield
    except ConfigError as error:
        console.print(str(error))
        sys.exit(USAGE_ERROR)
    except (RunFailedError, TimeoutError, TooFewRepliesError, ValueError) as error:
        console.print(f"the run failed: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("interrupted; continue with fl-app resume=<output folder>")
        sys.exit(signals.INTERRUPTED)


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _hydra_main(composed: DictConfig) -> None:
    runtime = HydraConfig.get()
    folder = Path(runtime.runtime.output_dir)
    try:
        with _errors_printed():
            run(list(runtime.overrides.task), folder)
    except SystemExit as end:
        if runtime.mode is not RunMode.MULTIRUN or end.code != 1:
            raise
        _failed.append(folder)  # a failed run must not stop the other runs of a sweep


def _resume(folder: Path, changes: list[str]) -> None:
    """Continue a stopped run; `changes` are overrides that replace earlier ones.

    A run that was stopped before its first round and has no checkpoint starts from the beginning.
    """
    saved = folder / OVERRIDES
    if not saved.exists():
        raise ConfigError(
            [f"resume must be the output folder of a run, got {folder}; it must have {OVERRIDES}"]
        )
    own.use(folder / own.PROJECT)
    made = checkpoint.exists(folder / CHECKPOINTS)
    played = (folder / ROUNDS).exists() and (folder / ROUNDS).stat().st_size > 0
    run([*yaml.safe_load(saved.read_text()), *changes], folder, resume=made or played)


def _report(arguments: list[str]) -> None:
    """Write the page of each given run, completed or not."""
    from fl_app.report.page import write_page

    if not arguments:
        raise ConfigError(["report needs the output folder of a run, as in fl-app report <folder>"])
    with _as_settings():
        for folder in arguments:
            print(write_page(Path(folder)))


def _compare(arguments: list[str]) -> None:
    """Write the page and the tables of the runs in the given folders."""
    from fl_app.report.compare.page import compare

    with _as_settings():
        compare(arguments)


def _new(arguments: list[str]) -> None:
    """Write a project of the user's own into the given folder."""
    from fl_app import new

    if len(arguments) != 1:
        raise ConfigError(["new needs one folder, as in fl-app new <folder>"])
    folder = Path(arguments[0]).resolve()
    if fault := new.problem(folder):
        raise ConfigError([fault])
    for file in new.write(folder):
        print(Path(arguments[0]) / file)
    print(f"\ncd {arguments[0]}")
    print(f"fl-app --config-dir conf experiment={new.package_of(folder)}")


@contextmanager
def _as_settings() -> Iterator[None]:
    """Report folders that cannot be read as configuration errors."""
    try:
        yield
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def _use(command: str, arguments: list[str]) -> None:
    """Run a command on a finished run."""
    with _as_settings():
        use.COMMANDS[command](arguments)


COMMANDS = {"report": _report, "compare": _compare, "new": _new}
COMMANDS |= {name: partial(_use, name) for name in use.COMMANDS}
COMMANDS |= oversight.COMMANDS
"""Commands of the first argument; without one, a run starts."""


def run(overrides: list[str], folder: Path, *, resume: bool = False) -> None:
    """Run one configuration on its engine and show the result; exits with 1 if it failed."""
    console = Console()
    where = [override("records.folder", str(folder)), f"records.resume={str(resume).lower()}"]
    where.append(override("records.started_by", f"{actor()}@{socket.gethostname()}"))
    with _not_begun(folder):  # a wrong configuration must not leave a folder
        config = load([*overrides, *where], also=problems)
    with _concluded(config, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _log_to(folder / "run.log", config.logging.format)
        for file in (SUMMARY, RESUMED):  # from before the resume
            (folder / file).unlink(missing_ok=True)
        if not resume:
            shutil.rmtree(folder / CLIENTS, ignore_errors=True)
            (folder / NEWCOMERS).unlink(missing_ok=True)
        stop_request.withdraw(folder)
        with replacing(folder / OVERRIDES) as temporary:
            temporary.write_text(yaml.safe_dump(overrides))
        own.keep(config.resolved, folder / own.PROJECT)
        root = config.data.options.get("root")
        if root is not None:
            where.append(override("data.root", str(Path(root).expanduser().resolve())))
        if config.pretrained.weights is not None:  # engines work in other folders
            weights = str(Path(config.pretrained.weights).expanduser().resolve())
            where.append(override("network.weights", weights))
        launch(config, shlex.join([*overrides, *where]), folder, console)
    show_result_of(folder, console)


@contextmanager
def _not_begun(folder: Path) -> Iterator[None]:
    """Remove the empty folder, which Hydra creates, if the run is interrupted in the block."""

    def remove() -> None:
        with contextlib.suppress(OSError):  # it does not exist, or is not empty
            folder.rmdir()

    with signals.of_run(ask=remove, last=remove):
        yield


@contextmanager
def _concluded(config: Config, folder: Path) -> Iterator[None]:
    """Write the page of a run at the end of the block, and the summary if it is missing."""
    ask, last = partial(stop_request.ask, folder), partial(_end_at_once, config, folder)
    with signals.of_run(ask=ask, last=last):
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt) or signals.asked()
            if interrupted:
                processes.kill_all()
                stop_request.withdraw(folder)
            with _tried("the summary"):
                _summarise_for_the_dead(config, folder, interrupted=interrupted)
            raise
        finally:
            if config.records.report:
                _write_page(folder)


@contextmanager
def _tried(what: str) -> Iterator[None]:
    """Log that something could not be written, such as on a full disk."""
    try:
        yield
    except OSError as error:
        log.error("%s could not be written: %s", what, error)


def _end_at_once(config: Config, folder: Path) -> None:
    """Kill all processes of this run; data that the loop has not written are lost."""
    processes.kill_all()
    run_state.finish(folder)  # stopped on purpose
    _summarise_for_the_dead(config, folder, interrupted=True)


def _write_page(folder: Path) -> None:
    from fl_app.report.page import write_page

    rounds = folder / ROUNDS
    if not rounds.exists() or (signals.asked() and not rounds.stat().st_size):
        return  # the run has no rounds
    try:
        if not signals.patiently(partial(write_page, folder), PAGE_S, hurried=signals.asked):
            log.warning("the report took too long; write it with fl-app report %s", folder)
    except Exception:  # a failed page must not affect the results
        log.exception("the report could not be written")


def _log_to(file: Path, form: str) -> None:
    """Log warnings to the terminal, and all messages of fl-app and Flower to the run's log."""
    terminal, whole = logging.StreamHandler(), logging.FileHandler(file)
    terminal.setLevel(logging.WARNING)
    whole.setFormatter(logging.Formatter(structured_logs.TEXT))
    if form == "json":
        for handler in (terminal, whole):
            handler.setFormatter(structured_logs.JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[terminal, whole], force=True)
    logging.raiseExceptions = False  # no traceback for each line that a full disk does not take
    logging.getLogger("fl_app").setLevel(logging.INFO)
    flower = logging.getLogger("flwr")
    flower.handlers.clear()  # they write to the terminal too, and messages would appear twice
    flower.propagate = True


def override(key: str, value: str) -> str:
    """Return a Hydra override for the literal `value`, with special characters escaped."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{escaped}'"


def _summarise_for_the_dead(config: Config, folder: Path, *, interrupted: bool) -> None:
    """Write the summary if a ServerApp in another process ended before it could."""
    begun, summary = (folder / ROUNDS).exists(), read_summary(folder)
    if summary is not None and interrupted and summary["status"] == "failed":
        write_summary(folder, summary | {"status": "interrupted"})  # stopped, not failed
    if summary is not None or not (begun or (interrupted and folder.exists())):
        return
    summarise(
        folder,
        "interrupted" if interrupted else "failed",
        identity=identity(config),
        rounds=read_rounds(folder) if begun else [],
        clients=config.population.options["clients"],
        assignment={},
    )


def show_result_of(folder: Path, console: Console) -> None:
    """Print the table of a finished run; exits with 1 if it did not complete."""
    show_result(folder, console)
    status = json.loads((folder / SUMMARY).read_text())["status"]
    if status != "completed":
        sys.exit(1)


if __name__ == "__main__":
    main()
