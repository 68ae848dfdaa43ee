"""The clients of a simulation: which samples each has, and their tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fl_app.data.datasets import Dataset
from fl_app.data.schedule import Drift
from fl_app.data.shift import rotate
from fl_app.rng import generator
from fl_app.types import Labels

Transform = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(inputs (s, ...), labels (s, ...), group) to the same of that group."""


@dataclass(frozen=True)
class ClientData:
    """One client's tensors: inputs (s, ...), of an image (s, C, H, W), and labels (s, ...)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> "ClientData":
        """Return the data on a device."""
        return ClientData(
            self.train_images.to(device),
            self.train_labels.to(device),
            self.test_images.to(device),
            self.test_labels.to(device),
        )


@dataclass(frozen=True)
class Population:
    """The samples of each client; its tensors are created on request.

    `groups` (n,) is the planted group of each client, used for metrics and for clients that drift
    to another group; -1 if there are none. `names` (n,) are the clients' own names, if the data
    have some. `seed` is that of the draws for clients that drift.
    """

    dataset: Dataset
    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray]
    groups: Labels
    transform: Transform | None = None
    names: Sequence[str] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        # a run stores names as words, by which a resume finds its clients again
        object.__setattr__(self, "names", tuple(map(str, self.names)))

    @property
    def clients(self) -> int:
        """Number n of clients."""
        return len(self.train)

    def samples(self, client_id: int) -> int:
        """Return the number of training samples of a client; raises ValueError as `client`."""
        self._check(client_id)
        return len(self.train[client_id])

    def client(self, client_id: int, *, drifts: int = 0, drift: Drift = "group") -> ClientData:
        """Return the data of one client; raises ValueError for an id outside 0..n-1.

        Each of `drifts` drifts moves the client to the next planted group, rotates its images by
        90 degrees, or increases its labels by one (modulo the classes), as `drift` says. Groups
        differ by their `transform`. Without one, they differ in their samples, and the client gets
        as many of those that the clients of its new group had at the start.
        """
        self._check(client_id)
        group = int(self.groups[client_id])
        if drifts and drift == "group" and self.count:
            group = (group + drifts) % self.count
        train = self.dataset.train(self._samples_in(group, client_id, self.train, "train split"))
        test = self.dataset.test(self._samples_in(group, client_id, self.test, "test split"))
        if self.transform is not None:
            train, test = self.transform(*train, group), self.transform(*test, group)
        if drifts and drift != "group":
            train, test = (self._drifted(*each, drifts, drift) for each in (train, test))
        return ClientData(*train, *test)

    def class_counts(self) -> np.ndarray:
        """Return the number of training samples of each class (n, c), before any drift."""
        labels, classes = self.dataset.train_labels, self.dataset.classes
        return np.stack([np.bincount(labels[part], minlength=classes) for part in self.train])

    @property
    def count(self) -> int:
        """Number of planted groups."""
        return int(self.groups.max()) + 1

    def check(self, clients: int) -> None:
        """Raise ValueError unless each of `clients` has samples of the data set, by their numbers.

        For populations of users: it reads all parts, and loads the first client.
        """
        for name, parts in (("train", self.train), ("test", self.test), ("groups", self.groups)):
            if len(parts) != clients:
                raise ValueError(
                    f"`{name}` must have one entry per client, {clients}, got {len(parts)}"
                )
        if self.names and not len(self.names) == len(set(self.names)) == clients:
            raise ValueError(
                f"`names` must be {clients} different ones, or empty, got {list(self.names)[:5]}"
            )
        if np.asarray(self.groups).dtype.kind not in "iu":
            raise ValueError(
                f"`groups` must be whole numbers, got {np.asarray(self.groups)[:3].tolist()}"
            )
        data = self.dataset
        for name, parts, labels in (
            ("train", self.train, data.train_labels), ("test", self.test, data.test_labels)
        ):  # fmt: skip
            for client, part in enumerate(parts if len(labels) else ()):
                wrong = _fault(np.asarray(part), len(labels))
                if wrong is not None:
                    raise ValueError(
                        f"`{name}` must have for each client the numbers of at least one sample, "
                        f"of 0..{len(labels) - 1}, got {wrong} for client {client}"
                    )
        first = self.client(0)
        if len(first.train_images) != len(first.train_labels):
            raise ValueError(
                f"`transform` must return a label for each input, got {len(first.train_labels)} "
                f"labels for {len(first.train_images)} inputs"
            )

    def _samples_in(
        self, group: int, client_id: int, parts: Sequence[np.ndarray], purpose: str
    ) -> np.ndarray:
        """Return the samples (s,) that a client has as a member of a group."""
        own = parts[client_id]
        if self.transform is not None or group == self.groups[client_id]:
            return own
        others = np.flatnonzero(self.groups == group).tolist()
        theirs = np.concatenate([parts[other] for other in others])
        draw = generator(self.seed, purpose=f"{purpose} of group {group}", client=client_id)
        return draw.permutation(theirs)[: len(own)]

    def _drifted(
        self, images: Tensor, labels: Tensor, drifts: int, drift: Drift
    ) -> tuple[Tensor, Tensor]:
        if drift == "rotation":
            return rotate(images, 90 * drifts), labels
        return images, (labels + drifts) % self.dataset.classes

    def _check(self, client_id: int) -> None:
        if not 0 <= client_id < self.clients:
            raise ValueError(
                f"client id must be in 0..{self.clients - 1}, got {client_id}; give each node a "
                "partition-id below population.clients"
            )


def _fault(part: np.ndarray, samples: int) -> str | None:
    """Return what is wrong with the numbers of a client's samples (s,)."""
    if not part.size:
        return "none"
    if part.ndim != 1 or part.dtype.kind not in "iu":
        return f"an array {part.shape} of {part.dtype}"
    wrong = part[(part < 0) | (part >= samples)]
    return str(wrong[0]) if len(wrong) else None
