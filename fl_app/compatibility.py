"""Finds contradictions between the groups of a configuration by building each part once."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fl_app.building import built, is_ours
from fl_app.client import private_inputs
from fl_app.client.attacks import Attack, NoAttack
from fl_app.client.augmentation import augmented
from fl_app.client.learner import learner_at, learner_of
from fl_app.client.personal import Personal, Shared
from fl_app.client.privacy import Privacy
from fl_app.client.recipe import Recipe
from fl_app.client.sgd import SgdLearner
from fl_app.client.task import Classification, Task
from fl_app.data.checks import NoClassesError
from fl_app.data.datasets import Dataset
from fl_app.data.population import own
from fl_app.data.schedule import Dynamics, Schedule
from fl_app.data_checks import check_population, loaded
from fl_app.masking.settings import Masking
from fl_app.masking_checks import masking_problems
from fl_app.network_checks import built_network, check_network, fresh_network
from fl_app.params import FlatModule
from fl_app.privacy_checks import check_budget, check_losses
from fl_app.reasons import reason_of
from fl_app.schema import GraphConfig, Target
from fl_app.strategies.graph_use import distance_named
from fl_app.task_checks import check_task
from fl_app.trials import try_attack, try_distance, try_learner, try_training
from fl_app.used_with import yaml_of
from fl_app.wiring import check_recipe, client_recipe, personal, privacy_of, task


def problems(values: Mapping[str, Any]) -> list[str]:
    """Return the problems of the data, their split, network, attack, privacy and schedule.

    `values` are the typed groups. Empty if a group is wrong by itself, or if the run uses another
    federation, whose data are not on this machine.
    """
    groups = [values[key] for key in ("data", "population", "network")]
    if values["pretrained"] is None:
        return []
    if unbuilt := _unbuilt(values):
        return unbuilt  # most other checks need these parts
    engine, seed = values["engine"], values["seed"]
    recipe = _complaint(_check_recipe, values) + masking_problems(values)
    if seed is None or engine is None:
        return recipe
    if engine.name == "deployment" and engine.connection is not None:
        return recipe
    if not all(group is not None and group.sound for group in groups):
        return recipe
    data, people, _ = groups
    try:
        whole = loaded(data, seed)
    except ValueError as error:
        return [*recipe, str(error)]
    hostile = values["attack"]
    sound = hostile is not None and hostile.sound
    against = _complaint(_check_attack, values, whole) if sound else []
    net = _complaint(check_network, values, whole)
    if unlabelled := _complaint(_check_labels, values, whole):
        split = _complaint(check_population, people, whole, seed, unless=NoClassesError)
        return list(dict.fromkeys(recipe + unlabelled + split + net + against))
    split = _complaint(check_population, people, whole, seed)
    fitting = _complaint(_check_task, values, whole)
    fitting += [] if recipe else _complaint(_check_transform, values, whole)
    if not recipe + fitting + net:
        net = _complaint(_check_training, values, whole)
        net += _complaint(_check_distance, values, whole)
    hidden = _complaint(_check_privacy, values, whole)
    hidden += _complaint(check_budget, values, whole) if not split + hidden else []
    hidden += _complaint(check_losses, values, whole) if not split + hidden else []
    moving = _complaint(_check_schedule, values) if values["dynamics"] else []
    moving += _complaint(_check_drift, values, whole) if values["dynamics"] and not split else []
    return list(dict.fromkeys(recipe + fitting + split + net + against + hidden + moving))


def _unbuilt(values: Mapping[str, Any]) -> list[str]:
    """Return why parts that need no data cannot be built."""
    parts = {"attack": Attack, "privacy": Privacy, "personal": Personal, "masking": Masking,
             "task": Task}  # fmt: skip
    return [
        problem
        for group, kind in parts.items()
        if (part := values[group]) is not None and part.sound
        for problem in _complaint(built, group, part, kind)
    ]


def _check_recipe(values: Mapping[str, Any]) -> None:
    """Raise ValueError for an optimiser that cannot be built, or that DP-SGD cannot honour."""
    client, given, wanted = values["client"], values["privacy"], values["task"]
    if client is None or wanted is None or not wanted.sound:
        return
    check_recipe(client, values["rounds"] or 1)
    unusual = _recipe(values).unusual()
    unusual += [] if isinstance(client.epochs, int) else ["client.epochs as a distribution"]
    if unusual and given is not None and given.resolve().of_samples:
        raise ValueError(
            f"privacy=sample_dp trains by plain SGD, which has no {', '.join(unusual)}; remove "
            "them, or choose privacy=local_dp"
        )


def _recipe(values: Mapping[str, Any]) -> Recipe:
    """Return what clients train with; the groups `client` and `task` must be sound."""
    given = values["personal"]
    mine = personal(given) if given is not None and given.sound else Shared()
    return replace(client_recipe(values["client"]), task=task(values["task"]), personal=mine)


def _check_training(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a network that cannot be trained as the clients will."""
    client, wanted, method = values["client"], values["task"], values["strategy"]
    if client is None or wanted is None or not wanted.sound:
        return
    learner = learner_of(built_network(values, data), client.learner)
    recipe = _recipe(values)
    if not (learner.any_task or recipe.task is None or recipe.task.plain):
        raise ValueError(
            f"task.loss and task.class_weights must stay as they are with {learner.__name__}, "
            "whose responsibilities come from the cross-entropy; remove them, or use another "
            "network and strategy"
        )
    given = partial(fresh_network, values, data), learner, client, recipe, data
    ours = learner.__module__.split(".")[0] == "fl_app"
    plain = learner.train is SgdLearner.train
    if plain or (ours and issubclass(learner, SgdLearner)):
        try_training(*given)
    changed = not (plain and learner.score is SgdLearner.score and learner.classifies)
    if changed and not ours:
        try_learner(*given, alone=not _sends(method))


