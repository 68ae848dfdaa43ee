"""Attacks: which clients are malicious, when they attack, and what they change.

An attack changes data before training or updates after it. It is a setting of the run that only
clients know. The functions that it applies are those of fl_app.client.poisoning.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from fl_app.client import poisoning
from fl_app.rng import generator
from fl_app.types import NonNegativeInt, PositiveInt, Vector, Vectors
from fl_app.used_with import UsedWith, When

Share = Annotated[float, Field(ge=0, le=1)]


class Accomplices(Protocol):
    """Returns the honest updates (m, d) known to the colluders, from the received model."""

    def __call__(self) -> Vectors: ...


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The behaviour of malicious clients; this base class does nothing.

    `clients` are the ids of the malicious clients; without it, `share` of all clients is drawn
    with the seed. They attack from round `start` to `stop` inclusive, and are honest in other
    rounds.
    """

    used_with: ClassVar[UsedWith] = {"share": When("clients", (None,))}

    share: Share
    clients: list[NonNegativeInt] | None
    start: PositiveInt
    stop: PositiveInt | None

    collusive = False
    simulation_only = False
    needs_images = False

    def malicious(self, clients: int, *, seed: int) -> frozenset[int]:
        """Return the malicious clients among the ids 0..`clients` - 1."""
        if self.clients is not None:
            return frozenset(self.clients)
        draw = generator(seed, purpose="malicious")
        count = round(self.share * clients)
        return frozenset(draw.choice(clients, count, replace=False).tolist())

    def check(self, *, clients: int, classes: int) -> None:
        """Raise ValueError for clients or labels that do not exist."""
        strangers = [client for client in self.clients or [] if client >= clients]
        if strangers:
            raise ValueError(
                f"attack.clients must be below population.clients={clients}, got {strangers}; "
                "client ids start at 0"
            )
        for name in ("target", "source"):
            label = getattr(self, name, None)
            if label is not None and label >= classes:
                raise ValueError(
                    f"attack.{name} must be below the {classes} classes, got {label}; labels "
                    "start at 0"
                )

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise ValueError for an attack that does not fit inputs of this shape, as (C, H, W)."""

    def active(self, server_round: int) -> bool:
        """Whether malicious clients attack in this round."""
        return self.start <= server_round and (self.stop is None or server_round <= self.stop)

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the training data (s, C, H, W) and (s,) as changed by this attack."""
        return images, labels

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        """Return the update (d,) that is sent instead of the true one."""
        return update

    def trial(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return test images for the attack, and the labels that it wants for them.

        From a client's test images (s, C, H, W) and labels (s,). None: the attack has no trial,
        or no image can be used for it.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """All clients are honest."""


@dataclass(frozen=True, kw_only=True)
class MinusGrad(Attack):
    """Sends the negative of the true update."""

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.minus_grad(update)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Attack):
    """Sends noise of standard deviation `sigma` instead of an update."""

    sigma: PositiveFloat

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.gaussian(update, sigma=self.sigma, generator=draw)


@dataclass(frozen=True, kw_only=True)
class Scaled(Attack):
    """Sends `factor` times the true update; a negative factor reverses it."""

    factor: float

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.scaled(update, factor=self.factor)


@dataclass(frozen=True, kw_only=True)
class Zero(Attack):
    """Sends back the model that it received."""

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.zero(update)


@dataclass(frozen=True, kw_only=True)
class Random(Attack):
    """Sends an update in a random direction with the length of the true update."""

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.random(update, generator=draw)


@dataclass(frozen=True, kw_only=True)
class Collusion(Attack):
    """Malicious clients that know the honest updates of at most `crew` of them.

    Each computes these from the model that it received, so that no other communication is needed.
    This multiplies the work of a malicious client by the size of the crew.
    """

    crew: PositiveInt

    collusive = True

    def observed(self, malicious: Collection[int], clients: int) -> list[int]:
        """Return the ids of the clients whose honest updates the malicious clients know."""
        return sorted(malicious)[: self.crew]


