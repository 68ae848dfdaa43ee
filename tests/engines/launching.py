"""Launchers of a warm process that runs Python programs instead of Flower's command."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl_app.engines import flower_commands, warm_process
from fl_app.engines.warm_clients import WarmClients

STAND_IN = Path(__file__).with_name("warm_stand_in.py")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def stand_in(warm: WarmClients) -> list[str]:
    python, *_, path = warm.command
    return [python, "-P", str(STAND_IN), warm_process.__file__, path]


def install(warm: WarmClients, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the launcher; Flower's own command is a shell script that prints its arguments."""
    own = warm.folder / "own"
    own.write_text('#!/bin/sh\necho own "$@"\n')
    own.chmod(0o700)
    monkeypatch.setattr(flower_commands, "executable", lambda _: str(own))
    warm.install()


def launched(warm: WarmClients, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
    command = [str(warm.commands / "flwr-clientapp"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)
