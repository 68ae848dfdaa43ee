"""Trials of a user's parts before a run: a step of training, a score, a distance, an attack."""

from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.attacks import Attack
from fl_app.client.learner import Learner, TrainingResult
from fl_app.client.recipe import Recipe
from fl_app.client.training import UNSCORED, AnswersError, Score, scores
from fl_app.data.datasets import Dataset
from fl_app.graph.similarity import Distance
from fl_app.hidden_state import StateTrial
from fl_app.params import FlatModule, Layout, is_finite
from fl_app.reasons import reason_of
from fl_app.rng import generator, global_torch_seed
from fl_app.schema import ClientConfig, Target
from fl_app.single_sample import warn_of_one
from fl_app.task_checks import TRIED, tried
from fl_app.types import Vector

ROUNDING = 1e-3
"""Share of the largest distance by which a distance may break a rule."""
MOST = 512
"""Samples of a trial, for batches that are larger."""
Build = Callable[[], nn.Module]


def try_training(
    build: Build, learner: type[Learner], client: ClientConfig, recipe: Recipe, data: Dataset
) -> None:
    """Raise ValueError for a network, loss or optimiser with which a step of training fails.

    Evaluation alone does not show it: a network can answer otherwise in training mode, answers
    can have no gradient, and an optimiser can refuse gradients of some form, such as sparse ones.
    """
    images, labels = _batch(data, client)
    if not len(images):
        return
    trial = StateTrial(_made(learner, FlatModule(build()), client, recipe, data), images, labels)
    try:
        wrong = _step_fault(trial, client, recipe) or trial.fault(build)
    except Exception as error:  # a user's class can raise anything
        wrong = _answers_fault(build(), images) or _failure(client, recipe, error)
        raise ValueError(wrong) from error
    if wrong is not None:
        raise ValueError(wrong)
    warn_of_one(trial.learner, trial.start, images, labels)


def try_learner(
    build: Build,
    learner: type[Learner],
    client: ClientConfig,
    recipe: Recipe,
    data: Dataset,
    *,
    alone: bool = True,
) -> None:
    """Raise ValueError for a user's learner that fails on some samples, or returns others.

    A learner that needs what only a method sends it, and so raises KeyError, is only built, as is
    one that is not `alone`, but beside a method that sends more than a model.
    """
    images, labels = _batch(data, client)
    flat = FlatModule(build())
    made, start = _made(learner, flat, client, recipe, data), flat.vector()
    if not len(images) or not alone:
        return
    trial = StateTrial(made, images, labels)
    versions = images._version, labels._version
    try:
        wrong = _result_fault(trial.train(), flat.layout)
        hidden = None if wrong else trial.fault(build)
        score = None if wrong else made.score(start, images, labels)
        wrong = wrong or _score_fault(score, learner, recipe)
        if wrong is None and versions != (images._version, labels._version):
            wrong = "writes into a client's samples, which would stay so: change a copy"
    except KeyError:
        return
    except Exception as error:  # a user's class can raise anything
        raise ValueError(_told(learner, reason_of(error))) from error
    if wrong is not None:
        raise ValueError(_told(learner, wrong))
    if hidden is not None:
        raise ValueError(hidden)
    warn_of_one(made, start, images, labels)


def try_distance(named: str, between: Distance, layout: Layout, model: Vector) -> None:
    """Raise ValueError for a user's distance that breaks a rule on three models near `model`."""
    draw = generator(0, purpose="trial of a distance")
    noise = draw.normal(size=(3, len(model))).astype(np.float32)
    models = model + 0.1 * max(float(np.abs(model).mean()), 1e-3) * noise
    models.flags.writeable = False  # as models of replies are
    try:
        found = np.asarray(between(models, models, layout), np.float64)
        wrong = _distance_fault(found, len(models))
    except Exception as error:  # a user's function can raise anything
        wrong = reason_of(error)
    if wrong is not None:
        raise ValueError(
            "strategy.similarity must be a distance of models (n, d) and (m, d) with their layout, "
            "(n, m) finite numbers of at least 0, 0 between equal models and the same in both "
            f"directions, got {named} with {wrong}; correct it (docs/extend/distance.md)"
        )


def try_attack(hostile: Target, attack: Attack, data: Dataset, model: Vector | None) -> None:
    """Raise ValueError for an attack that fails on two samples, or that changes a client's own.

    With a `model` (d,), as for a user's attack, it forges an update of this length too.
    """
    inputs, labels = data.train(np.arange(min(2, len(data.train_labels))))
    versions = inputs._version, labels._version
    try:
        poisoned, wanted = attack.poison(inputs, labels, torch.Generator())
        wrong = None
        if poisoned.shape[1:] != inputs.shape[1:] or len(wanted) != len(poisoned):
            wrong = f"inputs {tuple(poisoned.shape)} and {len(wanted)} labels"
        elif model is not None and len(labels):
            wrong = _forged_fault(attack, model)
    except Exception as error:  # a user's class can raise anything
        wrong = reason_of(error)
    if wrong is not None:
        raise ValueError(
            f"attack must be able to change inputs {inputs.dtype} of shape {tuple(inputs.shape)}, "
            f"got {hostile.path} with {hostile.options}: {wrong}; change its values"
        )
    if versions != (inputs._version, labels._version):
        raise ValueError(
            f"attack must leave the samples of a client as they are, got {hostile.path}, which "
            "writes into them, so that they stay poisoned in later rounds; change a copy"
        )
    if poisoned.dtype != inputs.dtype:
        raise ValueError(
            f"attack must keep inputs {inputs.dtype}, got {hostile.path}, which makes them "
            f"{poisoned.dtype}; use an attack on labels or updates"
        )


def _forged_fault(attack: Attack, model: Vector) -> str | None:
    """Return what is wrong with an update (d,) that an attack forges."""
    draw = generator(0, purpose="trial of an attack")
    updates = (1e-3 * draw.normal(size=(3, len(model)))).astype(np.float32)
    own = updates[0].copy()
    updates.flags.writeable = False  # as in a run, where all attackers get the same ones
    forged = np.asarray(attack.forge(own, draw, lambda: updates))
    if forged.shape == model.shape and forged.dtype.kind == "f":
        return None
    return f"an update {forged.shape} of {forged.dtype} for one of {model.shape}"


def _distance_fault(found: np.ndarray, models: int) -> str | None:
    if found.shape != (models, models):
        return f"shape {found.shape} for {models} models and the same"
    limit = ROUNDING * float(np.abs(found).max())
    rules = {
        "a number that is not finite": np.isfinite(found).all(),
        "a negative number": (found >= -limit).all(),
        "a number above 0 for a model and itself": (np.diag(found) <= limit).all(),
        "another number in the other direction": (np.abs(found - found.T) <= limit).all(),
    }
    return next((fault for fault, holds in rules.items() if not holds), None)


def _batch(data: Dataset, client: ClientConfig) -> tuple[Tensor, Tensor]:
    """Return about one batch of a client."""
    return tried(data, min(max(client.batch_size, TRIED), MOST))


def _made(
    learner: type[Learner], flat: FlatModule, client: ClientConfig, recipe: Recipe, data: Dataset
) -> Learner:
    try:
        made = learner(flat, client, classes=data.classes)
    except (Exception, SystemExit) as error:
        raise ValueError(
            "client.learner must be a class that is built of a network, settings and classes, got "
            f"{learner.__module__}.{learner.__qualname__} with {reason_of(error)}; correct it "
            "(docs/extend/learner.md)"
        ) from error
    made.recipe = replace(recipe, personal=recipe.personal.brief())
    return made


def _answers_fault(module: nn.Module, images: Tensor) -> str | None:
    """Return how answers in training mode differ from those of evaluation, which can be trained."""
    wanted = _answers(module.eval(), images)
    answers = _answers(module.train(), images)
    if _form(answers) != _form(wanted):
        return (
            f"network must answer in training mode as in evaluation mode, with {_form(wanted)}, "
            f"got {_form(answers)}; return the scores alone in both modes"
        )
    if isinstance(answers, Tensor) and not answers.requires_grad:
        return (
            "network must have answers with a gradient for its trainable parameters, got answers "
            "without one; compute them without detach, argmax or no_grad"
        )
    return None


def _answers(module: nn.Module, images: Tensor) -> object:
    """Return the answers; None for a network that fails."""
    try:
        with global_torch_seed(0):
            return scores(module, images.clone())
    except AnswersError as error:
        return error.answers
    except Exception:  # a user's layer can raise anything
        return None


def _form(answers: object) -> str:
    if isinstance(answers, Tensor):
        return f"a tensor of shape {tuple(answers.shape)}"
    return type(answers).__name__


def _result_fault(result: object, layout: Layout) -> str | None:
    """Return what is wrong with what a learner returned from its training."""
    if not isinstance(result, TrainingResult):
        return f"{type(result).__name__} from train, which must return a TrainingResult"
    model = np.asarray(result.model, np.float32)
    if model.shape != (layout.size,) or not is_finite(model):
        return f"a model of shape {model.shape}, which must be {layout.size} finite numbers"
    if not _finite(result.loss):
        return f"loss {result.loss!r} from train, which must be a finite number"
    return None


def _score_fault(score: object, learner: type[Learner], recipe: Recipe) -> str | None:
    """Return what is wrong with what a learner returned as the score of a model."""
    if not isinstance(score, Score):
        return f"{type(score).__name__} from score, which must return a Score"
    if not _finite(score.loss):
        return f"loss {score.loss!r} from score, which must be a finite number"
    known = () if recipe.task is None else recipe.task.metrics
    if unknown := sorted(score.metrics.keys() - set(known)):
        return f"metric {unknown[0]!r}, which task.metrics must have: give it there, by a class"
    if wrong := [(name, each) for name, each in score.metrics.items() if not _finite(each)]:
        name, got = wrong[0]
        return f"metric {name!r} as {got!r}, which must be a number: leave it out where undefined"
    if score != UNSCORED and not (type(score.samples) is int and score.samples > 0):
        return f"samples {score.samples!r} from score, which must be a positive integer"
    return _accuracy_fault(score, learner, recipe)


def _accuracy_fault(score: Score, learner: type[Learner], recipe: Recipe) -> str | None:
    """Return what is wrong with an accuracy, which the server expects just where there is one."""
    told = score.accuracy
    if told is not None and not (_finite(told) and 0 <= told <= 1):
        return f"accuracy {told!r}, which must be in 0..1, or None"
    if not score.samples or not (recipe.task is None or recipe.task.has_accuracy):
        return None
    if told is None and learner.answers_labels():
        return "accuracy None, which must be in 0..1: return one, or set classifies = False"
    if told is not None and not learner.answers_labels():
        return (
            f"accuracy {told!r}, which must be None with classifies = False: return it as a metric "
            "of the task, or set classifies = True"
        )
    return None


def _finite(value: Any) -> bool:
    return type(value) in (int, float) and isfinite(value)  # the server takes no boolean


def _told(learner: type[Learner], wrong: str) -> str:
    return (
        "client.learner must train and score the network on some samples, got "
        f"{learner.__module__}.{learner.__qualname__} with {wrong}; correct it "
        "(docs/extend/learner.md)"
    )


def _step_fault(trial: StateTrial, client: ClientConfig, recipe: Recipe) -> str | None:
    """Return why a step has not led to a finite model; None if it has."""
    loss = trial.train().loss
    if _finite(loss) and is_finite(trial.flat.view()):
        return None
    found = "a model that is not" if _finite(loss) else f"loss {loss}"
    return (
        f"task.loss must be finite, and the model after a step too, got {found} with "
        f"{_parts(client, recipe)}; change the loss or the network, lower the learning rate, or "
        "write numbers to predict in a unit in which their deviation is about 1"
    )


def _failure(client: ClientConfig, recipe: Recipe, error: Exception) -> str:
    return (
        f"network must train on some samples with {_parts(client, recipe)}, got "
        f"{reason_of(error)}; change the network, or another of them"
    )


def _parts(client: ClientConfig, recipe: Recipe) -> str:
    loss = "cross-entropy" if recipe.task is None else recipe.task.loss.get("_target_")
    return f"client.optimizer={client.optimizer.path} and task.loss={loss}"
