"""A cohort trained at once against its clients trained one by one."""

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

from fl_app.client.fused_training import can_fuse, train_cohort
from fl_app.client.learner import TrainingJob, TrainingResult
from fl_app.client.sgd import SgdLearner, as_fits
from fl_app.params import FlatModule
from fl_app.rng import torch_generator
from fl_app.wiring import made

small_cnn = partial(made, "network=small_cnn")

SHAPE, CLASSES = (1, 8, 8), 4


@dataclass(frozen=True)
class Local:
    epochs: int = 2
    batch_size: int = 4
    learning_rate: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    precision: str = "fp32"


def _jobs(flat: FlatModule, sizes: list[int]) -> list[TrainingJob]:
    jobs = []
    for client, size in enumerate(sizes):
        draw = torch_generator(1, purpose="data", client=client)
        images = torch.randn((size, *SHAPE), generator=draw)
        labels = torch.randint(0, CLASSES, (size,), generator=draw)
        start = flat.vector() + 0.01 * client
        jobs.append(
            TrainingJob(start, images, labels, torch_generator(0, purpose="b", client=client))
        )
    return jobs


def _flat(seed: int = 0) -> FlatModule:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return FlatModule(small_cnn(SHAPE, CLASSES))


def _learner(flat: FlatModule, local: Local) -> SgdLearner:
    return SgdLearner(flat, local, classes=CLASSES)


def _alone(sizes: list[int], local: Local) -> list[TrainingResult]:
    # a network each: an outcome's model lasts until its network trains again
    return [_learner(_flat(), local).train(job) for job in _jobs(_flat(), sizes)]


def _fused(sizes: list[int], local: Local) -> tuple[torch.Tensor, torch.Tensor]:
    return _together(_jobs(_flat(), sizes), local)


def _together(
    jobs: list[TrainingJob], local: Local, **more: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return train_cohort(
        _flat().module,
        torch.stack([torch.from_numpy(job.start) for job in jobs]),
        [job.images for job in jobs],
        [job.labels for job in jobs],
        local,
        generators=[job.generator for job in jobs],
        **more,
    )


@hypothesis_settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 11), min_size=1, max_size=4),
    epochs=st.integers(0, 3),
    momentum=st.sampled_from([0.0, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.05]),
    proximal=st.sampled_from([0.0, 0.5]),
)
def test_a_cohort_gets_what_each_client_gets_alone(
    sizes: list[int], epochs: int, momentum: float, weight_decay: float, proximal: float
) -> None:
    local = Local(epochs=epochs, momentum=momentum, weight_decay=weight_decay, proximal=proximal)
    models, losses = _fused(sizes, local)
    for model, loss, expected in zip(models, losses, _alone(sizes, local), strict=True):
        torch.testing.assert_close(model, torch.from_numpy(expected.model), atol=1e-4, rtol=1e-4)
        assert float(loss) == pytest.approx(expected.loss, abs=1e-4)


def test_a_client_without_an_epoch_tells_the_loss_of_the_received_model() -> None:
    flat, sizes = _flat(), [9, 600, 5]
    jobs = _jobs(flat, sizes)
    told: list[list[torch.Tensor]] = [[], [], []]
    models, losses = _together(jobs, Local(), epochs=[1, 0, 0], note=told)
    for place in (1, 2):
        score = _learner(flat, Local()).score(jobs[place].start, jobs[place].images,
                                              jobs[place].labels)  # fmt: skip
        assert float(losses[place]) == pytest.approx(score.loss, rel=1e-5)
        assert [float(each) for each in told[place]] == [float(losses[place])]
        np.testing.assert_array_equal(models[place].numpy(), jobs[place].start)


def test_samples_that_overflow_spoil_their_own_client_alone() -> None:
    jobs = _jobs(_flat(), [3, 9])
    jobs[0].images[0] = float("inf")
    models, losses = _together(jobs, Local(), epochs=[3, 1])
    alone = _learner(_flat(), Local(epochs=1)).train(_jobs(_flat(), [3, 9])[1])
    assert not torch.isfinite(models[0]).all()
    torch.testing.assert_close(models[1], torch.from_numpy(alone.model), atol=1e-4, rtol=1e-4)
    assert float(losses[1]) == pytest.approx(alone.loss, abs=1e-4)


def test_half_precision_stays_close_to_full() -> None:
    whole, _ = _fused([9, 5], Local())
    half, _ = _fused([9, 5], Local(precision="bf16"))
    moved = (
        whole - torch.stack([torch.from_numpy(j.start) for j in _jobs(_flat(), [9, 5])])
    ).norm()
    assert 0 < float((whole - half).norm()) < 0.1 * float(moved)


