"""The process that keeps a federation of `scripts/deploy` until it is told to stop."""

import argparse
import contextlib
import itertools
import signal
import time
from pathlib import Path

from fl_app import deploy_state
from fl_app.composition import CONF
from fl_app.engines import credentials, federation_lock, log_files, membership, private_folder
from fl_app.engines.deployment import RUNS
from fl_app.engines.federation import Federation
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.processes import ProcessError
from fl_app.engines.restarts import LostRuns
from fl_app.run_config import carried

_LOOK_EVERY_S = 10
"""Time between looks for lost runs whose `run` command was killed."""


def keep(folder: Path, options: argparse.Namespace) -> int:
    """Run a federation until SIGTERM or Ctrl-C; `up` does it in a process in the background."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    private_folder.make(folder)
    with federation_lock.file_of(folder).open("a") as held:
        if not federation_lock.lock(held):
            print(deploy_state.used_by_run(folder) or deploy_state.HELD.format(folder))
            return 1
        membership.drop_orders(folder)
        try:
            nodes = deploy_state.first_nodes(folder, options.nodes)
        except ValueError as error:
            print(error)
            return 1
        federation = Federation(
            folder, nodes=nodes, warm=options.warm is not False, data_root=options.data_root
        )
        deploy_state.publish(federation, folder, up=False)
        try:
            with federation:
                _keep_up(federation, folder)
        except (credentials.CredentialsError, FlowerError, ProcessError) as error:
            print(error)
            return 1
        finally:
            held.truncate(0)
    return 0


def _keep_up(federation: Federation, folder: Path) -> None:
    deploy_state.publish(federation, folder, up=True)
    lost = LostRuns(federation.connection, [folder / RUNS], CONF, carried)
    with contextlib.suppress(KeyboardInterrupt):
        for second in itertools.count():
            federation.check()
            if membership.carry_out(federation):
                deploy_state.publish(federation, folder, up=True)
            if second % _LOOK_EVERY_S == 0:
                lost.tell()
                log_files.limit(folder / deploy_state.LOG)
            time.sleep(1.0)
