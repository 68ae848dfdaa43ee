"""What each client has of its own beside the shared model: nothing, a model, or the last layers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt
from torch import nn

from fl_app.client.normalisation import Sharing, local_names
from fl_app.types import Text

Names = tuple[str, ...]
Phase = tuple[Names | None, int | None]
"""Parameters to train, None for all, and the epochs, None for those of the client."""


class Personal(ABC):
    """What of a model is a client's own.

    `name` is its option in conf/personal. `own_model` is whether a client trains a whole model
    beside the shared one. `needs_sgd` is whether it changes the training itself, and not only what
    is sent.
    """

    name: ClassVar[str]
    own_model: ClassVar[bool] = False
    needs_sgd: ClassVar[bool] = True

    @abstractmethod
    def kept(self, module: nn.Module) -> Names:
        """Return the names of the parameters and buffers of `module` that stay with each client."""

    def phases(self, module: nn.Module) -> Sequence[Phase]:
        """Return the phases of a client's training, in order."""
        return [(None, None)]

    def brief(self) -> "Personal":
        """Return the same for a trial before the run, which trains for one epoch."""
        return self


class Shared(Personal):
    """Nothing: every client uses the model that it receives."""

    name = "none"
    needs_sgd = False

    def kept(self, module: nn.Module) -> Names:
        """Return no name."""
        return ()


class Ditto(Personal):
    """A model of its own, trained beside the shared one and kept close to it.

    After training the received model w as without it, client k makes SGD steps on its own model
    from where it was left, `v <- v - lr (gradient F_k(v) + proximal (v - w))`, which is the loss
    `F_k(v) + proximal / 2 ||v - w||^2`. v is first w. Li et al., ICML 2021, "Ditto: fair and
    robust federated learning through personalization". w is the model of the client's community.
    Difference: a client that has never trained uses the shared model.
    """

    name = "ditto"
    own_model = True

    def __init__(
        self, *, proximal: Annotated[float, Field(ge=0)], epochs: PositiveInt | None
    ) -> None:
        self.proximal, self.epochs = proximal, epochs

    def brief(self) -> Personal:
        """Return the same with one epoch for the own model."""
        found = copy(self)
        found.epochs = 1
        return found

    def kept(self, module: nn.Module) -> Names:
        """Return no name: the shared model is sent whole."""
        return ()


class FedPer(Personal):
    """The last layers: each client trains them with the rest, and sends only the rest.

    Arivazhagan et al., 2019, "Federated learning with personalization layers". Difference: all
    clients begin with the same last layers, those that the network's constructor made.
    """

    name = "fedper"
    needs_sgd = False

    def __init__(self, *, head: list[Text]) -> None:
        self.head = head

    def kept(self, module: nn.Module) -> Names:
        """Return the head, with the buffers of its layers; raises ValueError as `head_of`."""
        return head_of(module, self.head)


class FedRep(FedPer):
    """The last layers, trained first, while the rest is as received; then the rest alone.

    Collins et al., ICML 2021, "Exploiting shared representations for personalized federated
    learning". Running statistics of batch normalisation change in both phases.
    """

    name = "fedrep"
    needs_sgd = True

    def __init__(self, *, head: list[Text], head_epochs: PositiveInt) -> None:
        super().__init__(head=head)
        self.head_epochs = head_epochs

    def brief(self) -> Personal:
        """Return the same with one epoch for the head."""
        found = copy(self)
        found.head_epochs = 1
        return found

    def phases(self, module: nn.Module) -> Sequence[Phase]:
        """Return the head for `head_epochs`, then the rest for the client's epochs."""
        head = set(self.kept(module))
        names = [name for name, each in module.named_parameters() if each.requires_grad]
        rest = tuple(name for name in names if name not in head)
        return [(tuple(name for name in names if name in head), self.head_epochs), (rest, None)]


def staying(module: nn.Module, sharing: Sharing, personal: Personal) -> Names:
    """Return the names of all that stays with each client, once each; raises ValueError as both."""
    return tuple(dict.fromkeys((*local_names(module, sharing), *personal.kept(module))))


def reason(sharing: Sharing, name: str) -> str:
    """Return the settings because of which something stays with a client; empty if nothing does."""
    found = ["client.batch_norm=local"] * (sharing == "local")
    found += [f"personal={name}"] * (name != Shared.name)
    return " and ".join(found)


def head_of(module: nn.Module, patterns: Sequence[str]) -> Names:
    """Return the trained parameters that match a pattern, and the buffers of their layers.

    Without patterns it is the last layer with trained parameters, in the order of the constructor.
    Raises ValueError for a pattern without a parameter, and if no parameter would be shared.
    """
    names = [name for name, each in module.named_parameters() if each.requires_grad]
    shown = f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(
                "personal.head must have patterns that match a trained parameter, got "
                f"{pattern!r}; the parameters are {shown}"
            )
    if patterns:
        found = [name for name in names if any(fnmatchcase(name, each) for each in patterns)]
    else:
        found = [name for name in names if _owner(name) == _owner(names[-1])]
    if len(found) == len(names):
        raise ValueError(
            f"personal.head must leave a layer that clients share, got all of {shown}; give fewer "
            "patterns, or use a network with more layers"
        )
    owners = {_owner(name) for name in found}
    return (*found, *(name for name, _ in module.named_buffers() if _owner(name) in owners))


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


@contextmanager
def training_only(module: nn.Module, names: Names | None) -> Iterator[None]:
    """Train only these parameters of `module` in the block; None: all."""
    others = [
        each
        for name, each in module.named_parameters()
        if names is not None and each.requires_grad and name not in names
    ]
    for each in others:
        each.requires_grad_(False)
        each.grad = None
    try:
        yield
    finally:
        for each in others:
            each.requires_grad_(True)
