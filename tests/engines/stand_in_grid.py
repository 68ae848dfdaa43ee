"""What stand-ins for Flower's Grid have in common."""

from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp.grid import Grid
from flwr.supercore.run import Run


class StandInGrid(Grid):
    """A Grid of which a test defines what is used; a call of anything else fails the test."""

    def set_run(self, run: Run) -> None:
        raise AssertionError("set_run must not be called")

    @property
    def run(self) -> Run:
        raise AssertionError("run must not be read")

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise AssertionError("create_message must not be called")

    def send_and_receive(self, *_: Any, **__: Any) -> Iterable[Message]:
        raise AssertionError("send_and_receive must not be called")
