"""One slot per model: a client fills that of its choice, and zeros are in all others."""

from dataclasses import dataclass

import numpy as np

from fl_app.masking.quantisation import levels, quantise
from fl_app.types import Integers, Reals, Slots, Sums, Vector, Vectors

COUNT, WEIGHT, LOSS = range(3)
"""Places in the slot of a client that trained; its weighted update follows."""
HEAD = 3
ACCURACY, SQUARE = 1, 2
"""Places in the vector of a client that evaluated, after the count."""
SCORES = 3


class WrongSumError(ValueError):
    """A sum that no honest clients can have; whose fault it is cannot be known."""

    def __init__(self, wrong: str) -> None:
        super().__init__(
            f"{wrong}; a client did not follow the protocol, and masks hide which one: find it by "
            "runs without some of the clients, or without masking"
        )


@dataclass(frozen=True)
class Limits:
    """The range of the numbers that are masked; larger ones are cut.

    `update` is the largest change of a parameter, `samples` the largest weight, `loss` the largest
    loss.
    """

    update: float
    samples: float
    loss: float


@dataclass(frozen=True)
class ChosenSlots:
    """The clients that chose each of m slots, `counts` (m,), before they fill them in a second sum.

    Who of them is lost in between is not known, so all of these can have chosen the same slot. No
    slot is summed in which fewer than `smallest` clients might then be left.
    """

    counts: np.ndarray
    smallest: int

    @property
    def clients(self) -> int:
        """Number of clients that chose a slot."""
        return int(self.counts.sum())

    def open(self, left: int) -> list[int]:
        """Return the slots with `smallest` clients or more, whoever the `left` clients are."""
        enough = self.counts >= self.smallest + self.clients - left
        found: list[int] = np.flatnonzero(enough).tolist()
        return found

    def least(self, opened: list[int]) -> int:
        """Return with how many clients each of these slots has `smallest`, whoever they are."""
        return self.clients - int(self.counts[opened].min()) + self.smallest

    def check(self, counts: np.ndarray) -> None:
        """Raise WrongSumError if a slot was filled by more clients than chose it."""
        if (counts > self.counts).any():
            raise WrongSumError(
                f"no slot may have more clients than chose it, got {counts.tolist()} after "
                f"{self.counts.tolist()}"
            )


@dataclass(frozen=True)
class SlotSums:
    """What the server learns of n clients that trained m models.

    `counts` (m,) clients by model; `weights` (m,) sums of their weights, zero for a slot that was
    left empty; `losses` (m,) means of their losses; `updates` (m, d) means of their updates, zero
    for an empty slot.
    """

    counts: np.ndarray
    weights: Reals
    losses: Reals
    updates: Vectors

    @property
    def clients(self) -> int:
        """Number of clients in the sums."""
        return int(self.counts.sum())

    @property
    def too_few(self) -> list[int]:
        """The models that were chosen, but by too few clients for a sum."""
        return np.flatnonzero((self.counts > 0) & (self.weights == 0)).tolist()

    @property
    def loss(self) -> float:
        """Mean loss of all clients by their weights."""
        return float(self.losses @ self.weights / self.weights.sum())


def placed(content: Integers, slot: int, slots: int) -> Slots:
    """Return a vector (s,) of `slots` slots, all zero except for `content` (l,) in one."""
    if not 0 <= slot < slots:
        raise ValueError(f"slot must be in 0..{slots - 1}, got {slot}; use the row of a model")
    whole = np.zeros((slots, len(content)), np.uint32)
    whole[slot] = content
    return whole.reshape(-1)


