"""Finds contradictions between the groups of a configuration by building each part once."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fl_app.client.augmentation import augmented
from fl_app.client.learner import Learner, learner_of
from fl_app.client.personal import Shared
from fl_app.client.pretrained import Pretrained
from fl_app.client.privacy import Privacy
from fl_app.client.scoring import check_task
from fl_app.client.task import Classification
from fl_app.client.training_probe import same
from fl_app.data.datasets import Dataset
from fl_app.data.schedule import Dynamics, Schedule
from fl_app.params import FlatModule
from fl_app.personal_checks import check_own
from fl_app.records.models import StateForm
from fl_app.report_checks import check_reports
from fl_app.rng import global_torch_seed
from fl_app.schema import GraphConfig, Target
from fl_app.wiring import check_recipe, client_recipe, dataset, personal, seeded_network, task


def problems(values: Mapping[str, Any]) -> list[str]:
    """Return the problems of the data, their split, network, attack, privacy and schedule.

    `values` are the typed groups. Empty if a group is wrong by itself, or if the run uses another
    federation, whose data are not on this machine.
    """
    groups = [values[key] for key in ("data", "population", "network")]
    if values["pretrained"] is None:
        return []
    engine, seed = values["engine"], values["seed"]
    recipe = _complaint(_check_recipe, values)
    if seed is None or engine is None or engine.connection is not None:
        return recipe
    if not all(group is not None and group.sound for group in groups):
        return recipe
    data, people, _ = groups
    try:
        whole = dataset(data, seed)
    except ValueError as error:
        return [*recipe, str(error)]
    hostile = values["attack"]
    sound = hostile is not None and hostile.sound
    against = _complaint(_check_attack, values, whole) if sound else []
    split = _complaint(people.resolve(), whole, seed=seed, **people.options)
    fitting = _complaint(_check_task, values, whole)
    fitting += [] if recipe else _complaint(_check_transform, values, whole)
    built = _complaint(_check_network, values, whole)
    hidden = _complaint(_check_privacy, values, whole)
    moving = _complaint(_check_schedule, values, whole) if values["dynamics"] else []
    return list(dict.fromkeys(recipe + fitting + split + built + against + hidden + moving))


def _check_recipe(values: Mapping[str, Any]) -> None:
    """Raise ValueError for an optimiser that cannot be built, or that DP-SGD cannot honour."""
    client, given, wanted = values["client"], values["privacy"], values["task"]
    if client is None or wanted is None or not wanted.sound:
        return
    check_recipe(client)
    own = values["personal"]
    mine = personal(own) if own is not None and own.sound else Shared()
    unusual = replace(client_recipe(client), task=task(wanted), personal=mine).unusual()
    unusual += [] if isinstance(client.epochs, int) else ["client.epochs as a distribution"]
    if unusual and given is not None and given.resolve().of_samples:
        raise ValueError(
            f"privacy=sample_dp trains by plain SGD, which has no {', '.join(unusual)}; remove "
            "them, or choose privacy=local_dp"
        )


def _check_task(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for labels, a loss or metrics that do not fit the task or the network."""
    given, graph = values["task"], values["graph"]
    if given is None or not given.sound:
        return
    wanted = task(given)
    wanted.check(data.target)
    if not isinstance(wanted, Classification):
        _check_without_classes(given, graph, values["attack"])
    if not wanted.plain or wanted.metrics:
        check_task(wanted, _built(values, data), data)


