"""Local training by SGD, alone or with the cohort that the client is called in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from logging import getLogger
from time import perf_counter
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fl_app.client.class_losses import COUNTS, LOSSES, class_losses
from fl_app.client.cohort_barrier import gathered, together
from fl_app.client.draws import keyed_layers
from fl_app.client.fused_training import can_fuse, train_cohort
from fl_app.client.latents import CLASS_LATENTS, LATENTS, latent_moments
from fl_app.client.learner import Learner, TrainingJob, TrainingResult
from fl_app.client.loss_trajectory import TRAJECTORY, noted, trajectory
from fl_app.client.personal import Ditto, training_only
from fl_app.client.scoring import evaluate_task
from fl_app.client.stragglers import most
from fl_app.client.subspaces import CLASS_SUBSPACES, SUBSPACE, subspaces
from fl_app.client.training import Score, Settings, evaluate, train, trainable
from fl_app.data.checks import LabelKind
from fl_app.params import FlatModule
from fl_app.reasons import reason_of
from fl_app.rng import torch_seed
from fl_app.types import Vector

log = getLogger(__name__)


class SgdLearner(Learner):
    """Trains a network by mini-batches and scores it, by the task of the run."""

    targets = get_args(LabelKind)
    tells: ClassVar[tuple[str, ...]] = (
        LOSSES, COUNTS, SUBSPACE, CLASS_SUBSPACES, LATENTS, CLASS_LATENTS, TRAJECTORY
    )  # fmt: skip
    sample_dp = True
    in_cohort = False

    def train(self, job: TrainingJob) -> TrainingResult:
        """Train from `job.start`, together with the cohort if this learner is fused."""
        described = self._described(job)
        done = self._trained(job)
        return replace(done, reports={**done.reports, **described}) if described else done

    def _trained(self, job: TrainingJob) -> TrainingResult:
        if self.in_cohort and gathered():
            self.flat.layout.check(job.start)  # a wrong start must fail only this client
            result: TrainingResult = together(job, self._cohort)
            if job.asked:
                self.flat.load(result.model)
            return self._told(job, result)
        return self._told(job, self._single(job))

    def _told(self, job: TrainingJob, done: TrainingResult) -> TrainingResult:
        """Return the result with the reports asked for; the network has the trained model."""
        if not job.asked:
            return done
        told = subspaces(job.images, job.labels, job.asked, classes=self.classes)
        if job.asked.keys() & {LOSSES, COUNTS}:
            told |= self._class_losses(job)
        return replace(done, reports={**done.reports, **told})

    def _described(self, job: TrainingJob) -> dict[str, Vector]:
        """Return the descriptors asked for, of the received model before it is trained."""
        if not job.asked.keys() & {LATENTS, CLASS_LATENTS}:
            return {}
        self.flat.load(job.start)
        with keyed_layers(self.flat, job.layers_seed, trains=False):
            return latent_moments(
                self.flat.module, job.images, job.labels, job.asked,
                classes=self.classes, precision=self.settings.precision,
            )  # fmt: skip

    def _class_losses(self, job: TrainingJob) -> dict[str, Vector]:
        loss_of = self.recipe.loss_of(None, self.classes)
        given = self.flat.module, job.images, job.labels, loss_of
        with keyed_layers(self.flat, job.layers_seed, trains=False):
            return class_losses(*given, classes=self.classes, precision=self.settings.precision)

    def _single(self, job: TrainingJob) -> TrainingResult:
        began, module, now = perf_counter(), self.flat.module, job.server_round
        self.flat.load(job.start)
        loss, losses = 0.0, list[Tensor]()
        for phase, (part, epochs) in enumerate(self.recipe.personal.phases(module)):
            given = self.recipe.settings(self.settings, now, epochs or job.epochs)
            with training_only(module, part):
                loss = self._train(_in_phase(job, phase), given, losses=losses)
        told = _told_of(losses, job)
        return TrainingResult(self.flat.view(), loss, perf_counter() - began, told)

    def _train(
        self,
        job: TrainingJob,
        settings: Settings,
        toward: Sequence[Tensor] | None = None,
        losses: list[Tensor] | None = None,
    ) -> float:
        """Train the network from where it is, and return the last epoch's mean loss.

        The loss of each batch is appended to `losses` if the job asks for them; without an epoch
        it is that of the received model.
        """
        module, loss_of = self.flat.module, self.recipe.loss_of(job.labels, self.classes)
        trains = most(settings.epochs) > 0
        if losses is not None and trains and TRAJECTORY in job.asked:
            loss_of = noted(loss_of, losses)
        with keyed_layers(self.flat, job.layers_seed, trains=trains):
            loss = train(
                module,
                job.images,
                job.labels,
                settings,
                generator=job.generator,
                optimiser=self.recipe.optimiser(trainable(module), job.server_round),
                clip_norm=self.recipe.clip_norm,
                loss_of=loss_of,
                change=self.recipe.change(job.layers_seed),
                toward=toward,
            )
        if losses is not None and not trains:
            losses.append(torch.tensor(loss))
        return loss

    def own_model(self, job: TrainingJob, own: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Return a client's own model after SGD from its tensors: see `Ditto`."""
        personal, flat = self.recipe.personal, self.flat
        assert isinstance(personal, Ditto)
        flat.own = {}
        flat.load(job.start)
        toward = [each.detach().clone() for each in trainable(flat.module)]
        flat.own = dict(own)
        flat.load(job.start)
        epochs = personal.epochs or job.epochs
        given: Any = self.recipe.settings(self.settings, job.server_round, epochs)
        self._train(job, replace(given, proximal=personal.proximal), toward)
        return flat.whole_state()

    def _cohort(self, jobs: Sequence[TrainingJob]) -> list[TrainingResult | Exception]:
        """Train a cohort as one computation; one after another if it cannot be.

        One computation would draw once for all clients, so that no draw has the key of a client.
        Some networks cannot be computed for several clients at once, and samples of one client
        can let it fail for all: alone, only this client fails.
        """
        flat = self.flat
        if not flat.draws:
            states = [job.generator.get_state() for job in jobs]
            settings = self.recipe.settings(self.settings, jobs[0].server_round)
            try:
                fused = as_fits(partial(_fused, flat, settings), jobs)
                reason = "the network draws random numbers, as dropout does"
            except Exception as error:  # a user's layer can raise anything
                fused, reason = [], f"as one computation they fail with {reason_of(error)}"
            if fused and not flat.draws:  # which the computation has noted
                return list(fused)
            log.warning("clients train one by one: %s", reason)
            for job, state in zip(jobs, states, strict=True):
                job.generator.set_state(state)
        return [self._apart(job) for job in jobs]

    def _apart(self, job: TrainingJob) -> TrainingResult | Exception:
        """Return the result of one of several jobs, or why it failed."""
        try:
            done = self._single(job)
        except Exception as error:  # raised to this client alone
            return error
        return replace(done, model=done.model.copy())

    def score(self, model: Vector, images: Tensor, labels: Tensor) -> Score:
        """Return the loss, accuracy and metrics of `model` (d,) for the task."""
        self.flat.load(model)
        task, precision = self.recipe.task, self.settings.precision
        if task is None or (task.plain and not task.metrics):
            return evaluate(self.flat.module, images, labels, precision=precision)
        return evaluate_task(
            self.flat.module, images, labels, task, classes=self.classes, precision=precision
        )

    @classmethod
    def fuses(cls, module: nn.Module) -> bool:
        """Whether clients can train `module` as one computation."""
        return can_fuse(module)

    def fused(self) -> Self:
        """Return a learner on the same network that trains with its cohort, if it can."""
        return self._in_cohort(self.fuses(self.flat.module) and not self.recipe.unusual())

    def alone(self) -> Self:
        """Return a learner on the same network that trains without a cohort."""
        return self._in_cohort(False)

    def _in_cohort(self, in_cohort: bool) -> Self:
        made = type(self)(self.flat, self.settings, classes=self.classes)
        made.recipe = self.recipe
        made.in_cohort = in_cohort
        return made


def as_fits(
    run: Callable[[Sequence[TrainingJob]], list[TrainingResult]], jobs: Sequence[TrainingJob]
) -> list[TrainingResult]:
    """Run the jobs at once, or in halves if they exceed the memory of the device.

    Raises torch.OutOfMemoryError if a single job exceeds it.
    """
    states = [job.generator.get_state() for job in jobs]
    try:
        return run(jobs)
    except torch.OutOfMemoryError:
        if len(jobs) == 1:
            raise
    # outside the handler, in which the exception would keep the memory allocated
    half = (len(jobs) + 1) // 2
    log.warning("%d clients exceed the memory of the device; trying %d", len(jobs), half)
    for job, state in zip(jobs, states, strict=True):
        job.generator.set_state(state)
    return as_fits(run, jobs[:half]) + as_fits(run, jobs[half:])


def _fused(
    flat: FlatModule, settings: Settings, jobs: Sequence[TrainingJob]
) -> list[TrainingResult]:
    """Train the jobs as one computation; without results if it finds that the layers draw."""
    began = perf_counter()
    starts = torch.from_numpy(np.stack([job.start for job in jobs])).to(flat.flat.device)
    each_losses: list[list[Tensor]] = [[] for _ in jobs]
    epochs = [most(settings.epochs if j.epochs is None else j.epochs) for j in jobs]
    try:
        with keyed_layers(flat, jobs[0].layers_seed, trains=max(epochs) > 0):
            models, losses = train_cohort(
                flat.module,
                starts,
                [job.images for job in jobs],
                [job.labels for job in jobs],
                settings,
                generators=[job.generator for job in jobs],
                epochs=epochs,
                note=each_losses if any(TRAJECTORY in job.asked for job in jobs) else None,
            )
    except RuntimeError as error:
        if "randomness" not in str(error):  # of torch.func.vmap, which has no other type for it
            raise
        flat.draws = True
        return []
    trained = models.cpu().numpy()
    each = (perf_counter() - began) / len(jobs)
    return [
        TrainingResult(model, loss, each, _told_of(batches, job))
        for model, loss, batches, job in zip(
            trained, losses.tolist(), each_losses, jobs, strict=True
        )
    ]


def _in_phase(job: TrainingJob, phase: int) -> TrainingJob:
    """Return the job with a key of its own for what layers and images draw in a later phase."""
    if phase == 0:
        return job
    return replace(job, layers_seed=torch_seed(job.layers_seed, purpose=f"phase {phase}"))


def _told_of(losses: Sequence[Tensor], job: TrainingJob) -> dict[str, Vector]:
    """Return the report of the losses of a training, if the job asks for it."""
    length = job.asked.get(TRAJECTORY)
    return {} if length is None else {TRAJECTORY: trajectory(losses, length)}