def trained(
    update: Vector,
    weight: float,
    loss: float,
    limits: Limits,
    clients: int,
    *,
    draw: np.random.Generator,
) -> Integers:
    """Return the content (HEAD + d,) of a client's slot: `1, w / W, w l / (W L), w u / (W U)`.

    W, L and U are the limits, w the weight, l the loss and u the update (d,), each cut to its
    limit. `draw` rounds them at random, since of many clients each can be below half a level; the
    count is a whole number of levels and stays exact. Raises ValueError for an update or a loss
    that is not finite, which nobody could see in the sum, and for a weight that is not positive.
    """
    if not (np.isfinite(update).all() and np.isfinite(loss) and weight > 0):
        raise ValueError(
            "update and loss must be finite and the weight positive to be masked, got loss "
            f"{loss:g}, weight {weight:g} and {int((~np.isfinite(update)).sum())} other numbers in "
            "the update; lower client.learning_rate"
        )
    share = min(weight, limits.samples) / limits.samples
    numbers = np.empty(HEAD + len(update))
    numbers[COUNT], numbers[WEIGHT] = 1, share
    numbers[LOSS] = share * np.clip(loss / limits.loss, -1, 1)
    numbers[HEAD:] = share * np.clip(update / limits.update, -1, 1)
    return quantise(numbers, clients, draw)


def chosen(clients: int) -> Integers:
    """Return the content (1,) of a slot of which only the count is wanted."""
    return quantise(np.ones(1), clients)


def emptied(content: Integers) -> Integers:
    """Return the content (HEAD + d,) of a slot without anything but its count."""
    left = np.zeros_like(content)
    left[COUNT] = content[COUNT]
    return left


def scored(accuracy: float, clients: int) -> Integers:
    """Return a client's vector (SCORES,): 1, its accuracy and the square of it."""
    return quantise(np.array([1, accuracy, accuracy**2]), clients)


def slot_sums(total: Sums, survivors: int, limits: Limits, clients: int) -> SlotSums:
    """Return the sums in a total (m, HEAD + d) over `survivors` of `clients` clients.

    Raises WrongSumError if the counts are no counts of the survivors, or if a weighted sum exceeds
    its weight by more than rounding: then some client did not follow the protocol.
    """
    counts = checked_counts(total[:, COUNT], survivors)
    weights = total[:, WEIGHT]
    slack = 0.5 * (survivors + 1) / levels(clients)
    if (weights < 0).any() or (weights > counts + slack).any():
        raise WrongSumError(f"the weights must be in 0..counts, got {weights.tolist()}")
    # of each client a weight can be rounded down and its changes up, which is a level in all
    if (np.abs(total[:, LOSS:]) > (weights + 2 * slack)[:, None]).any():
        raise WrongSumError("no sum may exceed the weight of its slot, got one that does")
    safe = np.where(counts > 0, np.maximum(weights, 1 / levels(clients)), 1.0)
    updates = (total[:, HEAD:] * (limits.update / safe)[:, None]).astype(np.float32)
    losses = total[:, LOSS] * limits.loss / safe
    empty = counts == 0
    updates[empty], losses[empty] = 0, 0
    return SlotSums(counts, weights * limits.samples, losses, updates)


def mean_accuracy(total: Reals, survivors: int) -> tuple[float, float]:
    """Return mean and standard deviation of the accuracy from a total (SCORES,).

    Raises WrongSumError if the count or the sums are none of the survivors.
    """
    checked_counts(total[:1], survivors)
    mean, square = (float(total[place] / survivors) for place in (ACCURACY, SQUARE))
    tiny = 1e-3
    if not (-tiny <= mean <= 1 + tiny and mean**2 - tiny <= square <= mean + tiny):
        raise WrongSumError(
            f"accuracies must be in 0..1, got a mean of {mean:g} and one of {square:g} of squares"
        )
    return min(max(mean, 0.0), 1.0), max(square - mean**2, 0.0) ** 0.5


def checked_counts(numbers: Reals, survivors: int) -> np.ndarray:
    """Return numbers (m,) as counts of clients; raises WrongSumError if they are none."""
    counts: np.ndarray = np.rint(numbers).astype(int)
    exact = np.abs(numbers - counts).max() < 1e-3
    if not exact or (counts < 0).any() or counts.sum() != survivors:
        raise WrongSumError(
            f"the counts of {survivors} clients must be integers with this sum, got "
            f"{numbers.tolist()}"
        )
    return counts