def _sends(method: Target | None) -> bool:
    """Whether a method can send its clients more than a model, which a trial does not have."""
    if method is None:
        return False
    return not is_ours(method) or bool(getattr(method.resolve(), "asks", None))


def _check_labels(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for data without classes where clients learn to tell them apart.

    The learner of a network that cannot be built is the one for networks.
    """
    if data.target != "classification" or data.classes >= 2:
        return
    net, method, client = values["network"], values["strategy"], values["client"]
    path = None if client is None else client.learner
    try:
        learner = learner_of(built_network(values, data), path)
    except ValueError:  # told by `check_network`
        if path is None and getattr(method and method.resolve(), "model_kind", "") != "network":
            return
        learner = SgdLearner if path is None else learner_at(path)
    if learner.model_kind == "network" and learner.classifies:
        remedy = "give data.label" if "label" in values["data"].options else "use other data"
        raise ValueError(
            f"data must have at least two classes with {net.path}, got {data.classes} in "
            f"{data.name}; {remedy}, or use network=centroids with strategy=kmeans"
        )


def _check_distance(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a user's distance that breaks its rules on some models."""
    method = values["strategy"]
    named = None if method is None else method.options.get("similarity")
    if isinstance(named, str) and "." in named:
        flat = FlatModule(fresh_network(values, data))
        try_distance(named, distance_named(named), flat.layout, flat.vector())


def _check_task(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for labels, a loss or metrics that do not fit the task or the network."""
    given, graph = values["task"], values["graph"]
    if given is None or not given.sound:
        return
    wanted = task(given)
    wanted.check(data.target)
    if not isinstance(wanted, Classification):
        _check_without_classes(given, graph, values["attack"])
    module, client = built_network(values, data), values["client"]
    learner = learner_of(module, None if client is None else client.learner)
    if issubclass(learner, SgdLearner) and learner.score is SgdLearner.score:
        check_task(wanted, module, data)


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
        found = reason_of(error)
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


def _check_privacy(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a privacy that contradicts network, training or engine."""
    given, client, engine = values["privacy"], values["client"], values["engine"]
    if given is None or client is None or not given.sound:
        return
    guard = privacy_of(given)
    if guard.of_samples and values["population"].resolve() is own:
        private_inputs.check(data)
    if guard.kind != "none":
        module = built_network(values, data)
        deployed = engine.name == "deployment"
        guard.check(module, client, data.shape, tokens=data.tokens, deployed=deployed)


def _check_attack(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for an attack on clients, labels or inputs that do not exist."""
    hostile: Target = values["attack"]
    attack = built("attack", hostile, Attack)
    clients = values["population"].options["clients"]
    attack.check(clients=clients, classes=data.classes)
    if hostile.resolve() is not NoAttack and not attack.malicious(clients, seed=values["seed"]):
        raise ValueError(
            f"attack must have at least one malicious client, got {hostile.path} with attack.share="
            f"{attack.share:g} and attack.clients={yaml_of(attack.clients)} of population.clients="
            f"{clients}; raise attack.share, name clients, or give attack=none"
        )
    if attack.needs_images:
        data.check_images("attack")
    attack.check_shape(data.shape)
    flat = FlatModule(built_network(values, data)) if not is_ours(hostile) else None
    try_attack(hostile, attack, data, None if flat is None else flat.vector())


def _check_schedule(values: Mapping[str, Any]) -> None:
    """Raise ValueError for a schedule that contradicts the clients."""
    Schedule(*_parts_of(values)).check()


def _check_drift(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a drift that the data or their groups do not allow."""
    how, people = values["dynamics"], values["population"]
    if how.drifters and how.drift == "rotation":
        data.check_images("population.dynamics.drift=rotation")
    if how.drifters and how.drift == "labels":
        data.check_classes("population.dynamics.drift=labels")
    if not how.drifters or how.drift != "group":
        return
    groups = people.resolve()(data, seed=values["seed"], **people.options).groups
    if len(set(groups.tolist())) < 2:
        found = "no groups that are known" if min(groups) < 0 else "only one"
        raise ValueError(
            "population.dynamics.drift=group moves clients to the next planted group, and "
            f"population={people.path.rpartition('.')[2]} has {found}; use "
            "population.dynamics.drift=labels or rotation, or a population with several groups"
        )


def _parts_of(values: Mapping[str, Any]) -> tuple[Dynamics, int, int, int]:
    clients, rounds = values["population"].options["clients"], values["rounds"] or 1
    return values["dynamics"], clients, rounds, values["seed"]


def _complaint(
    build: Callable[..., object],
    *arguments: object,
    unless: type[ValueError] | None = None,
    **options: Any,
) -> list[str]:
    """Return why something is wrong; nothing for an error `unless`, which follows from another."""
    try:
        build(*arguments, **options)
    except ValueError as error:
        return [] if unless is not None and isinstance(error, unless) else [str(error)]
    return []
