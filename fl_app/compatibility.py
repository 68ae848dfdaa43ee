"""Finds contradictions between the groups of a configuration by building each part once."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from fl_app.client.learner import learner_of
from fl_app.client.privacy import Privacy
from fl_app.client.training_probe import same
from fl_app.data.datasets import Dataset
from fl_app.data.schedule import Dynamics, Schedule
from fl_app.params import FlatModule
from fl_app.records.models import StateForm
from fl_app.wiring import dataset, seeded_network


def problems(values: Mapping[str, Any]) -> list[str]:
    """Return the problems of the data, their split, network, attack, privacy and schedule.

    `values` are the typed groups. Empty if a group is wrong by itself, or if the run uses another
    federation, whose data are not on this machine.
    """
    groups = [values[key] for key in ("data", "population", "network")]
    engine, seed = values["engine"], values["seed"]
    if seed is None or engine is None or engine.connection is not None:
        return []
    if not all(group is not None and group.sound for group in groups):
        return []
    data, people, _ = groups
    try:
        whole = dataset(data, seed)
    except ValueError as error:
        return [str(error)]
    hostile = values["attack"]
    if hostile is not None and hostile.sound:
        clients = people.options["clients"]
        check = hostile.resolve()(**hostile.options).check
        against = _complaint(check, clients=clients, classes=whole.classes)
    else:
        against = []
    split = _complaint(people.resolve(), whole, seed=seed, **people.options)
    built = _complaint(_check_network, values, whole)
    hidden = _complaint(_check_privacy, values, whole)
    moving = _complaint(Schedule(*_parts_of(values)).check) if values["dynamics"] else []
    return list(dict.fromkeys(split + built + against + hidden + moving))


def _check_network(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a network that cannot be built or contradicts other settings."""
    net, method, records, client = (
        values[key] for key in ("network", "strategy", "records", "client")
    )
    module = seeded_network(net, data, values["seed"])
    _check_constants(FlatModule(module), lambda: seeded_network(net, data, values["seed"]))
    learner = learner_of(module)
    wanted = getattr(method.resolve(), "model_kind", None) if method else None
    if method and wanted and learner.model_kind != wanted:
        raise ValueError(
            f"network and strategy must have one kind of model, got {net.path} with "
            f"{learner.model_kind} and {method.path} for {wanted}; change one"
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


def _check_constants(first: FlatModule, build: Callable[[], nn.Module]) -> None:
    """Raise ValueError for a network that cannot be saved, or whose constants vary.

    Server and clients each build it, and its constants are not sent, so they must be equal.
    """
    StateForm.of(first)
    again = FlatModule(build()).constants if first.constants else {}
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
    if guard.kind != "none":
        module = seeded_network(values["network"], data, values["seed"])
        guard.check(module, client, data.shape, deployed=engine.name == "deployment")


def _parts_of(values: Mapping[str, Any]) -> tuple[Dynamics, int, int, int]:
    clients, rounds = values["population"].options["clients"], values["rounds"] or 1
    return values["dynamics"], clients, rounds, values["seed"]


def _complaint(build: Callable[..., object], *arguments: object, **options: Any) -> list[str]:
    try:
        build(*arguments, **options)
    except ValueError as error:
        return [str(error)]
    return []
