"""State of a network that training changes, but that is neither sent nor saved.

A client trains many models in one network, and the server has only what is sent. A counter in a
plain attribute would therefore count the batches of all clients, and a saved model would lack it.
"""

from collections import ChainMap, deque
from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any

import numpy as np
import torch
from hydra.utils import get_object
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.training_probe import same
from fl_app.params import FlatModule
from fl_app.records.models import StateForm
from fl_app.rng import global_seeds
from fl_app.types import Vector

log = getLogger(__name__)
TOLERANCE = 1e-3
"""Relative difference up to which two results are equal, since sums of floats are rounded."""
SHOWN = 16
"""Samples to which the trained and the rebuilt network answer."""
DEPTH = 3
"""How deep lists and mappings in an attribute are compared."""
OF_EACH_LOAD = "num_batches_tracked"
"""The one integer buffer that may change: batch normalisation needs it only within a training."""
REMEDY = "remove it, or register it as a float32 buffer"
OF_ALL_LEARNERS = ("flat", "settings", "classes", "recipe")
BASE = frozenset(vars(nn.Module()))
Attributes = dict[tuple[str, str], Any]


def attributes(module: nn.Module) -> Attributes:
    """Return copies of the plain attributes of all layers and of their classes, by owner and name.

    Numbers, texts, tensors, arrays, and lists and mappings of them; not generators and others.
    """
    shared = (of_class(kind) for kind in {type(layer) for layer in module.modules()})
    return dict(ChainMap(*shared)) | {
        (f"layer {name!r}" if name else type(layer).__name__, attribute): _copy(value)
        for name, layer in module.named_modules()
        for attribute, value in vars(layer).items()
        if attribute not in BASE
    }


def of_class(kind: type) -> Attributes:
    """Return copies of the plain attributes of a user's class and of its base classes."""
    return {
        (f"the class {each.__name__}", name): _copy(value)
        for each in kind.__mro__
        if each.__module__.partition(".")[0] not in ("torch", "fl_app", "builtins")
        for name, value in vars(each).items()
        if not name.startswith("__")
    }


class StateTrial:
    """Repeats one training from the same start, on the same samples with the same draws."""

    def __init__(self, learner: Learner, images: Tensor, labels: Tensor) -> None:
        self.learner, self.flat, self.images, self.labels = learner, learner.flat, images, labels
        self.start = self.flat.vector()
        self.start.flags.writeable = False  # as the model of a message is
        self._models: list[Vector] = []
        self._seen = [attributes(self.flat.module)]
        self._remembered: list[Attributes] = []

    def train(self) -> TrainingResult:
        """Train once more."""
        draw = torch.Generator().manual_seed(0)
        done = self.learner.train(TrainingJob(self.start, self.images, self.labels, draw, epochs=1))
        self._models.append(np.array(done.model, np.float32))
        self._seen.append(attributes(self.flat.module))
        self._remembered.append(self._memory())
        return done

    def _memory(self) -> Attributes:
        """Return copies of what the learner and the classes of learner and loss remember."""
        kept = ((n, each) for n, each in vars(self.learner).items() if n not in OF_ALL_LEARNERS)
        own: Attributes = {("the learner", name): _copy(value) for name, value in kept}
        task = self.learner.recipe.task
        loss = None if task is None else get_object(str(task.loss.get("_target_")))
        classes = [each for each in (type(self.learner), loss) if isinstance(each, type)]
        return dict(ChainMap(own, *map(of_class, classes)))

    def fault(self, build: Callable[[], nn.Module]) -> str | None:
        """Return what training, done once so far, changes beside the model; None for nothing.

        A cache is the same after each training. A layer that draws from its own generator gives
        another model each time and is only warned of.
        """
        unsent = _changed_constant(self.flat) or _changed_unsaved(self.flat, self.start)
        if unsent is not None:
            return _told(*unsent)
        self.train()
        if growing := _differing(*self._seen[1:]):
            return _told(_named(growing), "is neither sent nor saved")
        found = _named(_differing(self._seen[0], self._seen[1]))
        if changed := _differing(*self._remembered):
            log.warning(
                "training changes %s, which serves all clients of a thread or of the process, and "
                "is built anew by other processes, so that results depend on the engine: let it "
                "remember nothing (docs/extend/learner.md)", _named(changed),
            )  # fmt: skip
        elif not self._repeats():
            self.train()
            if found and self._repeats():
                return _told(found, "is neither sent nor saved")
            log.warning(
                "the same training of the network gives another model each time, so that a run "
                "cannot be repeated: draw from torch's global generator, which is keyed, and let "
                "network and loss remember nothing"
            )
        if not self._rebuilds(build):
            return _told(found or "something else", "a saved model does not have")
        return None

    def _repeats(self) -> bool:
        """Whether the last two models are equal in view of how far training has moved them."""
        model, other = (each.astype(np.float64) for each in self._models[-2:])
        if np.array_equal(model, other, equal_nan=True):  # also where training diverges
            return True
        moved = max(float(np.linalg.norm(each - self.start)) for each in (model, other))
        return float(np.linalg.norm(model - other)) <= TOLERANCE * moved

    def _rebuilds(self, build: Callable[[], nn.Module]) -> bool:
        """Whether a network that is built anew answers by the saved model as this one does.

        True for a network whose answers to the same samples vary.
        """
        model, shown = self._models[-1], self.images[:SHOWN]
        self.flat.load(model)
        trained, again = (answers(self.flat.module, shown) for _ in range(2))
        if not alike(trained, again):
            return True
        return alike(trained, answers(rebuilt(self.flat, model, build), shown))


