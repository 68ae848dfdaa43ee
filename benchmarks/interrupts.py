"""Interrupts real runs at random moments under load; writes docs/results/interrupts.md.

    .venv/bin/python benchmarks/interrupts.py --interrupts 67 [--minutes 60]

Busy processes and parallel runs keep the machine loaded. Every tenth run gets a second signal.
Each run is a line of `--out`, which is kept beside the page: hours of runs fit no single session,
and a stopped benchmark, also one on another machine, continues from there. Linux only: remaining
processes are found by their environment.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from table import REPO, arguments, header, machine, row

from fl_app.records.checkpoint import CheckpointError, read
from fl_app.records.summary import read_summary

PAGE = REPO / "docs" / "results" / "interrupts.md"
LOG = PAGE.with_suffix(".jsonl")
MARK = "FL_APP_INTERRUPTED_RUN"
"""Environment variable that all processes of a run inherit."""
HANGS_S = 300.0
"""A run that has not ended so long after the signal counts as hanging."""
GONE_S = 15.0
"""Seconds after the end of a run within which its last processes must have gone.

What a killed run leaves has 5 s to end by itself, before it is killed.
"""
STARTS_S = {"inprocess": 25.0, "simulation": 60.0, "deployment": 90.0}
"""Seconds from the start within which half of the interrupts come, some of them in the rounds."""
ROUNDS_S = 20.0
"""Seconds after the first round within which the other half come."""
STARTED_S = 600.0
TWICE_EVERY = 10
STARTS = 5
INTERRUPTED = 130
SETTINGS = (
    "rounds=100000", "strategy=flic", "strategy.cluster_round=5", "population.clients=4",
    "population.groups=2", "population.train_samples=60", "client.epochs=1",
    "records.evaluate_every=2", "records.checkpoint_every=3",
)  # fmt: skip
Found = dict[str, Any]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processes busy during the block."""
    words = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(words) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def answers(pid: int) -> bool:
    """Return whether a process handles SIGTERM: before that there is no program of ours yet."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class Run:
    """A run that is started, to be interrupted; `leave` ends what should have ended."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.folder, self.token = folder, uuid.uuid4().hex
        self.log = folder.with_suffix(".txt")
        words = [sys.executable, "-m", "fl_app.main", f"engine={engine}"]
        words += [f"hydra.run.dir={folder}", *SETTINGS]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                words, cwd=folder.parent, env={**os.environ, MARK: self.token},
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raises RuntimeError where the run ends first, or never starts."""
        deadline = time.monotonic() + STARTED_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no interrupt, the run ended: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def rounds(self) -> int:
        """Return how many rounds are recorded."""
        file = self.folder / "rounds.jsonl"
        return file.read_text().count("\n") if file.exists() else 0

    def end(self, number: signal.Signals, second_after_s: float | None) -> int | None:
        """Send a signal, or two, and return the exit code; None: it hangs."""
        self.process.send_signal(number)
        if second_after_s is not None:
            time.sleep(second_after_s)
            self.process.send_signal(number)
        try:
            return self.process.wait(HANGS_S)
        except subprocess.TimeoutExpired:
            return None

    def left(self) -> list[str]:
        """Return the command lines of the processes of the run that are still there."""
        deadline = time.monotonic() + GONE_S
        while (found := self._alive()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [_words(entry) for entry in found]

    def leave(self) -> None:
        """Kill what is still there."""
        for entry in self._alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
        self.process.wait()

    def _alive(self) -> list[Path]:
        mark = f"{MARK}={self.token}".encode()
        return [entry for entry in Path("/proc").glob("[0-9]*") if mark in _environment(entry)]


def _environment(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _words(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except OSError:
        return "ended meanwhile"


def play(engine: str, number: int, top: Path) -> Found:
    """Start a run, interrupt it at a moment drawn by its number, and return what was found."""
    draw, folder = Random(f"{engine} {number}"), top / f"{engine}_{number}"
    in_rounds, twice = number % 2 == 1, number % TWICE_EVERY == TWICE_EVERY - 1
    started, run = time.monotonic(), Run(engine, folder)
    try:
        run.until(lambda: answers(run.process.pid))
        if in_rounds:
            run.until(lambda: run.rounds() > 0)
        time.sleep(draw.uniform(0.0, ROUNDS_S if in_rounds else STARTS_S[engine]))
        sent, rounds, load = time.monotonic(), run.rounds(), os.getloadavg()[0]
        name = draw.choice([signal.SIGINT, signal.SIGTERM])
        code = run.end(name, draw.uniform(0.3, 2.0) if twice else None)
        ended = time.monotonic()
        left = [_placeless(each, top) for each in run.left()]
    finally:
        run.leave()
    return {
        "engine": engine, "number": number, "signal": name.name, "twice": twice,
        "after_s": sent - started, "rounds": rounds, "code": code, "ended_s": ended - sent,
        "left": left, "load": load, "folder": folder.exists(), "status": _status(folder),
        "checkpoint": _checkpoint(folder), "told": _placeless(run.log.read_text()[-1000:], top),
    }  # fmt: skip


def play_started(engine: str, number: int, top: Path) -> Found:
    """Play, again where the run itself ends before the interrupt: a loaded machine starts no Ray.

    Ray gives a node 30 s to start. Raises RuntimeError after STARTS attempts.
    """
    for lost in range(STARTS):
        try:
            return play(engine, number, top) | {"lost": lost}
        except RuntimeError as error:
            print(f"{engine} {number} is started again: {error}", flush=True)
            shutil.rmtree(top / f"{engine}_{number}", ignore_errors=True)
    raise RuntimeError(f"{engine} {number} did not start {STARTS} times")


def _placeless(text: str, top: Path) -> str:
    """Return a text without the folders of this machine."""
    for place, name in ((top, "folder"), (sys.prefix, "environment"), (REPO, "repository")):
        text = text.replace(str(place), f"<{name}>")
    return text


def _status(folder: Path) -> str | None:
    summary = read_summary(folder)
    return None if summary is None else str(summary["status"])


def _checkpoint(folder: Path) -> int | str:
    """Return the round of the checkpoint, or why there is none."""
    try:
        return read(folder / "checkpoint").round
    except CheckpointError as error:
        return str(error).replace(f"{folder}", "<folder>")


def faults(found: Found) -> list[str]:
    """Return what is wrong with the end of a run."""
    wrong = []
    if found["code"] is None:
        wrong.append("hangs")
    elif found["code"] != INTERRUPTED:
        wrong.append(f"exit code {found['code']}")
    if found["folder"] and found["status"] != "interrupted":
        wrong.append(f"summary: {found['status']}")
    if found["left"]:
        wrong.append(f"left: {', '.join(found['left'])}")
    whole = found["checkpoint"] if isinstance(found["checkpoint"], int) else -1
    if not found["twice"] and found["rounds"] > max(whole, 0):
        wrong.append(f"checkpoint after {found['rounds']} rounds: {found['checkpoint']}")
    return wrong


def page(played: Sequence[Found], wanted: int, command: str) -> list[str]:
    """Return the page: how many runs of each engine ended as they should, and how fast."""
    load = statistics.median(each["load"] for each in played)
    lines = [
        "# Interrupts", "",
        f"Written by `{command}`, on {machine()}, from",
        f"docs/results/{LOG.name}, with up to",
        f"{max(each['beside'] for each in played)} of the runs at a time. The median of the",
        f"machine's load when a signal came was {load:.1f}.",
        "Real runs get SIGINT or SIGTERM at a random moment: half of them from the start of the",
        "program on, half of them during the rounds. Each run must end with exit code 130, leave a",
        "summary if it has a folder, a readable checkpoint of the last complete round if there is",
        f"one, and no process {GONE_S:.0f} s later. Before the first round there is nothing to",
        f"save: {_unsaved(played)} runs have a folder without a checkpoint, and `resume=` starts",
        "such a run from the beginning. A second signal, up to 2 s after the first, ends a run at",
        "once; such a run must leave only the summary. Seconds are from the first signal to the",
        "end. Runs that ended before their interrupt and were started again, because Ray gives a",
        "node 30 s to start on a loaded machine too: "
        f"{sum(each.get('lost', 0) for each in played)}.", "",
        *header(
            "engine", "signals", "interrupts", "before the first round", "as they should",
            "seconds, median", "longest",
        ),
    ]  # fmt: skip
    for engine in STARTS_S:
        for twice in (False, True):
            some = [each for each in played if (each["engine"], each["twice"]) == (engine, twice)]
            if some:
                lines.append(_row(engine, "two" if twice else "one", some))
    wrong = [(each, faults(each)) for each in played if faults(each)]
    lines += ["", f"**{len(played)} interrupts of {wanted}, {len(wrong)} at fault.**"]
    return [*lines, *(f"\n- {_name(each)}: {'; '.join(said)}" for each, said in wrong)]


def _unsaved(played: Sequence[Found]) -> int:
    """Return how many runs have a folder, but neither a round nor a checkpoint."""
    early = [each for each in played if each["folder"] and not each["rounds"]]
    return sum(not isinstance(each["checkpoint"], int) for each in early)


def _row(engine: str, signals: str, some: Sequence[Found]) -> str:
    seconds = [each["ended_s"] for each in some]
    early, well = sum(not f["rounds"] for f in some), sum(not faults(f) for f in some)
    middle, longest = f"{statistics.median(seconds):.1f}", f"{max(seconds):.1f}"
    return row(engine, signals, len(some), early, well, middle, longest)


def _name(found: Found) -> str:
    return f"{found['engine']} {found['number']}, {found['signal']} after {found['after_s']:.1f} s"


def main() -> None:
    """Interrupt the runs that are not in `--out` yet, and write the page."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored
    parser = arguments(__doc__)
    parser.add_argument("--interrupts", type=int, default=67, help="of each engine")
    parser.add_argument("--beside", type=int, default=4, help="runs at a time")
    parser.add_argument("--busy", type=int, default=2, help="busy processes beside them")
    parser.add_argument("--engines", nargs="+", choices=STARTS_S, default=list(STARTS_S))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start none after")
    parser.add_argument("--out", type=Path, default=LOG)
    parser.add_argument("--no-page", action="store_true", help="print it alone")
    options = parser.parse_args()
    played = _played(options.out)
    done = {(each["engine"], each["number"]) for each in played}
    wanted = [(e, n) for n in range(options.interrupts) for e in options.engines]
    missing = [each for each in wanted if each not in done]
    with options.out.open("a") as file:
        for found in _play_all(missing, options.beside, options.busy, options.minutes):
            played.append(found)
            file.write(json.dumps(found if faults(found) else _short(found)) + "\n")
            file.flush()
            ended = f"ended after {found['ended_s']:.1f} s in round {found['rounds']}"
            print(f"{_name(found)}: {ended} {faults(found) or ''}", flush=True)
    words = f"benchmarks/interrupts.py --interrupts {options.interrupts}"
    lines = page(played, len(wanted), words)
    print("\n".join(lines))
    if not options.no_page:
        PAGE.write_text("\n".join(lines) + "\n")
    sys.exit(any(faults(each) for each in played))


def _short(found: Found) -> Found:
    """Return a run that ended as it should without what it printed."""
    return {name: value for name, value in found.items() if name != "told"}


def _play_all(
    wanted: Sequence[tuple[str, int]], beside: int, load: int, minutes: float
) -> Iterator[Found]:
    """Play all, so many at a time, and yield what was found as each ends."""
    folder = tempfile.TemporaryDirectory(prefix="fl-int-")
    until = time.monotonic() + 60 * minutes

    def timely(engine: str, number: int, top: Path) -> Found | None:
        return None if time.monotonic() > until else play_started(engine, number, top)

    with busy(load), folder as top, ThreadPoolExecutor(beside) as pool:
        runs = [pool.submit(timely, engine, number, Path(top)) for engine, number in wanted]
        try:
            for each in as_completed(runs):
                if (found := each.result()) is not None:
                    yield found | {"beside": beside}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _played(out: Path) -> list[Found]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


if __name__ == "__main__":
    main()