def test_the_proximal_term_holds_a_client_back() -> None:
    free, held = _alone([8], Local())[0], _alone([8], Local(proximal=2.0))[0]
    start = _jobs(_flat(), [8])[0].start
    assert abs(held.model - start).sum() < 0.9 * abs(free.model - start).sum()


def test_networks_that_a_cohort_would_mix_up_are_refused() -> None:
    assert can_fuse(small_cnn(SHAPE, CLASSES))
    assert not can_fuse(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert not can_fuse(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    assert not can_fuse(nn.LSTM(2, 2))
    assert not can_fuse(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))
    assert not can_fuse(nn.Linear(2, 2).bfloat16())


def test_a_cohort_with_frozen_parameters_gets_what_each_client_gets_alone() -> None:
    def flat() -> FlatModule:
        module = _flat().module
        module[0].requires_grad_(requires_grad=False)
        return FlatModule(module)

    local = Local(momentum=0.9, weight_decay=0.05, proximal=0.5)
    frozen = flat().module[0].weight.clone()
    together, alone = _jobs(flat(), [9, 5]), []
    for job in _jobs(flat(), [9, 5]):
        single = flat()
        alone.append(_learner(single, local).train(job).model)
        assert torch.equal(single.module[0].weight, frozen)
    models, _ = train_cohort(
        flat().module,
        torch.stack([torch.from_numpy(job.start) for job in together]),
        [job.images for job in together],
        [job.labels for job in together],
        local,
        generators=[job.generator for job in together],
    )
    for model, expected in zip(models, alone, strict=True):
        torch.testing.assert_close(model, torch.from_numpy(expected), atol=1e-4, rtol=1e-4)


def test_a_cohort_that_does_not_fit_is_halved_until_it_does() -> None:
    jobs = _jobs(_flat(), [3, 3, 3, 3, 3])
    sizes = []

    def run(some: list[TrainingJob]) -> list[TrainingResult]:
        sizes.append(len(some))
        drawn = [float(torch.rand((), generator=job.generator)) for job in some]
        if len(some) > 2:
            raise torch.OutOfMemoryError
        return [TrainingResult(job.start, draw, 0.0) for job, draw in zip(some, drawn, strict=True)]

    losses = [outcome.loss for outcome in as_fits(run, jobs)]
    assert sizes == [5, 3, 2, 1, 2]
    fresh = [float(torch.rand((), generator=job.generator)) for job in _jobs(_flat(), [3] * 5)]
    assert losses == fresh


def test_one_client_that_does_not_fit_is_an_error() -> None:
    def run(_: list[TrainingJob]) -> list[TrainingResult]:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        as_fits(run, _jobs(_flat(), [3]))


class _Empty(nn.Module):
    """A dense layer, beside a parameter without numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, 3))
        self.dense = nn.Linear(prod(SHAPE), CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores (s, c)."""
        found: torch.Tensor = self.dense(images.flatten(1))
        return found


class _Chooses(_Empty):
    """Chooses by a value, which one computation for several clients cannot."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return scores (s, c) of images, turned if these are dark."""
        return super().forward(images if float(images.mean()) > 0 else -images)


def _of(network: type[nn.Module]) -> SgdLearner:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _learner(FlatModule(network()), Local())


@pytest.mark.parametrize(("network", "told"), [(_Empty, []), (_Chooses, ["clients train one by"])])
def test_a_cohort_that_cannot_be_one_computation_trains_one_by_one(
    network: type[nn.Module], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    learner = _of(network)
    found = learner._cohort(_jobs(learner.flat, [5, 9]))
    alone = [_of(network).train(job) for job in _jobs(_of(network).flat, [5, 9])]
    for done, expected in zip(found, alone, strict=True):
        assert isinstance(done, TrainingResult)
        np.testing.assert_allclose(done.model, expected.model, atol=1e-4)
    assert [each[:20] for each in caplog.messages] == told


def test_samples_that_raise_fail_their_own_client_alone() -> None:
    learner = _of(_Empty)
    jobs = _jobs(learner.flat, [5, 9])
    jobs[1].labels[3] = CLASSES  # no class
    done, failed = learner._cohort(jobs)
    expected = _of(_Empty).train(_jobs(_of(_Empty).flat, [5, 9])[0])
    assert isinstance(done, TrainingResult)
    np.testing.assert_allclose(done.model, expected.model, atol=1e-4)
    assert isinstance(failed, IndexError)