def _told(what: str, why: str, remedy: str = REMEDY) -> str:
    return (
        "network must hold what training changes in parameters and buffers that are sent and "
        f"saved, got {what}, which training changes, but which {why}; {remedy}"
    )


def _changed_constant(flat: FlatModule) -> tuple[str, str, str] | None:
    """Return a tensor that training has changed, but that each load restores."""
    now = dict(flat.module.named_parameters()) | dict(flat.module.named_buffers())
    for name, value in flat.constants.items():
        if name.rpartition(".")[2] != OF_EACH_LOAD and not same(now[name].detach(), value):
            kind = "frozen parameter" if isinstance(now[name], nn.Parameter) else "buffer"
            return (
                f"the {kind} {name} of {value.dtype}",
                "is a constant that is not sent",
                "make it a float32 buffer with a finite initial value, or set it before the run",
            )
    return None


def _changed_unsaved(flat: FlatModule, start: Vector) -> tuple[str, str, str] | None:
    """Return a tensor that is sent, and so changes, but that the state dict does not have."""
    saved, trained = set(flat.sources().values()), flat.vector()
    for name, part in flat.layout.parts.items():
        if name not in saved and not np.array_equal(trained[part], start[part]):
            return f"the buffer {name}", "is not saved", "register it without persistent=False"
    return None


def rebuilt(flat: FlatModule, model: Vector, build: Callable[[], nn.Module]) -> nn.Module:
    """Return a new network with what is saved of `model` (d,)."""
    state = StateForm.of(flat).state(model, flat.layout)
    fresh = build()
    fresh.load_state_dict({name: torch.from_numpy(np.array(each)) for name, each in state.items()})
    return fresh


@torch.no_grad()
def answers(module: nn.Module, images: Tensor, *, seed: int = 0) -> list[Any]:
    """Return copies of the answers in evaluation mode, with the same draws for the same seed."""
    with global_seeds(seed):
        return [_copy(each) for each in tree_leaves(module.eval()(images.clone()))]


def _differing(first: Attributes, second: Attributes) -> list[tuple[str, str]]:
    missing = object()
    return [key for key, value in second.items() if not alike(first.get(key, missing), value)]


def _named(keys: list[tuple[str, str]]) -> str:
    return ", ".join(f"the attribute {name} of {layer}" for layer, name in keys[:3])


def _copy(value: Any, depth: int = DEPTH) -> Any:
    """Return a copy of a value that can be compared; None for what cannot."""
    if isinstance(value, bool | int | float | complex | str | np.generic):
        return value
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value) if value.dtype.kind in "bif" else None
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        return value.detach().clone() if value.layout == torch.strided else None
    if depth and isinstance(value, list | tuple | deque):
        return [_copy(each, depth - 1) for each in value]
    if depth and isinstance(value, Mapping):
        return {str(key): _copy(each, depth - 1) for key, each in value.items()}
    return None


def alike(first: Any, second: Any) -> bool:
    """Whether two copies are equal but for rounding; NaN equals NaN."""
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        return first.shape == second.shape and first.dtype == second.dtype and _close(first, second)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(alike(first[k], second[k]) for k in first)
    if isinstance(first, float | complex | np.inexact):  # of which NumPy's float64 alone is float
        pair = (complex(first), complex(second))
        return _close(*(torch.tensor(each, dtype=torch.complex128) for each in pair))
    return bool(first == second)


def _close(first: Tensor, second: Tensor) -> bool:
    if first.is_complex():
        first, second = torch.view_as_real(first), torch.view_as_real(second)
    if not first.is_floating_point():
        return torch.equal(first, second)
    known = first[first.isfinite()].double().abs()
    largest = float(known.max()) if len(known) else 0.0
    return torch.allclose(
        first.double(), second.double(), rtol=0.0, atol=TOLERANCE * largest, equal_nan=True
    )
