"""A step of training on the first samples before a run: what cannot train is refused."""

from collections.abc import Callable
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.learner import TrainingJob
from fl_app.client.recipe import Recipe
from fl_app.client.scoring import TRIED
from fl_app.client.sgd import SgdLearner
from fl_app.client.training import scores
from fl_app.data.datasets import Dataset
from fl_app.params import FlatModule
from fl_app.rng import global_torch_seed
from fl_app.schema import ClientConfig


def check_training(
    build: Callable[[], nn.Module],
    learner: type[SgdLearner],
    client: ClientConfig,
    recipe: Recipe,
    data: Dataset,
) -> None:
    """Raise ValueError for a network, loss or optimiser with which a step of training fails.

    Evaluation alone does not show it: a network can answer otherwise in training mode, answers
    can have no gradient, and an optimiser can refuse gradients of some form, such as sparse ones.
    """
    images, labels = data.train(np.arange(min(TRIED, len(data.train_labels))))
    if not len(images):
        return
    _check_answers(build(), images)
    flat = FlatModule(build())
    made = learner(flat, client, classes=data.classes)
    made.recipe = recipe
    drawn = torch.Generator().manual_seed(0)
    try:
        made.train(TrainingJob(flat.vector(), images, labels, drawn, epochs=1))
    except Exception as error:  # a user's class can raise anything
        _refuse(client, recipe, error)


def _check_answers(module: nn.Module, images: Tensor) -> None:
    """Raise ValueError unless answers in training mode are those of evaluation, with a gradient."""
    wanted = _answers(module.eval(), images)
    answers = _answers(module.train(), images)
    if _form(answers) != _form(wanted):
        raise ValueError(
            f"network must answer in training mode as in evaluation mode, with {_form(wanted)}, "
            f"got {_form(answers)}; return the scores alone in both modes"
        )
    if isinstance(answers, Tensor) and not answers.requires_grad:
        raise ValueError(
            "network must have answers with a gradient for its trainable parameters, got answers "
            "without one; compute them without detach, argmax or no_grad"
        )


def _answers(module: nn.Module, images: Tensor) -> object:
    """Return the answers; None for a network that fails, which the training reports."""
    try:
        with global_torch_seed(0):
            return scores(module, images.clone())
    except Exception:  # a user's layer can raise anything
        return None


def _form(answers: object) -> str:
    if isinstance(answers, Tensor):
        return f"a tensor of shape {tuple(answers.shape)}"
    return type(answers).__name__


def _refuse(client: ClientConfig, recipe: Recipe, error: Exception) -> NoReturn:
    loss = "cross-entropy" if recipe.task is None else recipe.task.loss.get("_target_")
    told = f"{type(error).__name__}: {error}".splitlines()[0]
    raise ValueError(
        f"network must train on the first samples, got {told} with client.optimizer="
        f"{client.optimizer.path} and task.loss={loss}; change the network, or another of them"
    ) from error
