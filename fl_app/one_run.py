"""One run in its output folder: what is written before, during and after its rounds."""

import contextlib
import json
import logging
import secrets
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from fl_app import former_run, own, resumed_run, terminal
from fl_app.command_words import override
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load
from fl_app.engines import federation_lock, node_ids, ports, processes, signals, stop_request
from fl_app.launch import federation_folder, here, launch
from fl_app.progress import show_result
from fl_app.records import checkpoint, output_folder, run_state, structured_logs
from fl_app.records.atomic import replacing
from fl_app.records.audit import actor
from fl_app.records.history import read_rounds
from fl_app.records.names import CHECKPOINTS, CONFIG, OVERRIDES, RESUMED, ROUNDS, SUMMARY
from fl_app.records.reading import read_config, read_overrides
from fl_app.records.results import summarise
from fl_app.records.summary import read_summary, write_summary
from fl_app.server_wiring import check_strategy, identity

log = logging.getLogger(__name__)
PAGE_S = 300.0
"""Time limit for the page of a run."""


def run(overrides: list[str], folder: Path, *, resume: bool = False, begun: bool = False) -> None:
    """Run one configuration on its engine and show the result; exits with 1 if it failed.

    `begun`: it starts again from its beginning, and what its clients have released stays spent.
    """
    console = terminal.console()
    where = [override("records.folder", str(folder)), f"records.resume={str(resume).lower()}"]
    where.append(override("records.started_by", f"{actor()}@{socket.gethostname()}"))
    where += resumed_run.kept(folder, overrides) if resume else []
    with _not_begun(folder):  # a wrong configuration must not leave a folder
        fault = output_folder.problem(folder)
        if not resume:
            fault = fault or output_folder.foreign(folder, former_run.REPLACED)
        wrong = [fault] if fault else []

        def also(values: Mapping[str, Any]) -> list[str]:
            taken = [*_taken_port(values, folder), *_taken_federation(values)]
            return [*problems(values), *wrong, *taken]

        config = load([*overrides, *where], also=also)
        check_strategy(config)
        if resume:
            resumed_run.check_fits(config, folder)
    done = _recorded(folder) if resume else 0
    if done >= config.rounds:
        console.print(f"all {done} rounds are done; rounds=<more> trains further", markup=False)
    with _alone(folder), _concluded(config, folder):
        _log_to(folder / "run.log", config.logging.format)
        _remove_results(folder, resume=resume, begun=begun)
        stop_request.withdraw(folder)
        with replacing(folder / OVERRIDES) as temporary:
            temporary.write_text(yaml.safe_dump(overrides))
        own.keep(config.resolved, folder / own.PROJECT)
        where += _absolute_paths(config)  # engines work in other folders
        where += _node_ids(config, folder)
        where += _id(config, folder, resume=resume)
        launch(config, shlex.join([*overrides, *where]), folder, console)
    show_result_of(folder, console)


def _recorded(folder: Path) -> int:
    """Return the number of recorded rounds; a file with damage is written anew by a resume."""
    rounds = folder / ROUNDS
    return rounds.read_bytes().count(b"\n") if rounds.exists() else 0


def _remove_results(folder: Path, *, resume: bool, begun: bool) -> None:
    """Remove what an earlier run in this folder has left; a resumed run continues the rest.

    A run that outlived the process that followed it still needs all of it.
    """
    state = run_state.read(folder)
    if resume or (state is not None and state.unfinished):
        former_run.remove_end(folder)
    else:
        former_run.remove(folder, begun=begun)


def _absolute_paths(config: Config) -> list[str]:
    """Return overrides that make the paths of data and weights absolute."""
    given = {
        "data.root": config.data.options.get("root"),
        "network.weights": config.pretrained.weights,
    }
    return [
        override(name, str(Path(path).expanduser().resolve()))
        for name, path in given.items()
        if path is not None
    ]


def _node_ids(config: Config, folder: Path) -> list[str]:
    """Return the override that holds each node of a federation of ours to its own client."""
    engine = config.engine
    if engine.name != "deployment" or engine.node_ids is not None or not here(engine):
        return []
    place = federation_folder(config, folder) / node_ids.FILE
    return [override("engine.node_ids", str(place.resolve()))]


def _id(config: Config, folder: Path, *, resume: bool) -> list[str]:
    """Return the override with the id by which nodes know a run, also when its folder has moved."""
    if config.engine.name != "deployment":
        return []
    known: str | None = secrets.token_hex(8)
    if resume:
        known = None
        with contextlib.suppress(ValueError):  # a damaged one; the nodes know the folder too
            known = (read_config(folder).get("records") or {}).get("id")
    return [] if known is None else [override("records.id", known)]


