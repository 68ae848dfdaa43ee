"""The `scripts/deploy` command: a federation on this machine, of three nodes at first, for tests.

deploy | deploy demo        up, a short demo run, down
deploy up | status | down   start it in the background with the nodes it had last, or with
                            --nodes N; show its status; stop it
deploy keep                 start it in the foreground, until SIGTERM or Ctrl-C
deploy run [overrides]      a run of fl-app on it; Hydra overrides as for fl-app
deploy add-node             start another node; --node N: as client N
deploy remove-node --node N stop a node for good; its key is refused at once
deploy rotate-keys          new keys for all nodes, one by one; --node N: for one node
deploy renew-certificate    a new certificate of the SuperLink, which is started again with it
deploy keys                 keys, nodes, settings and a Flower home for docker-compose.yml
"""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fl_app import deploy_arguments
from fl_app.command_words import override
from fl_app.deploy_clients import clients_of
from fl_app.deploy_keeper import keep
from fl_app.deploy_state import HELD, LOG, keeper, told_of_count, used_by_run
from fl_app.engines import (
    compose,
    credentials,
    flower,
    membership,
    private_folder,
    watchdog,
)
from fl_app.engines.federation import NAME
from fl_app.engines.federation_lock import holder
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.node_ids import offline
from fl_app.engines.nodes import online
from fl_app.engines.processes import tail
from fl_app.schema import USAGE_ERROR

_REPO = Path(__file__).resolve().parent.parent
_FOLDER = _REPO / "deployment"
_DEMO = ["experiment=federation_demo"]
_DECIDED = ("engine", "engine.connection", "engine.folder", "population.clients")
"""Settings of a run that its federation decides."""
_UP_TIMEOUT_S = 300.0
_DOWN_TIMEOUT_S = 60.0
_CHANGE_TIMEOUT_S = 300.0
_POLL_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options, overrides = deploy_arguments.read(arguments, _FOLDER, __doc__)
    folder: Path = options.folder.resolve()
    try:
        return _act(folder, options, overrides)
    except KeyboardInterrupt:
        return 130
    except (TimeoutError, ValueError, FlowerError) as error:
        print(error)
    except OSError as error:
        print(f"{folder} must be a folder with room in which you can read and write: {error}")
    return 1


def _act(folder: Path, options: argparse.Namespace, overrides: Sequence[str]) -> int:
    match options.action:
        case "up":
            return up(folder, options)
        case "run":
            return run(folder, overrides)
        case "status":
            return show_status(folder)
        case "down":
            return down(folder)
        case "keys":
            return keys(folder, options)
        case membership.ADD | membership.REMOVE | membership.ROTATE | membership.RENEW:
            return change(folder, options.action, options.node)
        case "keep":
            return keep(folder, options)
        case _:
            return demo(folder, options)


def demo(folder: Path, options: argparse.Namespace) -> int:
    """Start a federation, run the demo on it, stop it; return the status of the run."""
    started = up(folder, options)
    if started != 0:
        return started
    words = [sys.executable, "-m", "fl_app.deploy", "run", "--folder", str(folder), *_DEMO]
    try:
        with subprocess.Popen(words) as child:
            former = signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
            try:
                return _ended(child)
            finally:
                signal.signal(signal.SIGTERM, former)
    finally:
        down(folder)


def _ended(child: "subprocess.Popen[bytes]") -> int:
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue  # the child was interrupted too and stops the run


