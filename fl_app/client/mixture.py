"""A mixture of networks with the weights of one client, trained by expectation-maximisation.

Marfoq et al., NeurIPS 2021, "Federated multi-task learning under a mixture of distributions";
with priors of the classes: Guo et al., ICML 2024, "FedRC: tackling diverse distribution shifts
challenge in federated learning by robust clustering".
"""

import inspect
from collections.abc import Mapping
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import is_lazy

from fl_app.client.draws import keyed_layers
from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.client.networks import MOST_PARAMETERS
from fl_app.client.sgd import SgdLearner
from fl_app.client.stragglers import most
from fl_app.client.training import SCORED, autocast, scores, train, trainable
from fl_app.learner_reports import Told
from fl_app.own import imported_from

WEIGHTS, CLASS_WEIGHTS = "weights", "class_weights"
"""Names of the reports: a client's share of each component (k,), and of each class in it (k * c,).

`WEIGHTS` is also the name of the buffer of the network that holds them."""
PRIORS = "priors"
"""Name of the setting of a training that has the logarithm of the share of each class in each
component (k, c), as little-endian float32."""
LEAST = 1e-12
"""Smallest weight in a logarithm."""


class Mixture(nn.Module):
    """Networks that answer together: `log sum_k weights_k softmax(h_k(x))`.

    `weights` (k,) are those of one client; at first all are equal.
    """

    learner = "fl_app.client.mixture.MixtureLearner"
    weights: Tensor

    def __init__(self, components: list[nn.Module]) -> None:
        super().__init__()
        self.components = nn.ModuleList(components)
        self.register_buffer(WEIGHTS, torch.full((len(components),), 1 / len(components)))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logarithm of the probability of each class (s, c)."""
        likely = functional.log_softmax(self.each(inputs).float(), dim=2)
        weights = self.weights.clamp(min=LEAST).log()
        return (likely + weights[None, :, None]).logsumexp(dim=1)

    def each(self, inputs: Tensor) -> Tensor:
        """Return what each of the k components answers (s, k, c)."""
        return torch.stack([component(inputs) for component in self.components], dim=1)


class _Each(nn.Module):
    """The components of a mixture side by side, as they are trained."""

    def __init__(self, mixture: Mixture) -> None:
        super().__init__()
        self.mixture = mixture

    def forward(self, inputs: Tensor) -> Tensor:
        return self.mixture.each(inputs)


def mixture(
    shape: tuple[int, ...],
    classes: int,
    *,
    of: str,
    settings: dict[str, Any],
    components: Annotated[int, Field(ge=1, le=1000)],
) -> nn.Module:
    """Return a mixture of networks that the function `of` builds, each with its own first weights.

    Raises ValueError if `of` is no path of a function that builds a network of these `settings`,
    and for too many parameters. A user's function may build lazy layers, or what has no size
    without memory, so that the sizes are those of the first component.
    """
    build = None
    try:
        build = imported_from(of)
        first = build(shape, classes, **settings)
    except (ImportError, TypeError) as error:
        raise ValueError(
            "network.of must be the dotted path of a function that builds a network with "
            f"network.settings, got {of} with {settings}: {error}; {_remedy(build, settings)}"
        ) from error
    size = components * sum(each.numel() for each in first.parameters() if not is_lazy(each))
    if size > MOST_PARAMETERS:
        raise ValueError(
            f"a mixture must have at most {MOST_PARAMETERS:,} parameters, got {size:,} in "
            f"{components} components; lower network.components or the size of one"
        )
    rest = (build(shape, classes, **settings) for _ in range(components - 1))
    return Mixture([first, *rest])


def _remedy(build: Any, settings: Mapping[str, Any]) -> str:
    """Return the overrides by which the settings become those of the function `build`."""
    if not callable(build):
        return "see conf/network"
    takes = list(inspect.signature(build).parameters.values())[2:]
    any_name = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in takes)
    names = {each.name for each in takes if each.kind is not inspect.Parameter.VAR_KEYWORD}
    needed = [each.name for each in takes if each.name in names and each.default is each.empty]
    words = [f"~network.settings.{name}" for name in settings if not any_name and name not in names]
    words += [f"+network.settings.{name}=<value>" for name in needed if name not in settings]
    return f"give {' '.join(words)}" if words else "see conf/network"


class MixtureLearner(SgdLearner):
    """One step of expectation-maximisation: responsibilities, then SGD weighted by them.

    It does not change the weights in the model, but tells the new ones as a report.
    """

    model_kind = "mixture"
    targets = ("classification",)
    tells = (WEIGHTS, CLASS_WEIGHTS)
    no_privacy = "no noise hides the weights of the components that clients tell"
    sample_dp = False
    any_task = False

    def train(self, job: TrainingJob) -> TrainingResult:
        """Compute the responsibilities of the components, and train these."""
        began, module, now = perf_counter(), self.flat.module, job.server_round
        self.flat.load(job.start)
        assert isinstance(module, Mixture)
        with keyed_layers(self.flat, job.layers_seed, trains=False):
            shares = self._expected(module, job)
        settings = self.recipe.settings(self.settings, now, job.epochs)
        with keyed_layers(self.flat, job.layers_seed, trains=most(settings.epochs) > 0):
            loss = train(
                _Each(module),
                job.images,
                torch.cat([shares, job.labels[:, None].to(shares)], dim=1),
                settings,
                generator=job.generator,
                optimiser=self.recipe.optimiser(trainable(module), now),
                clip_norm=self.recipe.clip_norm,
                loss_of=weighted_loss,
                change=self.recipe.change(job.layers_seed),
            )
        told = self._reports(job, shares.cpu().numpy().astype(np.float64))
        return TrainingResult(self.flat.view(), loss, perf_counter() - began, told)

    @torch.no_grad()
    def _expected(self, module: Mixture, job: TrainingJob) -> Tensor:
        """Return the responsibility of each component for each sample (s, k)."""
        each, losses = _Each(module).eval(), []
        for images, labels in zip(
            *(torch.split(part, SCORED) for part in (job.images, job.labels)), strict=True
        ):
            with autocast(images.device, self.settings.precision):
                answers = scores(each, images).float()
            wanted = labels[:, None].expand(-1, answers.shape[1])
            losses.append(functional.cross_entropy(answers.mT, wanted, reduction="none"))
        priors = self._priors(job.task, len(module.weights))
        given = None if priors is None else priors.to(job.labels.device)[:, job.labels].T
        return responsibilities(torch.cat(losses), module.weights, given)

    def _priors(self, task: Mapping[str, Any], components: int) -> Tensor | None:
        """Return the logarithms (k, c) that the server sent; None: there are none."""
        if PRIORS not in task:
            return None
        sent = np.frombuffer(task[PRIORS], "<f4").astype(np.float32)
        return torch.from_numpy(sent).reshape(components, self.classes)

    def _reports(self, job: TrainingJob, shares: np.ndarray) -> dict[str, Told]:
        """Return the mean responsibility of each component, and of each class in it."""
        labels = np.eye(self.classes)[job.labels.cpu().numpy()]
        told = {
            WEIGHTS: shares.mean(axis=0),
            CLASS_WEIGHTS: (shares.T @ labels / len(shares)).flatten(),
        }
        return {name: told[name].astype(np.float32) for name in told if name in job.asked}


def responsibilities(losses: Tensor, weights: Tensor, log_priors: Tensor | None = None) -> Tensor:
    """Return `q_ik ~ weights_k exp(-loss_ik) / prior_ik` (s, k), which sum to 1 over k.

    For losses (s, k), weights (k,), and the logarithm of the share of a sample's class in each
    component (s, k). Marfoq et al., NeurIPS 2021; with priors: Guo et al., ICML 2024.
    """
    likely = weights.clamp(min=LEAST).log() - losses
    return (likely if log_priors is None else likely - log_priors).softmax(dim=1)


def weighted_loss(answers: Tensor, given: Tensor) -> Tensor:
    """Return `1/s sum_ik q_ik loss_ik` of answers (s, k, c).

    `given` (s, k + 1) has the responsibilities q, and the label of each sample in the last column.
    """
    shares, labels = given[:, :-1], given[:, -1:].long().expand(-1, answers.shape[1])
    losses = functional.cross_entropy(answers.float().mT, labels, reduction="none")
    return (shares * losses).sum(dim=1).mean()