def _check_transform(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a transform that fails on a training image, or changes its shape."""
    client = values["client"]
    transform = None if client is None else client_recipe(client).transform
    if transform is None:
        return
    images, _ = data.train(np.arange(1))
    try:
        found: object = tuple(augmented(transform, images, 0, seed=0).shape[1:])
    except Exception as error:  # a user's class can raise anything
        found = f"{type(error).__name__}: {error}".splitlines()[0]
    if found != tuple(images.shape[1:]):
        raise ValueError(
            f"client.transform must return an image of the shape {tuple(images.shape[1:])} that it "
            f"is given, got {found} from {client.transform.path}; change its size"
        )


def _check_without_classes(given: Target, graph: GraphConfig | None, attack: Target | None) -> None:
    """Raise ValueError for settings that need one class per sample."""
    wrong = []
    if graph is not None and graph.benign == "root":
        wrong.append("graph.benign must be largest, got root")
    if attack is not None and "target" in attack.options:
        wrong.append(f"attack must be one without labels, got {attack.path}")
    if wrong:
        raise ValueError(
            f"{'; '.join(wrong)}: with {given.path} a sample has not just one class; remove it, or "
            "give task=classification"
        )


def _check_network(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a network that cannot be built or contradicts other settings."""
    net, method, records, client = (
        values[key] for key in ("network", "strategy", "records", "client")
    )
    module = _built(values, data)
    local = check_own(values, module)
    _check_constants(FlatModule(module, local=local), lambda: _network(values, data))
    learner = learner_of(module, None if client is None else client.learner)
    wanted = getattr(method.resolve(), "model_kind", None) if method else None
    if method and wanted and learner.model_kind != wanted:
        raise ValueError(
            f"network and strategy must have one kind of model, got {net.path} with "
            f"{learner.model_kind} and {method.path} for {wanted}; change one"
        )
    _check_data(module, learner, net, data)
    if method:
        asks = getattr(method.resolve(), "asks", {})
        check_reports(method, asks, learner, values["privacy"], data)
    if records is not None and records.central_test and data.target != "classification":
        raise ValueError(
            f"records.central_test must be false with data.target={data.target}, because it "
            "takes equally many samples of each class; remove it"
        )
    if not learner.classifies and records is not None and records.central_test:
        raise ValueError(
            f"records.central_test must be false with {net.path}, which answers with no classes; "
            "remove it"
        )
    guarded = values["privacy"]
    if client is not None and client.cohort == "fused" and guarded and guarded.resolve().of_samples:
        raise ValueError(
            "client.cohort must not be fused with privacy=sample_dp, which clips the gradient of "
            "each sample; give client.cohort=auto"
        )
    if client is not None and client.cohort == "fused" and not learner.fuses(module):
        raise ValueError(
            "client.cohort=fused needs a network without buffers, dropout and recurrent "
            f"layers, but {net.path} has some; give client.cohort=auto"
        )


def _network(values: Mapping[str, Any], data: Dataset) -> nn.Module:
    return seeded_network(values["network"], values["pretrained"], data, values["seed"])


def _built(values: Mapping[str, Any], data: Dataset) -> nn.Module:
    """Return the network; raises ValueError, also for what a user's constructor raises."""
    net: Target = values["network"]
    try:
        seeded_network(net, Pretrained(weights=None, freeze=[]), data, values["seed"])
    except Exception as error:
        if isinstance(error, ValueError) and net.path.startswith("fl_app."):
            raise  # its message already gives value, rule and remedy
        raise ValueError(
            f"network._target_ must build a network for inputs of shape {data.shape} and "
            f"{data.classes} classes, got {net.path} with {type(error).__name__}: {error}; use "
            "another network or other data"
        ) from error
    return _network(values, data)


def _check_data(module: nn.Module, learner: type[Learner], net: Target, data: Dataset) -> None:
    """Raise ValueError for labels or inputs that the network or its learner cannot take."""
    if data.target not in learner.targets:
        raise ValueError(
            f"data.target must be {' or '.join(learner.targets)} with {net.path}, whose learner "
            f"is {learner.__name__}, got {data.target}; use other data or another learner"
        )
    unlabelled = data.target == "classification" and data.classes < 2
    if unlabelled and learner.model_kind == "network" and learner.classifies:
        raise ValueError(
            f"data must have at least two classes with {net.path}, got {data.classes} in "
            f"{data.name}; give data.label, or use network=centroids with strategy=kmeans"
        )
    if len(data.train_labels) and not len(data.test_labels) and not learner.scores_training_data:
        raise ValueError(
            f"data must have samples for test with {net.path}, got none in {data.name}; give "
            "data.test_share above 0"
        )
    samples = np.arange(min(2, len(data.train_labels)))
    if learner.model_kind != "network" or not len(samples):
        return
    inputs, _ = data.train(samples)
    if not inputs.is_floating_point():
        inputs[0] = int(data.train_images.max())  # the largest token must have an embedding
    try:
        with torch.no_grad(), global_torch_seed(0):
            module.eval()(inputs)
    except Exception as error:  # a user's layer can raise anything
        remedy = "use another network or other data"
        if not inputs.is_floating_point():
            remedy = f"an embedding needs {int(inputs.max()) + 1} rows (network.vocabulary)"
        raise ValueError(
            f"network must take inputs of shape {tuple(inputs.shape)}, {inputs.dtype} up to "
            f"{inputs.max():g}, got {net.path} with {type(error).__name__}: {error}; {remedy}"
        ) from error


def _check_constants(first: FlatModule, build: Callable[[], nn.Module]) -> None:
    """Raise ValueError for a network that cannot be saved, or whose constants vary.

    Server and clients each build it, and its constants are not sent, so they must be equal.
    """
    StateForm.of(first)
    again = FlatModule(build(), local=first.local).constants if first.constants else {}
    for name, constant in first.constants.items():
        if not same(constant, again[name]):
            raise ValueError(
                "frozen parameters and buffers must be equal each time the network is built, got "
                f"{name}, which varies; draw it only with torch or read it from a file"
            )


def _check_privacy(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a privacy that contradicts network, training or engine."""
    given, client, engine = values["privacy"], values["client"], values["engine"]
    if given is None or client is None or not given.sound:
        return
    guard: Privacy = given.resolve()(**given.options)
    if guard.of_samples and not data.train(np.arange(0))[0].is_floating_point():
        raise ValueError(
            f"privacy must not be one of samples with tokens, got {given.path} with {data.name}; "
            "use privacy=local_dp"
        )
    if guard.kind != "none":
        module = _network(values, data)
        guard.check(module, client, data.shape, deployed=engine.name == "deployment")


def _check_attack(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for an attack on clients, labels or inputs that do not exist."""
    hostile: Target = values["attack"]
    attack = hostile.resolve()(**hostile.options)
    attack.check(clients=values["population"].options["clients"], classes=data.classes)
    if attack.needs_images:
        data.check_images("attack")
    inputs, labels = data.train(np.arange(min(2, len(data.train_labels))))
    poisoned, _ = attack.poison(inputs, labels, torch.Generator())
    if poisoned.dtype != inputs.dtype:
        raise ValueError(
            f"attack must keep inputs {inputs.dtype}, got {hostile.path}, which makes them "
            f"{poisoned.dtype}; use an attack on labels or updates"
        )


def _check_schedule(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a schedule that contradicts the clients or their data."""
    schedule = Schedule(*_parts_of(values))
    schedule.check()
    if schedule.dynamics.drifters and schedule.dynamics.drift == "rotation":
        data.check_images("population.dynamics.drift=rotation")
    if schedule.dynamics.drifters and schedule.dynamics.drift == "labels":
        data.check_classes("population.dynamics.drift=labels")


def _parts_of(values: Mapping[str, Any]) -> tuple[Dynamics, int, int, int]:
    clients, rounds = values["population"].options["clients"], values["rounds"] or 1
    return values["dynamics"], clients, rounds, values["seed"]


def _complaint(build: Callable[..., object], *arguments: object, **options: Any) -> list[str]:
    try:
        build(*arguments, **options)
    except ValueError as error:
        return [str(error)]
    return []