def up(folder: Path, options: argparse.Namespace) -> int:
    """Start a federation in the background; return when its nodes are online."""
    if holder(folder) is not None:
        print(used_by_run(folder) or HELD.format(folder))
        return 1
    private_folder.make(folder)
    for told in told_of_count(folder, options.nodes):
        print(told)
    words = [sys.executable, "-m", "fl_app.deploy", "keep", "--folder", str(folder)]
    words += [] if options.nodes is None else ["--nodes", str(options.nodes)]
    words += ["--no-warm"] if options.warm is False else []
    root: Path | None = options.data_root
    words += [] if root is None else ["--data-root", str(root.resolve())]
    log = folder / LOG
    log.unlink(missing_ok=True)
    with log.open("ab") as output:  # in append mode, as the keeper empties it
        child = subprocess.Popen(
            words,
            cwd=_REPO,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return _wait_until_up(folder, child, log)
    except BaseException:
        child.terminate()
        child.wait(_DOWN_TIMEOUT_S)
        raise


def _wait_until_up(folder: Path, child: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + _UP_TIMEOUT_S
    while (state := keeper(folder)) is None:
        if child.poll() is not None:
            print(f"the federation did not start; see the end of {log}:\n{tail(log)}")
            return 1
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the federation must start within {_UP_TIMEOUT_S:g} s; see {log} and "
                f"{folder / 'logs'}; on a busy machine, repeat the command when it has less to do"
            )
        time.sleep(_POLL_S)
    print(f"the federation is running; keys, logs and Flower's home are in {folder}")
    home = shlex.quote(str(folder / "home"))
    where = "" if folder == _FOLDER else f" --folder {shlex.quote(str(folder))}"
    if refused := state.get("refused"):
        told = "not in nodes.json, as those of an older database, and were unregistered"
        print(f"Flower's nodes {refused} were {told}")
    numbers = _numbers(state)
    print(f"nodes {numbers} are online; use them: scripts/deploy run{where}")
    if numbers and numbers == list(range(len(numbers))):
        words = " ".join([*_DEMO, f"population.clients={len(numbers)}"])
        print(
            f"or FLWR_HOME={home} flwr run . {NAME} --stream --run-config 'overrides=\"{words}\"'"
        )
    return 0


def change(folder: Path, action: str, node: int | None) -> int:
    """Add, remove or renew a node of the running federation; return 0 if it was done."""
    if keeper(folder) is None:
        print(_absent(folder))
        return 1
    try:
        with _ended_like_ctrl_c():
            print(membership.ask(folder, action, node, timeout_s=_CHANGE_TIMEOUT_S))
    except (membership.OrderError, TimeoutError) as error:
        print(error)
        return 1
    return 0


@contextlib.contextmanager
def _ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and the end of the terminal interrupt the block, so that it can clean up."""
    every = [signal.SIGTERM, signal.SIGHUP]
    caught = [each for each in every if signal.getsignal(each) == signal.SIG_DFL]
    for each in caught:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in caught:
            signal.signal(each, signal.SIG_DFL)


def _absent(folder: Path) -> str:
    """Return why no federation can be used in a folder."""
    if (told := used_by_run(folder)) is not None:
        return told
    if holder(folder) is not None:
        return f"the federation in {folder} is just starting or stopping; try again in a moment"
    return f"no federation is running in {folder}; start one with scripts/deploy up"


def run(folder: Path, overrides: Sequence[str]) -> int:
    """Become fl-app with a run on the running federation; return only if there is no run.

    As a child, fl-app would outlive a kill of this process, and hold the output folder.
    """
    state = keeper(folder)
    if state is None:
        print(_absent(folder))
        return 1
    nodes = _numbers(state)
    if not nodes:
        print("the federation has no nodes; add one with scripts/deploy add-node")
        return 1
    if given := [each for each in overrides if each.partition("=")[0].lstrip("+") in _DECIDED]:
        fewer = "; for fewer clients, type scripts/deploy down, and up --nodes with their number"
        more = fewer if any("population.clients" in each for each in given) else ""
        print(f"{', '.join(given)} must not be given: the federation decides it; remove it{more}")
        return USAGE_ERROR
    overrides = overrides or _DEMO
    clients = clients_of(overrides, nodes)
    words = [sys.executable, "-m", "fl_app.main", *overrides]
    words += ["engine=deployment", f"engine.connection={NAME}"]
    words += [override("engine.folder", str(folder)), f"population.clients={clients}"]
    if missing := sorted(set(range(clients)) - set(nodes)):
        print(f"without clients {missing}, whose nodes were removed; add-node brings them back")
        words += ["engine.nodes_timeout_s=9999", "engine.connect_timeout_s=15"]
    sys.stdout.flush()
    os.execv(sys.executable, words)


def _numbers(state: dict[str, object]) -> list[int]:
    nodes = state["nodes"]
    assert isinstance(nodes, list)
    return nodes


def show_status(folder: Path) -> int:
    """Print whether a federation is running and how many nodes are online; 0 if all are."""
    state = keeper(folder)
    if state is None:
        print(_absent(folder))
        return 3
    connection = flower.Connection(NAME, folder / "home")
    numbers = _numbers(state)
    try:
        connected = online(connection)
    except FlowerError as error:
        print(f"running, keeper {state['pid']}, but its SuperLink does not answer: {error}")
        return 1
    absent = offline(folder, numbers, connected)
    without = f", without nodes {absent}" if absent else ""
    print(
        f"running, keeper {state['pid']}: {len(connected)} of {len(numbers)} nodes online{without}"
    )
    return 0 if len(connected) == len(numbers) else 1


def down(folder: Path) -> int:
    """Stop the federation and everything it started; return 0, also if none is running."""
    deadline = time.monotonic() + _DOWN_TIMEOUT_S
    former: dict[str, object] = {}
    if holder(folder) is None:
        print(f"no federation is running in {folder}")
        return 0
    if (told := used_by_run(folder)) is not None:
        print(told)
        return 1
    while (state := holder(folder)) is not None:
        if state and not former:
            former = state
            _signal(former, signal.SIGTERM)
        if time.monotonic() > deadline:
            _signal(former, signal.SIGKILL)
            break
        time.sleep(_POLL_S)
    if former:
        watchdog.sweep(str(former["mark"]))
    print("the federation is stopped")
    return 0


def _signal(state: dict[str, object], number: signal.Signals) -> None:
    if state:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(int(str(state["pid"])), number)


def keys(folder: Path, options: argparse.Namespace) -> int:
    """Create all that docker-compose.yml needs, and a connection `compose` to it."""
    try:
        given = {"nodes": options.nodes, "gpus": options.gpus, "warm": options.warm}
        print(compose.prepare(_REPO, folder, hosts=options.hosts, **given))
    except (compose.ForeignFileError, credentials.CredentialsError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
