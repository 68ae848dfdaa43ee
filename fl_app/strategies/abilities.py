"""What a method may have beside the methods of `CommunityStrategy`, by its name alone."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from fl_app.records.serving import Descriptors
from fl_app.strategies.cohort import Rows
from fl_app.types import Weights


@runtime_checkable
class Mixes(Protocol):
    """A method whose models are means of community models for some clients."""

    def mixtures(self, client_ids: Sequence[int]) -> Mapping[int, Weights]:
        """Return these clients, with their weights (k,).

        Such a model, `attribution.mixed`, is stored as its weights instead of its parameters.
        """


@runtime_checkable
class Describes(Protocol):
    """A method that places clients without labels by descriptors of their inputs."""

    def descriptors(self) -> Descriptors | None:
        """Return what places them after the run; None: the models' answers do."""


@runtime_checkable
class AsksSome(Protocol):
    """A method that does not ask every client for every report in `asks`."""

    def asks_of(self, client_id: int) -> Collection[str]:
        """Return the names in `asks` of what this client is to tell with its next model."""


@runtime_checkable
class ReadsLosses(Protocol):
    """A method that reads `replies.losses`, for which clients with a privacy have to be asked."""

    @property
    def wants_loss(self) -> bool:
        """Whether such clients tell their training losses in the next round."""


@runtime_checkable
class Chooses(Protocol):
    """A method whose clients choose their model while they train."""

    def chosen(self, client_id: int) -> int | None:
        """Return the row that a client used last; None: the one of its last evaluation."""


def mixtures(method: object, client_ids: Sequence[int]) -> Mapping[int, Weights]:
    """Return the clients whose model is a mean of community models, with weights (k,)."""
    return method.mixtures(client_ids) if isinstance(method, Mixes) else {}


def descriptors(method: object) -> Descriptors | None:
    """Return what places clients without labels; None: the models' answers do."""
    return method.descriptors() if isinstance(method, Describes) else None


def asked_of(
    method: object, client_ids: Sequence[int], every: Collection[str]
) -> list[Collection[str]]:
    """Return the names of the reports, of `every`, that each client is asked for."""
    if not isinstance(method, AsksSome):
        return [every] * len(client_ids)
    return [method.asks_of(client) for client in client_ids]


def wants_loss(method: object) -> bool:
    """Whether clients with a privacy tell their losses in the next round; else these are NaN."""
    return isinstance(method, ReadsLosses) and method.wants_loss


def asks_losses(kind: Any, options: Mapping[str, Any]) -> bool:
    """Whether clients with a privacy answer by losses in some round, with these settings.

    A method's class `kind` tells it by its class method `asks_losses`; without one, they do if
    they compare models, or may be asked for their losses. With a fallback they tell those on
    samples that they hold out.
    """
    if options.get("fallback") is True:
        return True
    own = getattr(kind, "asks_losses", None)
    if own is not None:
        return bool(own(options))
    return bool(getattr(kind, "compares", False)) or hasattr(kind, "wants_loss")


def decided(
    method: object,
    client_ids: Sequence[int],
    rows: Sequence[Rows],
    evaluated: Mapping[int, int],
) -> list[Rows]:
    """Return of several rows the one that each client used last; none if there is no such.

    `evaluated` has the row that a client used in its last evaluation.
    """
    trained = method.chosen if isinstance(method, Chooses) else evaluated.get

    def last(client_id: int) -> int | None:
        own = trained(client_id)
        return evaluated.get(client_id) if own is None else own

    return [
        every if len(every) == 1 else [row for row in every if row == last(client)]
        for client, every in zip(client_ids, rows, strict=True)
    ]
