"""A federation over gRPC: SuperLink, SuperExec and SuperNodes as separate processes.

It uses TLS, node authentication and a database for the SuperLink; processes that end are
restarted with back-off. Here all run on loopback; docker-compose.yml runs them in containers.
"""

import os
import time
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path
from types import TracebackType
from typing import Self

from fl_app.engines import (
    commands,
    credentials,
    flower,
    flower_commands,
    log_files,
    private_folder,
    warm_clients,
)
from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.member import BACK_OFF_S, Member
from fl_app.engines.node_ids import FILE, offline, registered, remember
from fl_app.engines.nodes import REFUSED, let_in, online, register, unregister
from fl_app.engines.ports import free_ports
from fl_app.engines.processes import Process, Supervisor, wait_for_line, wait_for_port
from fl_app.engines.warm_clients import WarmClients
from fl_app.records.audit import AuditLog, actor, fingerprint

log = getLogger(__name__)
NAME = "fl-app"
"""Name of a private federation's connection in its own Flower home."""
MAX_NODES = 16
_START_TIMEOUT_S = 120.0
_ONLINE_TIMEOUT_S = 120.0
_BACK_OFF_MAX_S = 30.0
_SOUND_AFTER_S = 60.0
_SUPERLINK, _SUPEREXEC = "superlink", "superexec"
_STATE = "state.db"
_FLEET_READY = "Starting Fleet API"


