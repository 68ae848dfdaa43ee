"""What a client trains with, beside the settings of plain SGD."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from fl_app.client.augmentation import Transform, augmented
from fl_app.client.optimisation import Optimisation
from fl_app.client.personal import Personal, Shared
from fl_app.client.task import Loss, Task
from fl_app.client.training import Settings
from fl_app.rng import torch_seed


@dataclass(frozen=True)
class Recipe:
    """The parts of local training that the configuration names as classes.

    Without any it is plain SGD: the settings alone say how to train, and a cohort can be fused.
    `clip_norm` is the largest norm of the gradient of a batch; without a `task` it is
    classification by cross-entropy. `personal` is what each client has of its own.
    """

    optimisation: Optimisation | None = None
    task: Task | None = None
    clip_norm: float | None = None
    transform: Transform | None = None
    personal: Personal = field(default_factory=Shared)

    def unusual(self) -> list[str]:
        """Return the settings because of which training is not plain SGD."""
        found = []
        if self.optimisation is not None and not self.optimisation.plain:
            found.append("client.optimizer")
        if self.task is not None and not self.task.plain:
            found.append("task.loss other than cross-entropy")
        found += ["client.clip_norm"] * (self.clip_norm is not None)
        found += ["personal other than none"] * (not isinstance(self.personal, Shared))
        return found + ["client.transform"] * (self.transform is not None)

    def change(self, seed: int) -> Callable[[Tensor, int], Tensor] | None:
        """Return the function that augments a client's images in an epoch; None: none."""
        if self.transform is None:
            return None
        return partial(augmented, self.transform, seed=torch_seed(seed, purpose="images"))

    def settings(
        self, settings: Settings, server_round: int, epochs: int | None = None
    ) -> Settings:
        """Return the settings in a round: the values of SGD as an optimiser, and the `epochs`."""
        chosen, values = self.optimisation, dict[str, Any]()
        if epochs is not None:
            values["epochs"] = epochs
        if chosen is not None and chosen.plain:
            now = chosen.at(server_round)
            values["learning_rate"] = now["lr"]
            values["momentum"] = now.get("momentum", 0.0)
            values["weight_decay"] = now.get("weight_decay", 0.0)
        same = all(getattr(settings, name) == value for name, value in values.items())
        changeable: Any = settings  # a dataclass; the protocol cannot say so
        found: Settings = settings if same else replace(changeable, **values)
        return found

    def loss_of(self, labels: Tensor | None, classes: int) -> Loss:
        """Return the loss of a client with these labels; None: without weights of classes."""
        if self.task is None or self.task.plain:
            return functional.cross_entropy
        return self.task.loss_of(labels, classes)

    def optimiser(self, parameters: Sequence[nn.Parameter], server_round: int) -> Optimizer | None:
        """Return the optimiser in a round; None: SGD with the settings."""
        chosen = self.optimisation
        return None if chosen is None or chosen.plain else chosen.make(parameters, server_round)


PLAIN = Recipe()
"""SGD with the settings of the group `client`."""
