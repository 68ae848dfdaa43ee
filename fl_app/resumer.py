"""Submits lost runs again, as a service: for docker-compose.yml and for machines of one's own.

python -m fl_app.resumer --address HOST:PORT --root-certificates ca.crt FOLDER ...
"""

import argparse
import math
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from fl_app.composition import CONF
from fl_app.engines import flower
from fl_app.engines.federation import NAME
from fl_app.engines.flower import Connection
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.restarts import LostRuns
from fl_app.run_config import carried


def main(arguments: Sequence[str] | None = None) -> int:
    """Look for lost runs in the folders, for ever or once; return the exit status."""
    found = parser()
    options = found.parse_args(arguments)
    if not options.root_certificates.is_file():
        found.error(f"--root-certificates must be a file, got {options.root_certificates}")
    for folder in options.folders:
        if not folder.is_dir():
            found.error(f"a folder of runs must be there, got {folder}")
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="fl-app-") as home:
        connection = Connection(NAME, Path(home))
        connection.write(address=options.address, root_certificates=options.root_certificates)
        with suppress(KeyboardInterrupt):
            return _look(connection, options)
    return 130


def _look(connection: Connection, options: argparse.Namespace) -> int:
    answers = _greeted(connection, options)
    lost = LostRuns(connection, options.folders, CONF, carried)
    while True:
        lost.tell()
        if options.looked is not None:
            with suppress(OSError):  # on a full disk it goes on looking
                options.looked.touch()
        if options.once:
            return 0 if answers else 1
        time.sleep(options.every)


def _greeted(connection: Connection, options: argparse.Namespace) -> bool:
    """Say what is looked at; without a lost run, a wrong address would show in nothing else."""
    places = ", ".join(map(str, options.folders))
    try:
        flower.under_way(connection)
    except FlowerError as error:
        print(f"the SuperLink at {options.address} does not answer: {error}", flush=True)
        return False
    print(f"lost runs of {options.address} in {places} are submitted again", flush=True)
    return True


def _stop(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt the end
    raise SystemExit(128 + number)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="resumer", description=__doc__)
    found.add_argument("--address", required=True, help="SuperLink, as host:port")
    found.add_argument("--root-certificates", type=Path, required=True)
    found.add_argument("--every", type=_seconds, default=10.0, help="seconds between looks")
    found.add_argument("--once", action="store_true", help="look once and end")
    found.add_argument("--looked", type=Path, help="file that is touched after each look")
    found.add_argument("folders", type=Path, nargs="+", help="with output folders of runs")
    return found


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