class Federation:
    """A context manager: the processes of the federation run only inside its block.

    `folder` contains keys, database, Flower homes and logs; a later federation continues them.
    `nodes` are the numbers of its first SuperNodes; a count n means 0 to n - 1.
    With `warm`, clients are forks of a process with loaded libraries, if the system allows it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int | Sequence[int],
        warm: bool,
        data_root: Path | None = None,
    ) -> None:
        if isinstance(nodes, int) and not 1 <= nodes <= MAX_NODES:
            raise ValueError(
                f"nodes must be in 1..{MAX_NODES} on one machine, got {nodes}; lower "
                "population.clients, or use a larger federation with engine.connection"
            )
        self.folder = folder.resolve()
        self.first = range(nodes) if isinstance(nodes, int) else nodes
        self.nodes = len(self.first)
        self.warm = warm and warm_clients.available()
        self.data_root = data_root
        self.connection = Connection(NAME, self.folder / "home")
        self.members: list[Member] = []
        self.restarts = 0
        self.refused: list[str] = []
        self.keys = credentials.Credentials(self.folder / "keys")
        self.audit: AuditLog | None = None
        self._fleet = ""
        self._supervisor = Supervisor(self.connection.environment())

    def __enter__(self) -> Self:
        free_ports(2 + self.nodes)  # without them, nothing is made
        private_folder.make(self.folder)
        self.keys = credentials.ensure(self.folder / "keys", nodes=self.first)
        credentials.must_have_private_keys(self.keys, self.first)
        self.audit = AuditLog(self.folder)
        self.audit.append("federation started", by=actor(), nodes=self.nodes)
        if self.warm:
            self._supervisor.scratch = warm_clients.new_folder()
        self._supervisor.__enter__()
        try:
            if self._supervisor.scratch is not None:
                self._start_warm(WarmClients(self._supervisor.scratch))
            self._start()
        except BaseException:
            self._supervisor.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._supervisor.stop()
        if self.audit is not None:
            self.audit.append("federation stopped", by=actor())

    @property
    def numbers(self) -> list[int]:
        """The numbers of the SuperNodes, which are their client ids."""
        return sorted(each.number for each in self.members if each.number is not None)

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the federation's processes."""
        return self._supervisor

    def check(self) -> None:
        """Limit the logs, and restart members that have ended or cannot go on.

        A restart comes after 1 s, 2 s, 4 s, ... up to 30 s. The wait grows because the SuperLink
        rejects a killed SuperNode (code 305) until it has noticed that the node is gone, which
        takes about a minute.
        """
        now = time.monotonic()
        for member in self.members:
            if (fault := member.fault()) is not None:
                log.warning("%s is restarted: %s", member.name, fault)
                self._supervisor.end(member.process)
            if member.process.alive:
                if now - member.started > _SOUND_AFTER_S:
                    member.wait_s = BACK_OFF_S
            elif member.due is None:
                if member.number is not None and member.process.popen.returncode == 0:
                    log.warning("%s has ended: %s", member.name, REFUSED)
                member.due = now + member.wait_s
                member.wait_s = min(2 * member.wait_s, _BACK_OFF_MAX_S)
            elif now >= member.due:
                if member.number is not None:  # another program may listen on its port by now
                    member.command[1:] = self._node_words(member.number)[1:]
                member.started_as(self._launch(member.name, member.command, member.home))
                self.restarts += 1
            log_files.limit(member.process.log)

    def _start_warm(self, warm: WarmClients) -> None:
        """Start the warm process; its imports go on while the others start."""
        warm.install()
        environment = self._supervisor.environment
        environment["PATH"] = os.pathsep.join([str(warm.commands), environment["PATH"]])
        self._add(warm_clients.NAME, warm.command)

    def _start(self) -> None:
        keys = self.keys
        port, fleet_port = free_ports(2)
        address = f"127.0.0.1:{port}"
        new = not (self.folder / _STATE).exists()
        words = commands.superlink(
            keys, host="127.0.0.1", port=port, fleet_port=fleet_port, state=self._state()
        )
        superlink = self._add(_SUPERLINK, words)
        wait_for_line(superlink, _FLEET_READY, timeout_s=_START_TIMEOUT_S)
        wait_for_port(superlink, port, timeout_s=_START_TIMEOUT_S)
        self._add(_SUPEREXEC, commands.superexec(keys, address=address))
        self.connection.write(address=address, root_certificates=keys.authority)
        self._fleet = f"127.0.0.1:{fleet_port}"
        if not new:
            self.refuse_unknown()
        for node in self.first:
            self.start_node(node)
        self._wait_until_online()

    def start_node(self, number: int) -> None:
        """Register the key of a node and start its SuperNode."""
        key = self.keys.node_public_key(number)
        node_id = register(self.connection, key)
        if node_id is not None:
            remember(self.folder, number, node_id)
            self._note("registered", number, node_id)
        self._add(f"supernode-{number}", self._node_words(number), number)

    def _node_words(self, number: int) -> list[str]:
        """Return the command of a SuperNode, with a port that is free now."""
        (port,) = free_ports(1)
        return commands.supernode(
            self.keys,
            node=number,
            nodes=1 + max([number, *self.first]),
            superlink=self._fleet,
            port=port,
            data_root=None if self.data_root is None else str(self.data_root.resolve()),
            state_folder=self._state_folder,
        )

    def unregister_node(self, number: int) -> None:
        """Make the SuperLink refuse the key of a node; raises FlowerError."""
        node_id = registered(self.folder).get(number)
        if node_id is None:
            raise FlowerError(
                f"the id of node {number} must be noted in {self.folder}, and is not; find it with "
                f"flwr supernode list and remove it with flwr supernode unregister"
            )
        unregister(self.connection, node_id)
        self._note("unregistered", number, node_id)
        remember(self.folder, number, None)

    def refuse_unknown(self) -> None:
        """Unregister the nodes whose ids are not noted in the folder; raises FlowerError.

        A copy of the database that was put back has the keys that were removed or replaced since.
        """
        self.refused = sorted(let_in(self.connection) - set(registered(self.folder).values()))
        for node_id in self.refused:
            unregister(self.connection, node_id)
            if self.audit is not None:
                why = f"not in {FILE}"
                self.audit.append("unregistered", client=None, node=node_id, why=why, by=actor())

    def stop_member(self, member: Member) -> None:
        """Stop a member for good."""
        self.members.remove(member)
        self._supervisor.end(member.process)

    def restart_superlink(self) -> None:
        """Stop the SuperLink, which `check` starts again; nodes and runs wait for it."""
        (member,) = (each for each in self.members if each.name == _SUPERLINK)
        self._supervisor.end(member.process)

    def _note(self, event: str, number: int, node_id: str) -> None:
        if self.audit is not None:
            key = fingerprint(self.keys.node_public_key(number))
            self.audit.append(event, client=number, node=node_id, key=key, by=actor())

    def _state(self) -> str:
        """Return the URL of the SuperLink's database, relative to where the SuperLink runs.

        Flower encodes a space or a percent sign of a path in one of two places only, and would
        look for its tables in another file than the one that it made.
        """
        path = os.path.relpath(self.folder / _STATE, self._home(_SUPERLINK))
        return f"sqlite:///{path}"

    def _home(self, name: str) -> Path:
        return self.folder / "homes" / name

    @property
    def _state_folder(self) -> str | None:
        """Where that stays which never leaves the clients; None: Flower cannot read its name."""
        folder = str(self.folder / "clients")
        return None if any(sign in folder for sign in "'\n") else folder

    def _wait_until_online(self) -> None:
        deadline = time.monotonic() + _ONLINE_TIMEOUT_S
        while len(up := online(self.connection)) < self.nodes:
            self.check()
            if time.monotonic() > deadline:
                absent = offline(self.folder, self.numbers, up)
                told = [member.last_words() for member in self.members if member.number in absent]
                raise FlowerError(
                    f"{self.nodes} SuperNodes must be online within {_ONLINE_TIMEOUT_S:g} s, "
                    f"got {len(up)}; see {self.folder / 'logs'}\n" + "\n".join(told)
                )

    def _add(self, name: str, words: list[str], number: int | None = None) -> Process:
        words = [flower_commands.executable(words[0]), *words[1:]]
        home = self._home(name)
        process = self._launch(name, words, home)
        self.members.append(Member(name, words, home, process, number))
        return process

    def _launch(self, name: str, words: list[str], home: Path) -> Process:
        home.mkdir(parents=True, exist_ok=True)
        log = self.folder / "logs" / f"{name}.log"
        own = {"FLWR_HOME": str(home)}  # two processes cannot install a bundle in one home
        if name == _SUPEREXEC:
            own[flower.POLL] = flower.POLL_OF_SERVER
        return self._supervisor.start(name, words, log=log, cwd=home, extra=own)
