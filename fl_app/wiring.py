"""Builds the objects of a configuration that both server and clients need.

Only the wiring modules instantiate the parts of a run. `server_wiring` and `client_wiring` build
the other parts, so that a client's process loads no server code.
"""

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object, instantiate

from fl_app.building import built
from fl_app.client.augmentation import Transform
from fl_app.client.initial_network import drawn
from fl_app.client.learner import Learner, learner_of
from fl_app.client.optimisation import Optimisation, check
from fl_app.client.personal import Personal, reason, staying
from fl_app.client.pretrained import Pretrained, prepare
from fl_app.client.privacy import Privacy
from fl_app.client.recipe import Recipe
from fl_app.client.stragglers import most
from fl_app.client.task import Task
from fl_app.client.training_plan import TrainingPlan
from fl_app.config import Config, option
from fl_app.data.datasets import DataError, Dataset
from fl_app.data.population import Population, rotation
from fl_app.data.schedule import Schedule
from fl_app.masking.settings import Masking
from fl_app.option_schema import as_json, typed
from fl_app.params import FlatModule, Layout
from fl_app.reasons import reason_of
from fl_app.rng import cohort_size
from fl_app.schema import ClientConfig, Target
from fl_app.types import Vector

_lock = threading.Lock()
_populations: dict[tuple[str, str | None], Population] = {}


def made(choice: str, *given: Any, **changes: Any) -> Any:
    """Build what an option of conf names, such as `strategy=flic`, with its settings there.

    `given` are its positional arguments, such as a context; `changes` replace settings.
    """
    chosen = option(choice)
    return chosen.resolve()(*given, **{**chosen.options, **changes})


def privacy(config: Config) -> Privacy:
    """Return the privacy of a run."""
    return privacy_of(config.privacy)


def privacy_of(given: Target) -> Privacy:
    """Return the privacy that a group names."""
    made: Privacy = built("privacy", given, Privacy)
    return made


def masking(given: Target) -> Masking:
    """Return whether and how clients of a run mask what they send."""
    made: Masking = built("masking", given, Masking)
    return made


def plan_of(config: Config, samples: int, *, losses: bool = False) -> TrainingPlan:
    """Return the plan of the run for a client with `samples` samples, for the accountant.

    `losses`: whether the method asks for losses in each round, which only the server's side knows.
    """
    return training_plan(
        config.rounds, config.strategy, config.population, config.client, samples, losses=losses
    )


def training_plan(
    rounds: int, method: Target, people: Target, client: ClientConfig, samples: int, *, losses: bool
) -> TrainingPlan:
    """Return the plan for a client with `samples` samples, from groups of a configuration.

    Its participation is that of a cohort of all clients, which is rounded, if that is more. The
    communities that a method will find, each with a cohort, are not known.
    """
    share, clients = float(method.options.get("participation", 1.0)), people.options["clients"]
    return TrainingPlan(
        rounds=rounds,
        participation=max(share, cohort_size(share, clients) / clients),
        samples=samples,
        batch_size=client.batch_size,
        epochs=most(client.epochs),
        losses=losses,
    )


def dataset(data: Target, seed: int, data_root: str | None = None) -> Dataset:
    """Load the data set; `data_root` is a node's own folder in a deployment."""
    return _kept(data.path, _options(data, data_root), seed)


def fresh_dataset(data: Target, seed: int) -> Dataset:
    """Load the data set, though it may have been loaded before."""
    return _loaded(data.path, _options(data, None), seed)


def _options(data: Target, data_root: str | None) -> str:
    """Return the options as JSON, because lists and mappings are no key of a cache."""
    options = dict(data.options)
    if "root" in options:
        options["root"] = str(Path(data_root or options["root"]).expanduser().resolve())
    return json.dumps(as_json(options))


@lru_cache(maxsize=1)
def _kept(path: str, options: str, seed: int) -> Dataset:
    return _loaded(path, options, seed)


def _loaded(path: str, options: str, seed: int) -> Dataset:
    load = get_object(path)
    loaded: object = load(seed=seed, **typed("data", load, json.loads(options)))
    if not isinstance(loaded, Dataset):
        raise DataError(
            f"data._target_ must return a fl_app.data.datasets.Dataset, got {path}, which returns "
            f"{type(loaded).__name__}; return a Dataset"
        )
    return loaded


def population(config: Config, data_root: str | None = None) -> Population:
    """Split the data set among the clients."""
    build = config.population.resolve()
    data = dataset(config.data, config.seed, data_root)
    task(config.task).check(data.target)
    made: Population = build(data, seed=config.seed, **config.population.options)
    return made


def network(config: Config, data: Dataset, number: int = 0) -> torch.nn.Module:
    """Build the network of a run; it is the same in each process and on each machine."""
    return seeded_network(config.network, config.pretrained, data, config.seed, number)


def seeded_network(
    net: Target, pretrained: Pretrained, data: Dataset, seed: int, number: int = 0
) -> torch.nn.Module:
    """Build a network with weights drawn from the run's seed, or saved ones.

    `number` selects other draws, and then only frozen parts are loaded.
    """
    module = drawn(
        net.resolve(), data.shape, data.classes, net.options,
        tokens=data.tokens, seed=seed, number=number,
    )  # fmt: skip
    return prepare(module, pretrained, trainable=number == 0)


