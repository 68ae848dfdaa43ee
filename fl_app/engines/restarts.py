"""Submits a run again whose process, SuperLink or machine was lost, from its last checkpoint.

A run that ended by itself, with or without an error, or that a person stopped, is left alone.
"""

import errno
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from logging import getLogger
from pathlib import Path

from fl_app.engines import flower
from fl_app.engines.bundle import packed_folder
from fl_app.engines.flower import Connection, RunResult, RunStatus
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.lost_connection import LOST
from fl_app.engines.processes import ProcessError
from fl_app.own import PROJECT
from fl_app.records import run_state
from fl_app.records.history import read_rounds
from fl_app.records.names import ROUNDS, SUMMARY
from fl_app.records.run_state import RunState

log = getLogger(__name__)
Composed = Callable[[str], str]
"""Returns the composed tree of overrides, see `flower.submit`."""
UNREACHABLE = "unreachable"
"""Status of a run whose SuperLink does not answer."""
RESTARTS = "records.restarts="
_OWN_FAILURE = "ServerApp failed with exception"
"""How Flower begins its words on a ServerApp that raised an exception."""
NO_SPACE = f"[Errno {errno.ENOSPC}]"
"""In the words on a ServerApp that failed because its disk is full."""
_WAIT_S, _WAIT_MAX_S = 5.0, 60.0
_TICK_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """A run that is followed until it ends by itself.

    `submit` sends overrides to the SuperLink and returns the id of the run, `look` returns the
    status of a run, and `follow` waits for its end. `on_tick` is called while nothing runs.
    """

    folder: Path
    limit: int
    submit: Callable[[str], int]
    look: Callable[[int], RunStatus]
    follow: Callable[[int], RunResult]
    on_tick: Callable[[], None]

    def run(self, overrides: str) -> RunResult:
        """Submit the run, or take up the one that goes on; return its outcome.

        Raises RuntimeError if another process follows it, and FlowerError if the first submission
        fails.
        """
        with run_state.claimed(self.folder) as claimed:
            if not claimed:
                raise FlowerError(
                    f"one process at a time continues the run in {self.folder}, and another one "
                    f"does; follow it with fl-app watch {self.folder}"
                )
            state = self._going_on() or self._new(overrides)
            try:
                return self._until_ended(state)
            except KeyboardInterrupt:
                run_state.finish(self.folder)  # stopped on purpose
                raise

    def _going_on(self) -> RunState | None:
        """Return the state of a run that outlived the process that followed it."""
        state = run_state.read(self.folder)
        if state is None or not state.unfinished:
            return None
        if self.look(state.run_id).finished:
            return None
        log.warning("run %d goes on and is followed; new settings are not used", state.run_id)
        return state

    def _new(self, overrides: str) -> RunState:
        state = RunState(self.submit(overrides), overrides, self.limit)
        run_state.write(self.folder, state)
        return state

    def _until_ended(self, state: RunState) -> RunResult:
        while True:
            result = self._followed(state.run_id)
            if not lost(result.status, result.why):
                run_state.finish(self.folder, state.run_id)
                return result
            following = again(self.folder, state)
            if following is None:
                return result
            self._wait(following.in_vain)
            state = self._submitted(following, result.why or result.detail)

    def _followed(self, run_id: int) -> RunResult:
        try:
            return self.follow(run_id)
        except (FlowerError, ProcessError) as error:
            return RunResult(UNREACHABLE, str(error), run_id)

    def _submitted(self, state: RunState, why: str) -> RunState:
        """Submit a run again unless it goes on; without an answer, the next attempt does it."""
        try:
            if self.look(state.run_id).finished:
                return submit_again(self.folder, state, why, self.submit)
        except FlowerError as error:
            log.warning("the SuperLink does not answer: %s", error)
        run_state.write(self.folder, state)
        return state

    def _wait(self, attempt: int) -> None:
        until = time.monotonic() + min(_WAIT_S * 2 ** (attempt - 1), _WAIT_MAX_S)
        while time.monotonic() < until:
            self.on_tick()
            time.sleep(_TICK_S)


def lost(status: str, why: str) -> bool:
    """Whether a run ended because a process, a machine, a database or the disk was lost."""
    if status in (UNREACHABLE, flower.UNKNOWN):
        return True
    outside = NO_SPACE in why or LOST in why or not why.startswith(_OWN_FAILURE)
    return status == flower.FAILED and outside


