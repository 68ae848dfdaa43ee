"""Optimisers and schedules of torch by their names."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

sys.path.insert(0, str(Path(__file__).parent))  # where user_tasks is
from fl_app import client_wiring, wiring
from fl_app.client.optimisation import Optimisation, check
from fl_app.client.training import PlainSgd
from fl_app.compatibility import problems
from fl_app.composition import choices
from fl_app.config import ConfigError, load
from fl_app.types import Vector

SMALL = [
    "population.clients=3", "population.groups=1", "population.train_samples=30",
    "population.test_samples=10", "strategy=fedavg", "rounds=8", "client.epochs=2",
]  # fmt: skip


def _fit(*overrides: str, server_round: int = 1) -> tuple[Vector, Vector]:
    config = load([*SMALL, *overrides], also=problems)
    _, start = wiring.initial_model(config)
    model = client_wiring.client(config, 0).fit(start, server_round=server_round).model
    return start, model.copy()


@pytest.mark.parametrize("name", choices("client/optimizer"))
def test_every_optimiser_trains_as_torch_alone_does(name: str) -> None:
    config = load([*SMALL, f"client/optimizer={name}", "client.device=cpu"], also=problems)
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    model = client.fit(start, server_round=1).model.copy()
    module = wiring.network(config, wiring.shared_population(config).dataset)
    module.to(memory_format=torch.channels_last)  # as clients have kernels: sums in another order
    options = dict(config.client.optimizer.options)
    optimiser = config.client.optimizer.resolve()(module.parameters(), **options)
    data, draw = client.load(1), client_wiring.client(config, 0)
    order = wiring.recipe(config)  # cached
    assert order is client.learner.recipe
    from fl_app.client.draws import Draws
    from fl_app.client.training import epoch_order

    batches = Draws(config.seed, 1, 0, keyed=True).torch("batches")
    for _ in range(config.client.epochs):
        for batch in torch.split(epoch_order(draw.samples, batches), config.client.batch_size):
            optimiser.zero_grad()
            scores = module(data.train_images[batch])
            torch.nn.functional.cross_entropy(scores, data.train_labels[batch]).backward()
            optimiser.step()
    expected = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    torch.testing.assert_close(torch.from_numpy(model), expected, atol=1e-5, rtol=1e-3)
    assert np.abs(model - start).max() > 0


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0, 0), (0.9, 0), (0, 0.1), (0.9, 0.1)])
def test_plain_sgd_takes_the_steps_of_torch(momentum: float, weight_decay: float) -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(2))]
    theirs = [torch.nn.Parameter(each.detach().clone()) for each in ours]
    values = {"momentum": momentum, "weight_decay": weight_decay}
    first = PlainSgd(ours, SimpleNamespace(learning_rate=0.1, **values))
    second = torch.optim.SGD(theirs, lr=0.1, fused=True, **values)
    for step in range(4):
        first.zero_grad()
        second.zero_grad()
        for mine, its in zip(ours, theirs, strict=True):
            if len(mine) == 4 or step != 2:
                its.grad = torch.randn_like(its)
                mine.grad = its.grad.clone()
        first.step()
        second.step()
        for mine, its in zip(ours, theirs, strict=True):
            assert torch.equal(mine, its)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_plain_sgd_takes_sparse_gradients_as_torch_does(momentum: float) -> None:
    ours, theirs = (torch.nn.Embedding(5, 2, sparse=True) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    values = {"momentum": momentum, "weight_decay": 0.0}
    first = PlainSgd(list(ours.parameters()), SimpleNamespace(learning_rate=0.1, **values))
    second = torch.optim.SGD(theirs.parameters(), lr=0.1, **values)
    for rows in ([0, 1, 1], [1, 4]):
        for table, steps in ((ours, first), (theirs, second)):
            steps.zero_grad()
            table(torch.tensor(rows)).square().sum().backward()
            steps.step()
    assert torch.equal(ours.weight, theirs.weight)


def test_plain_sgd_takes_a_parameter_whose_first_gradient_is_late() -> None:
    early, late = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    steps = PlainSgd(
        [early, late], SimpleNamespace(learning_rate=1.0, momentum=0.5, weight_decay=0.0)
    )
    for gradients in [(1.0, None), (1.0, 2.0), (None, 2.0)]:
        steps.zero_grad()
        for parameter, value in zip((early, late), gradients, strict=True):
            parameter.grad = None if value is None else torch.tensor([value])
        steps.step()
    assert early.item() == -(1 + 1.5)  # momentum 1, then 0.5 * 1 + 1
    assert late.item() == -(2 + 3)


def test_an_optimiser_of_torch_is_named_by_its_path() -> None:
    start, model = _fit("client.optimizer._target_=torch.optim.NAdam", "~client.optimizer.momentum",
                        "client.optimizer.lr=0.003")  # fmt: skip
    assert 0 < np.abs(model - start).max() < 0.1


def test_the_short_names_and_the_arguments_of_sgd_are_the_same() -> None:
    short = _fit("client.learning_rate=0.2", "client.momentum=0.5", "client.weight_decay=0.1")[1]
    long = _fit("client.optimizer.lr=0.2", "client.optimizer.momentum=0.5",
                "client.optimizer.weight_decay=0.1")[1]  # fmt: skip
    np.testing.assert_array_equal(short, long)
    assert (short != _fit()[1]).any()


def test_a_cosine_falls_over_the_rounds() -> None:
    config = load([*SMALL, "client/scheduler=cosine", "client.learning_rate=0.1"])
    rates = [wiring.recipe(config).settings(config.client, r).learning_rate for r in range(1, 9)]
    expected = [0.05 * (1 + np.cos(np.pi * done / 8)) for done in range(8)]
    assert rates == pytest.approx(expected)


def test_steps_halve_the_rate_of_any_optimiser() -> None:
    config = load([*SMALL, "client/scheduler=step", "client.scheduler.step_size=3",
                   "client/optimizer=adam"])  # fmt: skip
    chosen = wiring.recipe(config).optimisation
    assert chosen is not None
    assert [chosen.at(r)["lr"] for r in (7, 1, 3, 4)] == [0.00025, 0.001, 0.001, 0.0005]
    assert chosen.at(7)["weight_decay"] == 0.0


def test_a_schedule_may_move_momentum_too() -> None:
    cycle = partial(lr_scheduler.OneCycleLR, max_lr=1.0, total_steps=9)
    chosen = Optimisation(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, cycle)
    assert chosen.at(1)["momentum"] > chosen.at(3)["momentum"]
    assert chosen.at(1)["lr"] < chosen.at(3)["lr"]


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("torch.optim.lr_scheduler.LambdaLR",
         "lr_lambda={_target_: hydra.utils.get_method, path: user_tasks.warm}",
         [0.1, 0.2, 0.3, 0.3, 0.3]),
        ("user_tasks.warm_then_halved", "rounds=2", [0.15, 0.15, 0.3, 0.15, 0.075]),
    ],
)  # fmt: skip
def test_a_schedule_is_made_by_functions_of_a_user(
    target: str, given: str, expected: list[float]
) -> None:
    constant = ["~client.scheduler.factor", "~client.scheduler.total_iters"]
    chosen = [f"client.scheduler._target_={target}", f"+client.scheduler.{given}"]
    config = load([*SMALL, *constant, *chosen, "client.learning_rate=0.3"], also=problems)
    rates = [wiring.recipe(config).settings(config.client, r).learning_rate for r in range(1, 6)]
    assert rates == pytest.approx(expected)


def _grouped(parameters: list[torch.nn.Parameter], *, lr: float) -> torch.optim.SGD:
    groups = [
        {"params": [each], "lr": lr / 10 ** (place + 1)} for place, each in enumerate(parameters)
    ]
    return torch.optim.SGD(groups, lr=lr, momentum=0.5)


def test_each_group_of_parameters_keeps_its_rate_under_a_schedule() -> None:
    halved = partial(lr_scheduler.ExponentialLR, gamma=0.5)
    chosen = Optimisation(_grouped, {"lr": 1.0}, halved)
    check(chosen, 3)
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    for now, first in ((2, 0.5), (1, 1.0)):
        rates = [group["lr"] for group in chosen.make(parameters, now).param_groups]
        assert rates == pytest.approx([first / 10, first / 100, first / 1000])
    assert len(chosen.make(parameters[:1], 2).param_groups) == 1  # as a personal head alone


def test_an_optimiser_of_matrices_alone_is_accepted() -> None:
    check(Optimisation(torch.optim.Muon, {"lr": 0.1}), 3)


def test_a_later_round_trains_with_its_rate() -> None:
    start, first = _fit("client/scheduler=cosine")
    _, last = _fit("client/scheduler=cosine", server_round=8)
    assert np.abs(last - start).max() < 0.2 * np.abs(first - start).max()


def test_a_scheduled_rate_reaches_a_fused_cohort(tmp_path: Path) -> None:
    from fl_app.one_run import run
    from fl_app.records.models import read_models

    found = {}
    for kind in ("single", "fused"):
        run([*SMALL, "client/scheduler=cosine", f"client.cohort={kind}", "rounds=4",
             "records.figures=false", "records.report=false", "tracking=none"],
            tmp_path / kind)  # fmt: skip
        found[kind] = read_models(tmp_path / kind)[0]
        assert "one by one" not in (tmp_path / kind / "run.log").read_text()
    for name in found["single"]:
        np.testing.assert_allclose(found["single"][name], found["fused"][name], atol=1e-4)


def test_a_cohort_with_another_optimiser_says_that_it_trains_one_by_one(tmp_path: Path) -> None:
    from fl_app.one_run import run

    run([*SMALL, "client/optimizer=adam", "client.cohort=fused", "rounds=2",
         "records.figures=false", "records.report=false", "tracking=none"], tmp_path)  # fmt: skip
    said = (tmp_path / "run.log").read_text()
    assert "clients train one by one, not as a cohort: client.optimizer" in said


def test_a_clipped_gradient_bounds_the_step() -> None:
    start, model = _fit("client.clip_norm=0.01", "client.epochs=1", "client.batch_size=30",
                        "client.learning_rate=1")  # fmt: skip
    assert np.linalg.norm(model - start) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["client.optimizer._target_=torch.optim.Sgd"], "must be the path of a class that can be"),
        (["client.optimizer.lr=-1"], "client.optimizer must .*lr is no number of at least 0: -1"),
        (["+client.optimizer.colour=red"], "client.optimizer must be .*colour"),
        (["client.optimizer._target_=torch.nn.Linear"], "client.optimizer must be a class"),
        (["client.optimizer._target_=torch.optim.LBFGS", "~client.optimizer.momentum",
          "~client.optimizer.weight_decay"], "closure"),
        (["client/scheduler=step", "client.scheduler.step_size=0"], "client.scheduler must be"),
        (["client.scheduler._target_=torch.optim.lr_scheduler.ReduceLROnPlateau",
          "~client.scheduler.total_iters", "client.scheduler.factor=0.5"],
         "client.scheduler must be .*metrics"),
        (["client.scheduler._target_=torch.optim.lr_scheduler.OneCycleLR",
          "~client.scheduler.total_iters", "~client.scheduler.factor",
          "+client.scheduler.max_lr=0.1", "+client.scheduler.total_steps=5"],
         "client.scheduler must be .*specified number of total steps is 5"),
        (["client/optimizer=adam", "client.learning_rate=0.2"], "client.learning_rate is the lr"),
        (["client.learning_rate=0.2", "client.optimizer.lr=0.3"], "give client.optimizer.lr alone"),
        (["client/optimizer=adam", "privacy=sample_dp"], "plain SGD, which has no client.optimiz"),
        (["client.clip_norm=1", "privacy=sample_dp"], "has no client.clip_norm; remove them"),
        (["client.optimizer=5"], "client.optimizer"),
    ],
)  # fmt: skip
def test_what_cannot_train_is_a_configuration_error(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *overrides], also=problems)


def test_dp_sgd_follows_a_schedule() -> None:
    start, first = _fit("privacy=sample_dp", "client/scheduler=cosine", "privacy.epsilon=inf")
    last = _fit("privacy=sample_dp", "client/scheduler=cosine", "privacy.epsilon=inf",
                server_round=8)[1]  # fmt: skip
    assert np.abs(last - start).max() < 0.3 * np.abs(first - start).max()