def flat_network(
    config: Config,
    module: torch.nn.Module,
    *,
    device: torch.device | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
) -> FlatModule:
    """Return a network of the run as a flat one, without what stays with each client."""
    local = staying(module, config.client.batch_norm, personal(config.personal))
    return FlatModule(module, device=device, constants=constants, local=local)


def initial_model(config: Config, number: int = 0) -> tuple[Layout, Vector]:
    """Return the layout and the first global model (d,), or another by its number."""
    data = shared_population(config).dataset
    flat = flat_network(config, network(config, data, number))
    return flat.layout, flat.vector()


@lru_cache(maxsize=2)
def schedule(config: Config) -> Schedule:
    """Return who joins, leaves and drifts when (cached)."""
    clients = config.population.options["clients"]
    turned = config.population.resolve() is rotation
    return Schedule(config.dynamics, clients, config.rounds, config.seed, turned)


@lru_cache(maxsize=2)
def recipe(config: Config) -> Recipe:
    """Return what clients train with, beside the settings of SGD (cached)."""
    return replace(
        client_recipe(config.client), task=task(config.task), personal=personal(config.personal)
    )


def personal(given: Target) -> Personal:
    """Return what each client of a run has of its own."""
    made: Personal = built("personal", given, Personal)
    return made


def kept_by(config: Config) -> str:
    """Return the settings because of which clients have something of their own; empty: none."""
    return reason(config.client.batch_norm, personal(config.personal).name)


def task(given: Target) -> Task:
    """Return the task of a run."""
    made: Task = built("task", given, Task)
    return made


def client_recipe(client: ClientConfig) -> Recipe:
    """Return the recipe in the group `client`."""
    planned = Optimisation(client.optimizer.resolve(), client.optimizer.options)
    if not _is_constant(client.scheduler):
        schedule = partial(_scheduler, client.scheduler)
        planned = Optimisation(planned.build, planned.options, schedule)
    return Recipe(planned, clip_norm=client.clip_norm, transform=_transform(client.transform))


def _scheduler(given: Target, optimiser: torch.optim.Optimizer) -> Any:
    """Return a scheduler; an argument with a `_target_` is built first, such as a function."""
    arguments = {
        name: instantiate(value, _convert_="all") if isinstance(value, Mapping) else value
        for name, value in given.options.items()
    }
    return given.resolve()(optimiser, **arguments)


def _is_constant(scheduler: Target) -> bool:
    """Whether a scheduler leaves the learning rate, so that none needs to be stepped."""
    constant = scheduler.resolve() is torch.optim.lr_scheduler.ConstantLR
    return constant and scheduler.options.get("factor") == 1.0


def use_of(config: Config, data_root: str | None = None) -> dict[str, Any]:
    """Return what is needed to use the models without the configuration and the data."""
    people = shared_population(config, data_root)
    data = people.dataset
    module = network(config, data)
    learner = learner_of(module, config.client.learner)
    flat = flat_network(config, module)
    return {
        "seed": config.seed,
        "network": {"_target_": config.network.path, **as_json(config.network.options)},
        "input_shape": list(data.shape),
        "input_type": "int64" if data.tokens else "float32",
        "answers": _answers(learner, data),
        "target": data.target,
        "client_names": list(people.names),
        **data.form(),
        "local": sorted(flat.local),
        "own_models": personal(config.personal).own_model,
        "kept_by": kept_by(config),
        "constants": [name for name, part in flat.sources().items() if part in flat.constants],
    }


def _answers(learner: type[Learner], data: Dataset) -> str:
    """Return what models answer: labels of some kind, centroids, or numbers that are no labels."""
    if learner.model_kind != "network":
        return data.target if learner.classifies else learner.model_kind
    return data.target if learner.classifies or data.target == "regression" else "numbers"


def check_recipe(client: ClientConfig, rounds: int) -> None:
    """Raise ValueError for an optimiser or scheduler that cannot train so long, by trying it."""
    scheduled = client_recipe(client).optimisation
    assert scheduled is not None
    constant = Optimisation(scheduled.build, scheduled.options)
    for name, target, part in (
        ("optimizer", client.optimizer, constant),
        ("scheduler", client.scheduler, scheduled),
    ):
        try:
            check(part, rounds)
        except ValueError as error:
            raise ValueError(
                f"client.{name} must be a class of torch with arguments that it accepts, got "
                f"{target.path} with {dict(target.options)}: {error}; remove "
                f"what it does not take (~client.{name}.<argument>), or use one of "
                f"conf/client/{name}, or a client.learner of your own"
            ) from error


def _transform(given: Target) -> Transform | None:
    """Return the transform of images; None for the identity."""
    try:
        transform: Transform = instantiate(
            {"_target_": given.path, **given.options}, _convert_="all"
        )
    except Exception as error:  # a user's class can raise anything
        raise ValueError(
            "client.transform must be a class with arguments that it accepts, got "
            f"{given.path} with {dict(given.options)}: {reason_of(error)}; use one of "
            "conf/client/transform"
        ) from error
    return None if isinstance(transform, torch.nn.Identity) else transform


def device(config: Config) -> torch.device:
    """Return the device on which clients train."""
    if config.client.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.client.device)


def shared_population(config: Config, data_root: str | None = None) -> Population:
    """Return the population of a configuration, built once per process."""
    key = (config.key, data_root)
    with _lock:
        if key not in _populations:
            _populations.clear()
            _populations[key] = population(config, data_root)
        return _populations[key]
