"""Clocks that jump by an hour in mid-run and are set right a minute later.

Each process of the federation adds what the file `clock` in its own folder says to its clock, by a
small library (clock.c) that is compiled for this.
"""

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from disturbed import Disturbed

COMPILER = "cc"
WRONG_S = 60.0
HOUR_S = 3600
NODE, SERVER = ("supernode-1",), ("superlink", "superexec")
"""Members with the clock of a node's machine, and with that of the server's."""


def jump(federation: Disturbed, name: str, *, members: Sequence[str], by_s: int) -> dict[str, Any]:
    """Play a run whose clocks of some members are wrong for a minute; return how it ended."""
    top = federation.top / f"clocks-{name}"
    top.mkdir()
    with Disturbed(top, {"LD_PRELOAD": str(library(top))}) as own:
        run = own.start(name)
        run.until("round 2", lambda: len(run.rounds()) >= 2)
        files = [own.folder / "homes" / member / "clock" for member in members]
        for file in files:
            file.write_text(f"{by_s}\n")
        time.sleep(WRONG_S)
        for file in files:
            file.unlink()
        return run.outcome()


def library(folder: Path) -> Path:
    """Return the compiled library that moves clocks."""
    found, source = folder / "clock.so", Path(__file__).with_name("clock.c")
    assert shutil.which(COMPILER), "a C compiler must be installed, as by apt-get install gcc"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(found), str(source)], check=True)
    return found
