"""A Debian with systemd as its first process, in a container, with the units of systemd/."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from waiting import online, wait_for

from fl_app.engines import credentials, flower
from fl_app.engines.flower import Connection
from fl_app.records.history import read_rounds
from fl_app.records.names import ROUNDS

NODES = 2
SERVER = ("fl-superlink", "fl-superexec", "fl-registrar", "fl-resumer")
CLIENTS = tuple(f"fl-node@{node}" for node in range(NODES))
SERVICES = (*SERVER, *CLIENTS)
USERS = ("fl-superlink", "fl-runs", "fl-node")
DEADLINE_S = 900.0
_APP = "/opt/fl-app"
_PYTHON = [str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix)]
_TRY = f"""[Service]
# The checkout under test, whose Python may be in a home of this machine.
Environment=PYTHONPATH={_APP}
ProtectHome=tmpfs
BindReadOnlyPaths={" ".join(_PYTHON)}
"""


class Booted:
    """A container whose root is the folder `root`, with a copy of the checkout at /opt/fl-app.

    It shares the network of this process, in which nothing else may run.
    """

    def __init__(self, root: Path, checkout: Path) -> None:
        self.root, self.checkout = root, checkout
        self.outputs = root / "var" / "lib" / "fl-outputs"
        self.keys = checkout / "deployment" / "keys"
        self.connection = Connection("systemd", checkout / "deployment" / "systemd")
        self._container: subprocess.Popen[bytes] | None = None

    def install(self) -> None:
        """Put units, users, keys and settings in their places, as docs/production.md says."""
        units, etc = self.root / "etc" / "systemd" / "system", self.root / "etc" / "fl-app"
        shutil.copytree(self.checkout / "systemd" / "fl-.service.d", units / "fl-.service.d")
        for unit in (self.checkout / "systemd").glob("fl-*.service"):
            shutil.copy(unit, units)
        (units / "fl-.service.d" / "try.conf").write_text(_TRY)
        (units / f"{CLIENTS[1]}.service.d").mkdir()
        port = "[Service]\nEnvironment=FL_NODE_PORT=9095\n"  # both nodes are on this machine
        (units / f"{CLIENTS[1]}.service.d" / "port.conf").write_text(port)
        keys = credentials.ensure(self.keys, nodes=NODES)
        served = (keys.authority, keys.certificate, keys.key, keys.secret)
        private = map(keys.node_key, range(NODES))
        public = map(keys.node_public_key, range(NODES))
        _run("install", "-D", "-m", "600", "-t", f"{etc}/keys", *map(str, (*served, *private)))
        _run("install", "-D", "-m", "644", "-t", f"{etc}/nodes", *map(str, public))
        self.connection.write(address="127.0.0.1:8000", root_certificates=keys.authority)
        given = f"FL_SUPERLINK=127.0.0.1:9092\nFL_CLIENTS={NODES}\nFL_DATA=/srv/data\n"
        (etc / "node.conf").write_text(given)
        (self.root / "srv" / "data").mkdir(exist_ok=True)
        users = self.root / "etc" / "sysusers.d"
        users.mkdir(exist_ok=True)
        shutil.copy(self.checkout / "systemd" / "users.conf", users / "fl-app.conf")
        _run("systemd-sysusers", f"--root={self.root}")
        _run("systemctl", f"--root={self.root}", "enable", *SERVICES)
        (self.checkout / ".venv").symlink_to(_PYTHON[0])

    def boot(self) -> None:
        """Start the machine, and wait until its nodes are online."""
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]
        words += ["--directory", str(self.root), f"--bind-ro={self.checkout}:{_APP}"]
        words += [f"--bind-ro={place}" for place in _PYTHON]
        with (self.root.parent / "console.log").open("ab") as log:
            self._container = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.all_online()

    def off(self) -> None:
        """Shut the machine down as a person would, and wait for its end."""
        assert self._container is not None
        self.run("systemctl", "poweroff", must=False)
        self._container.wait(DEADLINE_S)

    def cut(self) -> None:
        """End all processes of the machine at once."""
        assert self._container is not None
        os.kill(self.first, signal.SIGKILL)
        self._container.kill()
        self._container.wait()

    def close(self) -> None:
        """End the machine if it still runs."""
        if self._container is not None and self._container.poll() is None:
            self.cut()

    @property
    def first(self) -> int:
        """The id of systemd, as this machine sees it."""
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        return int(children.read_text().split()[0])

    def run(self, *words: str, must: bool = True) -> str:
        """Run a command in the machine and return its output."""
        inside = ["nsenter", "--target", str(self.first), "--mount", "--pid", "--uts", "--ipc"]
        return _run(*inside, *words, must=must)

    def typed(self, command: str) -> None:
        """Run a command of the docs in /opt/fl-app; as that is read-only, `deploy` runs outside."""
        if command.startswith("scripts/deploy "):
            words = [sys.executable, "-m", "fl_app.deploy", *command.split()[1:]]
            there = {**os.environ, "PYTHONPATH": str(self.checkout)}
            subprocess.run(words, cwd=self.checkout, env=there, check=True)
        else:
            self.run("sh", "-c", f"cd {_APP} && {command}")

    def started_again(self, services: Sequence[str]) -> int:
        """Return how often systemd started services again by itself."""
        told = self.run("systemctl", "show", "--property=NRestarts", *services)
        return sum(int(line.partition("=")[2]) for line in told.split())

    def left(self) -> list[str]:
        """Return the processes of the services, each as its user and its command."""
        lines = self.run("ps", "-eo", "user:16,args", "--no-headers").splitlines()
        return [line for line in lines if line.split()[0] in USERS]

    def submit(self, name: str, rounds: int) -> None:
        """Submit a run of the demo, whose records are in `outputs`/<name>."""
        given = ["experiment=federation_demo", f"rounds={rounds}", "strategy.cluster_round=1"]
        given += [f"population.clients={NODES}", "engine.min_success=1"]
        given += [f"records.evaluate_every={rounds}", "records.checkpoint_every=1"]
        given += [f"records.folder=/var/lib/fl-outputs/{name}", "engine.connect_timeout_s=900"]
        text = " ".join(given)
        flower.submit(self.connection, self.checkout, overrides=text, federation={})

    def rounds(self, name: str) -> int:
        """Return the number of rounds that a run has recorded."""
        folder = self.outputs / name
        return len(read_rounds(folder)) if (folder / ROUNDS).exists() else 0

    def all_online(self) -> None:
        """Wait until every node is online."""
        self.until("all nodes online", lambda: online(self.connection) == NODES)

    def until(self, what: str, found: Callable[[], bool]) -> None:
        """Wait until `found` holds; raises TimeoutError."""
        wait_for(what, found, seconds=DEADLINE_S, every=3.0)  # a look at Flower is a process


def _run(*words: str, must: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if must and done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout
