"""`fl-app fine-tune`: a personal model, trained further on the data of one client."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_app.client.learner import Learner
from fl_app.client.training import UNSCORED, Score
from fl_app.own import PROJECT
from fl_app.params import FlatModule
from fl_app.records.models import StateForm, write_models
from fl_app.records.output_folder import require
from fl_app.records.serving import Served, write_serving
from fl_app.rng import generator
from fl_app.use.assign import trained
from fl_app.use.run import FinishedRun
from fl_app.use.samples import labelled, on_device
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import device

PERSONAL = "personal"
"""The name of the trained model in its folder."""
TESTED = 0.2
"""The share of given samples that are for test."""


@dataclass(frozen=True)
class Tuned:
    """The model that the training started from, and its scores on test data before and after.

    A client without test samples has no scores.
    """

    start: str
    before: Score | None
    after: Score | None


def fine_tune(
    run: FinishedRun,
    *,
    client: int | None,
    community: int | None,
    model: str | None,
    data: Path | None,
    epochs: int,
    to: Path,
) -> Tuned:
    """Train a model of the run further, and write it to `to`, a folder for `load_run`.

    Without `data` the samples are those of `client`. The training has no privacy, so the model is
    for that client alone. Raises ValueError without samples, and for a folder that is not empty.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ValueError(f"the folder must not exist or be empty, got {to}; choose another")
    require(to)
    if data is None and client is None:
        raise ValueError("--data must be given with a model that is no client's, got none")
    name = run.name(client=client, community=community, name=model)
    config = config_of(run.folder, [])
    scorer = Scorer(run, config)
    if data is not None:
        samples = _split(*on_device(*labelled(run, data), device(config)), seed=config.seed)
    else:
        assert client is not None
        own = scorer.client(client).load(run.round)
        samples = own.train_images, own.train_labels, own.test_images, own.test_labels
    start, learner = scorer.vector(name).copy(), scorer.learner
    scorer.become(client)
    before = _scored(learner, start, *samples[2:])
    after = trained(scorer, start, *samples[:2], epochs=epochs)
    learner.flat.own = learner.flat.local_state()
    _write(run, learner.flat, after, to, client, {"model": name, "epochs": epochs})
    return Tuned(name, before, _scored(learner, after, *samples[2:]))


def _scored(learner: Learner, model: np.ndarray, inputs: Tensor, labels: Tensor) -> Score | None:
    score = learner.score(model, inputs, labels) if len(labels) else UNSCORED
    return score if score.samples else None


def _split(inputs: Tensor, labels: Tensor, *, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    order = generator(seed, purpose="fine-tuning split").permutation(len(labels))
    cut = max(1, round(TESTED * len(order)))
    if cut >= len(order):
        raise ValueError(f"the data must have at least two samples, got {len(order)}; add some")
    train, test = torch.from_numpy(order[cut:]), torch.from_numpy(order[:cut])
    return inputs[train], labels[train], inputs[test], labels[test]


def _write(
    run: FinishedRun, flat: FlatModule, model: np.ndarray, to: Path, client: int | None,
    tuned: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write a run of one model, of the client whose it is if that is one of the run.

    `tuned` says of which model it was trained, for the model card.
    """
    to.mkdir(parents=True, exist_ok=True)
    form = StateForm.of(flat)
    whole = replace(form, constants={**form.constants, **flat.own})
    write_models(to, {PERSONAL: model}, flat.layout, whole)
    shown = ("version", "round", "models", "mixtures", "descriptors", "clients")
    rest = {key: value for key, value in run.serving.items() if key not in shown}
    write_serving(
        to,
        Served({} if client is None else {client: (PERSONAL,)}),
        [PERSONAL],
        rest | {"local": [], "own_models": False, "kept_by": "", "tuned": tuned},
        run.round,
    )
    _copy_project(run, to)


def _copy_project(run: FinishedRun, to: Path) -> None:
    if (run.folder / PROJECT).is_dir():
        shutil.copytree(run.folder / PROJECT, to / PROJECT)