@dataclass(frozen=True, kw_only=True)
class Alie(Collusion):
    """A little is enough: `mean - z * deviation`; z null: the largest value that is not detected.

    `cohort` and `attackers` are the numbers of clients and attackers in a round that the colluders
    assume.
    """

    used_with: ClassVar[UsedWith] = {
        **Attack.used_with,
        **dict.fromkeys(("cohort", "attackers"), When("z", (None,))),
    }

    z: NonNegativeFloat | None
    cohort: PositiveInt
    attackers: PositiveInt

    def check(self, *, clients: int, classes: int) -> None:
        super().check(clients=clients, classes=classes)
        if self.z is None:
            _check_assumed("alie", self.cohort, self.attackers)

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.alie(others(), clients=self.cohort, malicious=self.attackers, z=self.z)


@dataclass(frozen=True, kw_only=True)
class Ipm(Collusion):
    """Inner product manipulation: `-epsilon` times the mean."""

    epsilon: PositiveFloat

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.ipm(others(), epsilon=self.epsilon)


@dataclass(frozen=True, kw_only=True)
class FullKnowledge(Collusion):
    """Reverses the mean of a round, knowing the updates of `crew` loyal clients; only simulation.

    `cohort` and `attackers` are the numbers of clients and attackers in a round that the colluders
    assume.
    """

    factor: PositiveFloat
    cohort: PositiveInt
    attackers: PositiveInt

    simulation_only = True

    def check(self, *, clients: int, classes: int) -> None:
        super().check(clients=clients, classes=classes)
        known = (
            set(self.clients) if self.clients is not None else range(round(self.share * clients))
        )
        if len(known) >= clients:
            raise ValueError(
                f"attack=full_knowledge needs at least one loyal client, but all {clients} are "
                "malicious; lower attack.share or shorten attack.clients"
            )
        _check_assumed("full_knowledge", self.cohort, self.attackers)

    def observed(self, malicious: Collection[int], clients: int) -> list[int]:
        loyal = [client for client in range(clients) if client not in malicious]
        return loyal[: self.crew]

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.full_knowledge(
            others(), clients=self.cohort, malicious=self.attackers, factor=self.factor
        )


def _check_assumed(attack: str, cohort: int, attackers: int) -> None:
    """Raise ValueError if the colluders assume a round without a loyal client."""
    if attackers >= cohort:
        raise ValueError(
            f"attack.attackers must be below attack.cohort={cohort} with attack={attack}, got "
            f"{attackers}: there is no loyal client in such a round; lower attack.attackers"
        )


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Trains with all labels set to `target`, or with `source` given, only labels `source`."""

    target: NonNegativeInt
    source: NonNegativeInt | None

    def check(self, *, clients: int, classes: int) -> None:
        super().check(clients=clients, classes=classes)
        if self.source == self.target:
            raise ValueError(
                f"attack.source must be another label than attack.target={self.target}, got "
                f"{self.source}: no label would change; change one, or give attack.source=null"
            )

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        if self.source is None:
            return images, poisoning.label_flip(labels, target=self.target)
        return images, poisoning.pairwise_flip(labels, source=self.source, target=self.target)


@dataclass(frozen=True, kw_only=True)
class Noisy(Attack):
    """Trains on images with uniform noise in [low, high] added to every pixel."""

    low: float
    high: float

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return poisoning.noisy(images, low=self.low, high=self.high, generator=draw), labels


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Marks a share of its images with a square and labels them `target`; scales its update."""

    target: NonNegativeInt
    poisoned: Annotated[Share, Field(gt=0)]
    size: PositiveInt
    value: float
    factor: PositiveFloat

    needs_images = True

    def check_shape(self, shape: Sequence[int]) -> None:
        if self.size >= min(shape[-2:]):
            raise ValueError(
                f"attack.size must be below the side of an image of shape {tuple(shape)}, got "
                f"{self.size}: the mark would hide the image; lower it"
            )

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return poisoning.backdoor(
            images, labels, target=self.target, share=self.poisoned, size=self.size,
            value=self.value, generator=draw,
        )  # fmt: skip

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.scaled(update, factor=self.factor)

    def trial(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
        others = images[labels != self.target]
        if not len(others):
            return None
        wanted = torch.full((len(others),), self.target, device=images.device)
        return poisoning.trigger(others, size=self.size, value=self.value), wanted
