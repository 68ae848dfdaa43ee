"""Runs the units of systemd/ under a real systemd, with faults; writes docs/results/systemd.md.

    scripts/test-systemd        installs what is missing, then runs this

It works on a copy of the checkout in a temporary folder, and on a copy of FL_APP_ROOT, which is the
root of a Debian with systemd.
"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import certificates
from booted import CLIENTS, NODES, SERVICES, Booted
from compose import copied
from continued import ended, same_models
from table import REPO, arguments, header, machine, put_rows, row

from fl_app.engines.credentials import Credentials

Scenario = Callable[[Booted], str]
TABLE = REPO / "docs" / "results" / "systemd.md"
ROOT = "FL_APP_ROOT"
ROUNDS, LONG = 5, 16
"""Rounds of a run, and of one in which each service is killed or a certificate is renewed."""
FLEET = 9092
"""The port for nodes."""
KILLED = ("fl-superlink", "fl-resumer", *CLIENTS, "fl-superexec")
"""In this order, and the SuperExec last, since its ServerApp ends with it."""


def plain(machine: Booted) -> str:
    """Run the demo without a fault, for comparison."""
    machine.submit("plain", ROUNDS)
    status, seen = _ended(machine, "plain")
    users = ", ".join(sorted({line.split()[0] for line in machine.left()}))
    return row("a run", status, f"{seen}; processes of the users {users}; {_exposure(machine)}")


def _exposure(machine: Booted) -> str:
    text = machine.run("systemd-analyze", "security", "--no-pager", *SERVICES, must=False)
    levels = re.findall(r"exposure level for (\S+): ([\d.]+) (\w+)", text)
    if not levels:
        return text[-300:]
    worst = max(levels, key=lambda found: float(found[1]))
    return f"`systemd-analyze security` at most {worst[1]} of 10 ({worst[2]})"


def killed(machine: Booted) -> str:
    """Kill the first process of each service in one run, one after the other."""
    machine.submit("killed", LONG)
    for place, service in enumerate(KILLED):
        machine.until(f"round {2 * place + 1}", lambda at=place: machine.rounds("killed") > 2 * at)
        machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", f"{service}.service")
    status, seen = _ended(machine, "killed")
    machine.all_online()
    return row(f"kill -9 of {', '.join(KILLED)}, in one run", status, seen)


def stopped(machine: Booted) -> str:
    """Stop all services in mid-run, and start them again."""
    machine.submit("stopped", ROUNDS)
    machine.until("round 2", lambda: machine.rounds("stopped") >= 2)
    begun = time.monotonic()
    machine.run("systemctl", "stop", *SERVICES)
    seconds, left = time.monotonic() - begun, machine.left()
    results = machine.run("systemctl", "show", "--property=Result", *SERVICES).split()
    machine.run("systemctl", "start", "--no-block", *SERVICES)
    status, seen = _ended(machine, "stopped")
    how = ", ".join(sorted(set(results)))
    told = f"all stopped after {seconds:.0f} s ({how}), {len(left)} processes left"
    what = "`systemctl stop` of all services in mid-run, then `start`"
    return row(what, status, f"{told}; {seen}; {_same(machine, 'stopped')}")


def shut_down(machine: Booted) -> str:
    """Shut the machine down in mid-run and boot it."""
    machine.submit("off", ROUNDS)
    machine.until("round 2", lambda: machine.rounds("off") >= 2)
    begun = time.monotonic()
    machine.off()
    seconds = time.monotonic() - begun
    machine.boot()
    status, seen = _ended(machine, "off")
    told = f"off after {seconds:.0f} s; {seen}; {_same(machine, 'off')}"
    return row("the machine shut down in mid-run, and booted", status, told)


def power_cut(machine: Booted) -> str:
    """End all processes of the machine at once in mid-run, and boot it."""
    machine.submit("cut", ROUNDS)
    machine.until("round 2", lambda: machine.rounds("cut") >= 2)
    machine.cut()
    machine.boot()
    status, seen = _ended(machine, "cut")
    what = "all processes of the machine killed at once in mid-run, and booted"
    return row(what, status, f"{seen}; {_same(machine, 'cut')}")


def renewed(machine: Booted) -> str:
    """Renew the certificate of the SuperLink in mid-run, by the commands of docs/production.md."""
    commands = certificates.documented("systemd")
    certificates.replace(Credentials(machine.keys), ends_in=certificates.SOON)
    for command in commands[1:]:
        machine.typed(command)
    machine.all_online()
    machine.submit("calm", LONG)
    _ended(machine, "calm")
    machine.submit("renewed", LONG)
    machine.until("round 2", lambda: machine.rounds("renewed") >= 2)
    former, before = certificates.served(FLEET), machine.started_again(CLIENTS)
    for command in commands:
        machine.typed(command)
    machine.until("a new certificate", lambda: certificates.served(FLEET) not in (None, former))
    told = certificates.compared(former, certificates.served(FLEET))
    status, seen = _ended(machine, "renewed")
    again = machine.started_again(CLIENTS) - before
    told = f"{seen}; {_same(machine, 'renewed', 'calm')}; {told}; nodes started again: {again}"
    return row(f"{', then '.join(f'`{each}`' for each in commands)}, in mid-run", status, told)


SCENARIOS: tuple[Scenario, ...] = (plain, killed, stopped, renewed, shut_down, power_cut)


def _ended(machine: Booted, name: str) -> tuple[str, str]:
    return ended(machine.outputs / name, machine.until)


def _same(machine: Booted, name: str, like: str = "plain") -> str:
    return same_models(machine.outputs / name, like)


def main() -> None:
    """Boot the machine, run the scenarios and write the table."""
    parser = arguments(__doc__)
    names = [each.__name__ for each in SCENARIOS]
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, help="put their rows into the page"
    )
    only = parser.parse_args().only
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the machine would go on
    with tempfile.TemporaryDirectory(prefix="fl-app-systemd-") as top:
        root = Path(top) / "root"
        subprocess.run(["cp", "--archive", os.environ[ROOT], root], check=True)  # devices too
        (Path(top) / "app").mkdir()
        booted, rows = Booted(root, copied(Path(top) / "app")), list[str]()
        booted.install()
        try:
            booted.boot()
            for scenario in SCENARIOS:
                if scenario.__name__ in only:
                    rows.append(scenario(booted))
                    print(rows[-1], flush=True)
        except BaseException:
            print(booted.run("journalctl", "--no-pager", "--lines=100", must=False), flush=True)
            raise
        finally:
            booted.close()
        version = _version(root)
    if only == names:
        TABLE.write_text(_page(rows, version))
    else:
        put_rows(TABLE, rows)


def _version(root: Path) -> str:
    told = (root / "var" / "lib" / "dpkg" / "status").read_text()
    found = re.search(r"(?ms)^Package: systemd$.*?^Version: (\S+)$", told)
    return found[1] if found else "unknown"


def _page(rows: list[str], version: str) -> str:
    intro = (
        "# systemd\n\n"
        "Written by `benchmarks/systemd.py`, which `scripts/test-systemd` runs,\n"
        f"on {machine()}: the units of `systemd/` with\n"
        f"{NODES} nodes in one container, whose first process is systemd {version} of Debian.\n"
        "Ended: the status in `summary.json`. Other work ran on the same cores.\n\n"
    )
    return intro + "\n".join([*header("what was done", "ended", "seen"), *rows]) + "\n"


if __name__ == "__main__":
    main()
