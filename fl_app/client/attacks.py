"""Who is malicious, when, and how an attack is applied: to data before, to updates after training.

An attack is a setting of the run, known to the clients alone. The functions that it applies
are those of fl_app.client.poisoning.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from fl_app.client import poisoning
from fl_app.rng import generator
from fl_app.types import NonNegativeInt, PositiveInt, Vector, Vectors

Share = Annotated[float, Field(ge=0, le=1)]


class Accomplices(Protocol):
    """Gives the honest updates (m, d) that colluders know of, from the model they received."""

    def __call__(self) -> Vectors: ...


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What a malicious client does; this one does nothing.

    `clients` names the malicious ones, else a keyed draw takes `share` of all. They attack
    from round `start` up to and including `stop`, and are honest before and after.
    """

    share: Share
    clients: list[NonNegativeInt] | None
    start: PositiveInt
    stop: PositiveInt | None

    collusive = False

    def malicious(self, clients: int, *, seed: int) -> frozenset[int]:
        """Return the malicious among `clients` ids from 0 on."""
        if self.clients is not None:
            return frozenset(self.clients)
        draw = generator(seed, purpose="malicious")
        count = round(self.share * clients)
        return frozenset(draw.choice(clients, count, replace=False).tolist())

    def check(self, *, clients: int, classes: int) -> None:
        """Raise ValueError for clients or labels that are none."""
        strangers = [client for client in self.clients or [] if client >= clients]
        if strangers:
            raise ValueError(
                f"attack.clients must be below population.clients={clients}, got {strangers}; "
                "client ids count from 0"
            )
        for name in ("target", "source"):
            label = getattr(self, name, None)
            if label is not None and label >= classes:
                raise ValueError(
                    f"attack.{name} must be below the {classes} classes, got {label}; labels "
                    "count from 0"
                )

    def active(self, server_round: int) -> bool:
        """Whether the malicious attack in this round."""
        return self.start <= server_round and (self.stop is None or server_round <= self.stop)

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return the training data (s, C, H, W) and (s,) as this attack has them."""
        return images, labels

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        """Return the update (d,) that is sent in place of the true one."""
        return update


@dataclass(frozen=True, kw_only=True)
class NoAttack(Attack):
    """Everyone is honest."""


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
    """Sends `factor` times the true update; negative turns it round."""

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
    """Sends a random direction of the true update's length."""

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.random(update, generator=draw)


@dataclass(frozen=True, kw_only=True)
class Collusion(Attack):
    """Malicious clients that know each other's honest updates, of `crew` of them at most.

    Each works these out from the model it received, so that no channel beside Flower's is
    needed; a malicious client's work grows by the size of the crew.
    """

    crew: PositiveInt

    collusive = True

    def observed(self, malicious: Collection[int], clients: int) -> list[int]:
        """Return the ids of the clients whose honest updates the malicious know."""
        return sorted(malicious)[: self.crew]


@dataclass(frozen=True, kw_only=True)
class Alie(Collusion):
    """A little is enough: `mean - z * deviation`; z null: the largest that hides.

    `cohort` and `attackers` are the clients of a round that the colluders reckon with.
    """

    z: NonNegativeFloat | None
    cohort: PositiveInt
    attackers: PositiveInt

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
    """Turns the round's mean around by what `crew` of the loyal would send: in simulation only.

    `cohort` and `attackers` are the clients of a round that the colluders reckon with.
    """

    factor: PositiveFloat
    cohort: PositiveInt
    attackers: PositiveInt

    def check(self, *, clients: int, classes: int) -> None:
        super().check(clients=clients, classes=classes)
        known = (
            set(self.clients) if self.clients is not None else range(round(self.share * clients))
        )
        if len(known) >= clients:
            raise ValueError(
                f"attack=full_knowledge needs a loyal client to know of, but all {clients} are "
                "malicious; lower attack.share or shorten attack.clients"
            )

    def observed(self, malicious: Collection[int], clients: int) -> list[int]:
        loyal = [client for client in range(clients) if client not in malicious]
        return loyal[: self.crew]

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.full_knowledge(
            others(), clients=self.cohort, malicious=self.attackers, factor=self.factor
        )


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Trains on labels that are all `target`, or with `source` given, on source made target."""

    target: NonNegativeInt
    source: NonNegativeInt | None

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
    """Marks part of its images with a square and calls them `target`; can grow its update."""

    target: NonNegativeInt
    poisoned: Share
    size: PositiveInt
    value: float
    factor: PositiveFloat

    def poison(
        self, images: Tensor, labels: Tensor, draw: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return poisoning.backdoor(
            images, labels, target=self.target, share=self.poisoned, size=self.size,
            value=self.value,
        )  # fmt: skip

    def forge(self, update: Vector, draw: np.random.Generator, others: Accomplices) -> Vector:
        return poisoning.scaled(update, factor=self.factor)

    def marked(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return images (s, C, H, W) with the mark, and the labels (s,) that it is to cause."""
        labels = torch.full((len(images),), self.target, device=images.device)
        return poisoning.trigger(images, size=self.size, value=self.value), labels
