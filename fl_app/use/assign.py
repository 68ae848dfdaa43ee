"""`fl-app assign`: the community of a client that was never part of the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_app.attribution import margin
from fl_app.client.latents import LATENTS, MOMENTS, latent_moments
from fl_app.client.learner import TrainingJob
from fl_app.client.training import SCORED, autocast, scores
from fl_app.graph.descriptors import scaled
from fl_app.params import COMMUNITY
from fl_app.records.serving import GLOBAL_MODEL, REFERENCE
from fl_app.rng import torch_generator
from fl_app.types import Vector
from fl_app.use.scorer import Scorer


@dataclass(frozen=True)
class Assignment:
    """The community of a newcomer by name, and the value of each community.

    `values` are losses, distances or entropies, lower ones are better. `margin` is the second
    value minus the first, as a share of the larger in size: 0 is a tie, 1 is certain, more needs a
    negative loss; None with a single community.
    """

    model: str
    values: Mapping[str, float]
    margin: float | None

    def content(self) -> dict[str, Any]:
        """Return the assignment as JSON values."""
        return {"model": self.model, "margin": self.margin, "values": dict(self.values)}


def by_loss(scorer: Scorer, inputs: Tensor, labels: Tensor) -> Assignment:
    """Return the community whose model has the least loss on labelled samples.

    Ghosh et al., NeurIPS 2020, algorithm 1: the choice of an IFCA client.
    """
    names = communities(scorer)
    losses = {n: scorer.learner.score(scorer.vector(n), inputs, labels).loss for n in names}
    return _best(losses)


def by_update(scorer: Scorer, inputs: Tensor, labels: Tensor, *, epochs: int) -> Assignment:
    """Return the community whose model lies in the direction of a short local training.

    The start is the global model, or without one the mean of the communities' models; the value is
    1 - cosine, in [0, 2], of the update and the way from the start to the community's model.
    """
    names = communities(scorer)
    models = {name: scorer.vector(name).copy() for name in names}
    whole = GLOBAL_MODEL in scorer.run.models
    every = np.stack(list(models.values()))
    mean: Vector = every.mean(axis=0, dtype=np.float64).astype(np.float32)
    start = scorer.vector(GLOBAL_MODEL).copy() if whole else mean
    moved = trained(scorer, start, inputs, labels, epochs=epochs) - start
    part = scorer.learner.flat.layout.direction
    return _best({n: 1 - _cosine(moved[part], (m - start)[part]) for n, m in models.items()})


def by_certainty(scorer: Scorer, inputs: Tensor) -> Assignment:
    """Return the community whose model answers inputs without labels with most certainty.

    The value is the mean entropy of the answers, in [0, log c] for c classes, or of centroids the
    mean squared distance to the nearest. Communities that disagree only on labels are equally
    certain of the same inputs, which no margin shows. Raises ValueError for answers that are
    numbers.
    """
    kind = scorer.run.answers
    if kind in ("regression", "numbers"):
        raise ValueError(
            f"a client without labels needs a run whose models answer with classes, got {kind}, "
            "where an answer does not say how certain it is; give labelled samples"
        )
    names = communities(scorer)
    return _best({name: _uncertainty(scorer, name, inputs, kind) for name in names})


def by_descriptor(scorer: Scorer, inputs: Tensor) -> Assignment:
    """Return the community whose mean descriptor is nearest to that of inputs without labels.

    The value is the distance between the moments of latent features, extracted by the model that
    the clients of a FLUX run described their data with. Communities that disagree only on labels
    have the same descriptors of inputs. Raises ValueError for another run.
    """
    given = scorer.run.serving["descriptors"]
    if given is None:
        raise ValueError(
            "a descriptor needs a run of strategy=flux that has found its communities, got "
            "another; use the certainty of the answers"
        )
    names, means = communities(scorer), np.array(given["means"], np.float32)
    module, settings = scorer.loaded(REFERENCE), scorer.config.client
    told = latent_moments(
        module, inputs, torch.zeros(len(inputs)), {LATENTS: means.shape[1]},
        classes=scorer.learner.classes, precision=settings.precision,
    )  # fmt: skip
    blocks = told[LATENTS].reshape(1, MOMENTS, -1)
    low, high = np.array(given["low"]), np.array(given["high"])
    own = scaled(blocks, np.ones(blocks.shape[:2], bool), low, high)[0]
    return _best({name: float(np.linalg.norm(own - means[int(name.removeprefix(COMMUNITY))]))
                  for name in names})  # fmt: skip


@torch.no_grad()
def _uncertainty(scorer: Scorer, name: str, inputs: Tensor, kind: str) -> float:
    module, settings = scorer.loaded(name), scorer.config.client
    found = []
    for part in torch.split(inputs, SCORED):
        with autocast(part.device, settings.precision):
            answers = scores(module, part)
        found.append(_uncertain(answers.float(), kind).flatten())
    return float(torch.cat(found).double().mean())


def _uncertain(answers: Tensor, kind: str) -> Tensor:
    """Return how uncertain each answer is; `answers` are scores of classes, or -distances."""
    if kind == "centroids":
        return -answers.max(dim=1).values
    if kind == "multilabel":  # each label is a choice between two
        answers = torch.stack([answers, torch.zeros_like(answers)], dim=-1)
    logs = answers.log_softmax(-1)
    return -(logs.exp() * logs).sum(-1)


def trained(
    scorer: Scorer, start: Vector, inputs: Tensor, labels: Tensor, *, epochs: int
) -> Vector:
    """Return a model (d,) after local training from `start`, by the settings of the run."""
    seed, learner = scorer.config.seed, scorer.learner.alone()
    if learner.model_kind != "network":
        raise ValueError(
            f"local training after a run needs a network, got {learner.model_kind}; assign a "
            "client by its loss, and resume the run to train further"
        )
    job = TrainingJob(
        start,
        inputs,
        labels,
        torch_generator(seed, purpose="local training after the run"),
        server_round=max(1, scorer.run.round),
        epochs=epochs,
    )
    return learner.train(job).model.copy()


def communities(scorer: Scorer) -> list[str]:
    """Return the names of the communities' models.

    Raises ValueError if a part of each model stays with the clients, and a newcomer has none.
    """
    if scorer.run.serving["local"]:
        raise ValueError(
            f"a newcomer needs whole models, got a run with {scorer.run.kept_by}, where a part of "
            "them is trained by each client; repeat the run without it"
        )
    return [name for name in scorer.run.models if name.startswith(COMMUNITY)]


def _cosine(first: Vector, second: Vector) -> float:
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / lengths if lengths > 0 else 0.0


def _best(values: Mapping[str, float]) -> Assignment:
    """Return the first community with the lowest value."""
    order = sorted(values, key=lambda name: (np.nan_to_num(values[name], nan=np.inf), name))
    return Assignment(order[0], values, margin(np.array([values[name] for name in order])))
