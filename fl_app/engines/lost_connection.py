"""The end of a ServerApp whose SuperLink did not answer, so that the run can be continued.

Flower tries again when a connection is refused or breaks, but gives up at once if the encryption of
a new one is not agreed upon in time, as with a SuperLink that stands still.
"""

from httpx import TransportError

LOST = "a connection of the ServerApp failed"
"""How the reason begins, by which the process that continues the run knows it."""


class LostConnectionError(RuntimeError):
    """A connection failed after all attempts of Flower."""

    def __init__(self, error: TransportError) -> None:
        super().__init__(f"{LOST}: {type(error).__name__}: {error}")
