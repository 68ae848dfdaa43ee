"""Submits lost runs again, as a service: for docker-compose.yml and for machines of one's own.

python -m fl_app.resumer --address HOST:PORT --root-certificates ca.crt FOLDER ...
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fl_app.config import CONF
from fl_app.engines.federation import NAME
from fl_app.engines.flower import Connection
from fl_app.engines.restarts import LostRuns
from fl_app.run_config import carried


def main(arguments: Sequence[str] | None = None) -> None:
    """Look for lost runs in the folders, for ever or once."""
    options = parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fl-app-") as home:
        connection = Connection(NAME, Path(home))
        connection.write(address=options.address, root_certificates=options.root_certificates)
        lost = LostRuns(connection, options.folders, CONF, carried)
        while True:
            lost.tell()
            if options.looked is not None:
                with suppress(OSError):  # on a full disk it goes on looking
                    options.looked.touch()
            if options.once:
                return
            time.sleep(options.every)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(prog="resumer", description=__doc__)
    found.add_argument("--address", required=True, help="SuperLink, as host:port")
    found.add_argument("--root-certificates", type=Path, required=True)
    found.add_argument("--every", type=float, default=10.0, help="seconds between looks")
    found.add_argument("--once", action="store_true", help="look once and end")
    found.add_argument("--looked", type=Path, help="file that is touched after each look")
    found.add_argument("folders", type=Path, nargs="+", help="with output folders of runs")
    return found


if __name__ == "__main__":
    main()
