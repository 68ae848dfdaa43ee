"""Disturbs runs of a real federation in every way at hand; writes docs/results/faults.md.

    .venv/bin/python benchmarks/faults.py --out <file.jsonl>

It continues where it was stopped. Needs Linux, and root for the full disk. `--old <python> ...` are
environments for nodes of other releases: with an older Flower, torch, and what else a client needs.
`faketime` must be on the PATH for the stranger's clock; without it the line says that it was not
tried. The clocks that jump need a C compiler.
`--only <scene> ...` puts the lines of these scenes into the page of the others; the file must have
the scene `nothing`, with which models are compared.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import clocks
from disturbed import ROUNDS, Disturbed, Run
from other_release import other_release, release_of
from strangers import strangers
from table import REPO, arguments, header, machine, put_rows, row

from fl_app.engines import membership

TABLE = REPO / "docs" / "results" / "faults.md"
PAUSE_S = 60.0
FULL_MB = 2
RENEWALS = {
    "certificate of the SuperLink": membership.RENEW,
    "keys of all nodes": membership.ROTATE,
}
CLOCKS = {"a node": clocks.NODE, "the server's machine": clocks.SERVER}
Row = dict[str, Any]


def after_two_rounds(federation: Disturbed, name: str, act: Callable[[Run], None]) -> Row:
    """Start a run, do something to it after round 2, and return how it ended."""
    run = federation.start(name)
    run.until("round 2", lambda: len(run.rounds()) >= 2)
    act(run)
    return run.outcome()


def send(number: signal.Signals, part: str, run: Run) -> None:
    """Send a signal to all processes of a part; after SIGSTOP they go on a minute later."""
    pids = run.until(part, lambda: run.federation.pids(part))
    if number is signal.SIGSTOP:
        pause(pids)
        return
    for pid in pids:
        os.kill(pid, number)


def pause(pids: Sequence[int]) -> None:
    """Stop processes for a minute."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def kill_command(run: Run, *, also: str = "") -> None:
    """Kill the submitting command, and another part."""
    run.kill_command()
    if also:
        send(signal.SIGKILL, also, run)


def stop_command(run: Run) -> None:
    """Stop the submitting command for a minute."""
    pause(run.command_pids())


def stop_keeper(run: Run) -> None:
    """Stop the process that keeps the federation for a minute."""
    pause([run.federation.keeper_pid()])


def restart_machine(run: Run, *, new_database: bool) -> None:
    """Kill all that runs, as a power cut does, and start the federation again."""
    run.kill_command()
    run.federation.kill_all()
    if new_database:
        for path in run.federation.folder.glob("state.db*"):
            path.unlink()
    run.federation.up()


def restart_keeper(run: Run) -> None:
    """Kill the process that keeps the federation, and start the federation again."""
    run.federation.kill_keeper()
    run.federation.up()


def renewed(action: str, run: Run) -> None:
    """Renew keys or the certificate of the running federation."""
    run.federation.order(action)


def disk_full(federation: Disturbed, name: str) -> Row:
    """Give the run an output folder that is too small; make room a minute later."""
    place = federation.top / name
    place.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={FULL_MB}m", "tmpfs", str(place)], check=True
    )
    try:
        run = federation.start(name, place / "run")
        run.until("round 2", lambda: len(run.rounds()) >= 2)
        filling = place / "filling"
        with filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"0" * 4096):
                continue
        time.sleep(PAUSE_S)
        filling.unlink()
        return run.outcome()
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def scenes(old: Sequence[Path]) -> dict[str, Callable[[Disturbed, str], list[Row] | Row]]:
    """Return what is done by the name of its line."""
    found: dict[str, Callable[[Disturbed, str], list[Row] | Row]] = {}
    found["nothing"] = lambda federation, name: federation.start(name).outcome()
    for part in ("SuperNode", "ClientApp", "SuperLink", "ServerApp"):
        found[f"{part} killed (kill -9)"] = _acting(partial(send, signal.SIGKILL, part))
        found[f"{part} stopped for 60 s"] = _acting(partial(send, signal.SIGSTOP, part))
    for part in ("SuperExec of the server", "warm process", "SuperExec of a SuperNode"):
        found[f"{part} killed (kill -9)"] = _acting(partial(send, signal.SIGKILL, part))
        found[f"{part} stopped for 60 s"] = _acting(partial(send, signal.SIGSTOP, part))
    found["keeper stopped for 60 s"] = _acting(stop_keeper)
    found["keeper killed (kill -9), then `scripts/deploy up`"] = _acting(restart_keeper)
    found["submitting command killed (kill -9)"] = _acting(kill_command)
    found["submitting command stopped for 60 s"] = _acting(stop_command)
    found["submitting command and ServerApp killed"] = _acting(
        partial(kill_command, also="ServerApp")
    )
    found["all killed, then `scripts/deploy up`"] = _acting(
        partial(restart_machine, new_database=False)
    )
    found["the same with a new state database"] = _acting(
        partial(restart_machine, new_database=True)
    )
    found["disk of the output folder full for 60 s"] = disk_full
    for what, action in RENEWALS.items():
        found[f"{what} renewed (`scripts/deploy {action}`)"] = _acting(partial(renewed, action))
    for whose, members in CLOCKS.items():
        for way, by_s in (("ahead", clocks.HOUR_S), ("back", -clocks.HOUR_S)):
            found[f"clock of {whose} an hour {way} for 60 s"] = partial(
                clocks.jump, members=members, by_s=by_s
            )
    found["strangers"] = strangers
    for python in old:
        found[f"a node of flwr {release_of(python)}"] = partial(other_release, python=python)
    return found