def resume(folder: Path, changes: list[str]) -> None:
    """Continue a stopped run; `changes` are overrides that replace earlier ones.

    A run that was stopped before its first round and has no checkpoint starts from the beginning.
    """
    try:
        saved = read_overrides(folder)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    if saved is None:
        raise ConfigError(
            [f"resume must be the output folder of a run, got {folder}; it must have {OVERRIDES}"]
        )
    own.use(folder / own.PROJECT)
    made = checkpoint.exists(folder / CHECKPOINTS)
    played = (folder / ROUNDS).exists() and (folder / ROUNDS).stat().st_size > 0
    if played and not made:
        with _alone(folder):  # the run of another process may have none yet
            resumed_run.check_under_way(folder)
    with _put_back(folder, changes) if made else contextlib.nullcontext():
        known = resumed_run.fitting(saved, changes)
        run([*known, *changes], folder, resume=made or played, begun=True)


@contextmanager
def _put_back(folder: Path, changes: list[str]) -> Iterator[None]:
    """Put the overrides of a run back if it could not continue from its checkpoint with others."""
    former = (folder / OVERRIDES).read_bytes()
    try:
        yield
    except BaseException:
        begun = (folder / RESUMED).exists()
        if not begun and (folder / OVERRIDES).read_bytes() != former:
            with replacing(folder / OVERRIDES) as temporary:
                temporary.write_bytes(former)
            log.warning("the run keeps its settings, without %s", shlex.join(changes))
        raise


@contextmanager
def _not_begun(folder: Path) -> Iterator[None]:
    """Remove the empty folder, which Hydra creates, if the run is interrupted in the block."""

    def remove() -> None:
        with contextlib.suppress(OSError):  # it does not exist, or is not empty
            folder.rmdir()

    with signals.of_run(ask=remove, last=remove):
        yield


def _taken_port(values: Mapping[str, Any], folder: Path) -> list[str]:
    """Return why the metrics of a run could not be served, if its server is on this machine."""
    metrics, engine = values["metrics"], values["engine"]
    if metrics is None or engine is None or metrics.port is None or not here(engine):
        return []
    state = run_state.read(folder)
    if state is not None and state.unfinished:  # it may go on, and has the port itself
        return []
    fault = ports.problem("metrics", metrics.host, metrics.port)
    return [fault] if fault else []


def _taken_federation(values: Mapping[str, Any]) -> list[str]:
    """Return why a run cannot have a federation of its own in `engine.folder`, if it asks so."""
    engine = values["engine"]
    if engine is None or engine.folder is None or engine.connection is not None:
        return []
    fault = federation_lock.problem(Path(engine.folder).resolve())
    return [fault] if fault else []


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder during the block; raises ConfigError if another run uses it."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(output_folder.held(folder))
        except output_folder.InUseError as error:
            raise ConfigError([str(error)]) from error
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
    """Log that something could not be written, as on a full disk or from a damaged file."""
    try:
        yield
    except (OSError, ValueError) as error:
        log.error("%s could not be written: %s", what, error)


def _end_at_once(config: Config, folder: Path) -> None:
    """Kill all processes of this run; data that the loop has not written are lost."""
    processes.kill_all_for_good()
    run_state.finish(folder)  # stopped on purpose
    _summarise_for_the_dead(config, folder, interrupted=True)


def _write_page(folder: Path) -> None:
    from fl_app.report.page import write_page

    rounds = folder / ROUNDS
    begun = rounds.exists() and (folder / CONFIG).exists()
    if not begun or (signals.asked() and not rounds.stat().st_size):
        return  # the run has no rounds
    try:
        if not signals.patiently(partial(write_page, folder), PAGE_S, hurried=signals.asked):
            log.warning("the report took too long; write it with fl-app report %s", folder)
    except OSError as error:  # a disk can have room for all files but the page
        hint = f"write it with fl-app report {folder}"
        log.error("the report could not be written: %s; %s", error, hint)
    except Exception:  # a failed page must not affect the results
        log.exception("the report could not be written")


def _log_to(file: Path, form: str) -> None:
    """Log warnings to the terminal, and all messages of fl-app and Flower to the run's log."""
    terminal, whole = logging.StreamHandler(), logging.FileHandler(file)
    terminal.setLevel(logging.WARNING)
    structured_logs.ONCE.told.clear()  # a sweep has several runs
    terminal.addFilter(structured_logs.ONCE)
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