def again(folder: Path, state: RunState) -> RunState | None:
    """Return the state of a lost run that may continue; None if it was lost too often in vain."""
    following = state.again(recorded(folder))
    if following is None:
        run_state.finish(folder, state.run_id)
    if following is None and state.limit:
        log.error(
            "the run is not continued: it was lost %d times without a further round "
            "(engine.restarts=%d); continue it with fl-app resume=%s",
            state.in_vain + 1, state.limit, folder,
        )  # fmt: skip
    return following


def submit_again(folder: Path, state: RunState, why: str, submit: Callable[[str], int]) -> RunState:
    """Submit a lost run and return its state; the server looks for the checkpoint."""
    words = [each for each in shlex.split(state.overrides) if not each.startswith(RESTARTS)]
    restarts = state.restarts + 1
    overrides = shlex.join([*words, f"{RESTARTS}{restarts}"])
    (folder / SUMMARY).unlink(missing_ok=True)  # a process that was asked to end may leave one
    run_id = submit(overrides)
    state = replace(state, run_id=run_id, overrides=overrides, restarts=restarts)
    run_state.write(folder, state)
    log.warning(
        "the run was lost after round %d (%s); it was submitted again, restart %d",
        recorded(folder), why, restarts,
    )  # fmt: skip
    return state


def recorded(folder: Path) -> int:
    """Return the number of recorded rounds of a run."""
    return len(read_rounds(folder)) if (folder / ROUNDS).exists() else 0


class LostRuns:
    """Looks for lost runs in `roots` and submits them again, each time that `look` is called.

    A problem with the folder of a run does not stop the others, and is reported once. So is a
    SuperLink that does not answer; then the look ends, since each question takes seconds.
    """

    def __init__(
        self, connection: Connection, roots: Sequence[Path], conf: Path, composed: Composed
    ) -> None:
        self.connection, self.roots = connection, roots
        self.conf, self.composed = conf, composed
        self._problems: dict[str, str] = {}

    def look(self) -> list[str]:
        """Submit again each lost run that no other process follows; say what was done."""
        told, former = list[str](), self._problems
        self._problems = {}
        under_way = cache(partial(_under_way, self.connection))  # asked once, if a run needs it
        for folder in run_state.unfinished(self.roots):
            try:
                told.append(self._continue(folder, under_way))
            except SilentError as error:
                self._problems["SuperLink"] = f"lost runs wait: {error}"
                break
            except Exception as error:  # a folder holds whatever a crash or a user left in it
                problem = f"the run is not continued while this holds: {type(error).__name__}"
                self._problems[str(folder)] = f"{folder}: {problem}: {error}"
        told += [said for who, said in self._problems.items() if former.get(who) != said]
        return [each for each in told if each]

    def tell(self) -> None:
        """Call `look` and print what it says, as far as the disk has room for it."""
        with suppress(OSError):
            for each in self.look():
                print(each, flush=True)

    def _continue(self, folder: Path, under_way: Callable[[], list[int]]) -> str:
        with run_state.claimed(folder) as claimed:
            state = run_state.read(folder)
            if not claimed or state is None or not state.unfinished:
                return ""
            if state.run_id in under_way():
                return ""
            found = flower.status(self.connection, state.run_id)
            if not found.finished:  # it was submitted a moment ago
                return ""
            if not lost(*found):
                run_state.finish(folder, state.run_id)
                return f"{folder}: the run has ended as {found.state}"
            following = again(folder, state)
            if following is None:
                return f"{folder}: the run is not continued; it was lost too often in vain"
            submitted = self._submit_again(folder, following, found.why)
        return f"{folder}: submitted again as run {submitted.run_id}, restart {submitted.restarts}"

    def _submit_again(self, folder: Path, state: RunState, why: str) -> RunState:
        with packed_folder(self.conf, folder / PROJECT) as app:

            def submit(text: str) -> int:
                given = {"overrides": text, "composed": self.composed(text)}
                return flower.submit(self.connection, app, **given, federation={})

            return submit_again(folder, state, why, submit)


class SilentError(FlowerError):
    """The SuperLink does not answer."""


def _under_way(connection: Connection) -> list[int]:
    try:
        return flower.under_way(connection)
    except FlowerError as error:
        raise SilentError(str(error)) from error