def _acting(act: Callable[[Run], None]) -> Callable[[Disturbed, str], Row]:
    return lambda federation, name: after_two_rounds(federation, name, act)


def main() -> None:
    """Play what the file has not, and write the table."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file of rows, one JSON a line")
    parser.add_argument("--old", type=Path, nargs="+", default=[], help="Pythons, see above")
    parser.add_argument("--only", nargs="+", help="play the scenes of these names alone")
    options = parser.parse_args()
    done = _read(options.out)
    wanted = {n: s for n, s in scenes(options.old).items() if n in (options.only or [n])}
    left = {name: scene for name, scene in wanted.items() if name not in {r["scene"] for r in done}}
    if left:
        top = Path(tempfile.mkdtemp(prefix="fl-faults-"))
        with Disturbed(top) as federation:
            for at, (name, scene) in enumerate(left.items()):
                played = scene(federation, f"run{at}")
                for each in [played] if isinstance(played, dict) else played:
                    line = {"scene": name, "fault": name, **each}
                    done.append(line)
                    with options.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    print(json.dumps(line), flush=True)
        shutil.rmtree(top, ignore_errors=True)
    if options.only is None:
        write(done)
    else:
        new = [each for each in done if each["scene"] in options.only]
        put_rows(TABLE, _lines(new, _undisturbed(done)), _head())


def _read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(rows: Sequence[Row]) -> None:
    """Write the page."""
    TABLE.write_text("\n".join([*_head(), *_lines(rows, _undisturbed(rows))]) + "\n")


def _undisturbed(rows: Sequence[Row]) -> Row:
    return next(each for each in rows if each["fault"] == "nothing")


def _head() -> list[str]:
    return [
        "# Faults", "",
        f"Written by `benchmarks/faults.py`, on {machine()}: a federation of",
        "`scripts/deploy up` with three nodes, and for each line one run of the demo (FLIC on",
        f"digits, {ROUNDS} rounds of one epoch, a checkpoint in each).",
        "The fault comes once two rounds are recorded, in a later one. Models:",
        "whether models.safetensors has the same bytes as after the undisturbed run. Restarts: how",
        "often the run was submitted again. Told: what the command of the run says, or the",
        "SuperNode of a stranger; long texts are cut. Nobody typed anything after a fault, unless",
        "its line says so. All strangers came during one run. A node of another release is client",
        "1 from the start of its run; its environment has torch without CUDA. Clocks jump in",
        "a federation of their own, by a library that the processes load. The machine was busy",
        "with other work, so the seconds say little. A line with another accuracy than that of",
        "`nothing` and equal models was measured with another version of the project, and is",
        "compared with an undisturbed run of that version.", "",
        *header("fault", "the run", "models", "accuracy", "restarts", "seconds", "told"),
    ]  # fmt: skip


def _lines(rows: Sequence[Row], usual: Row) -> list[str]:
    lines = []
    for each in rows:
        same = "equal" if each["models"] == usual["models"] else "other"
        accuracy = "" if each["accuracy"] is None else f"{each['accuracy']:.3f}"
        told = [each["fault"], each["status"], same if each["models"] else ""]
        lines.append(row(*told, accuracy, each["restarts"], f"{each['seconds']:.0f}", each["told"]))
    return lines


if __name__ == "__main__":
    main()
