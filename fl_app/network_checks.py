"""Rules between a network and what it is trained with, found by building it."""

from collections.abc import Callable, Mapping
from logging import getLogger
from typing import Any

import torch
from torch import Tensor, nn

from fl_app.client.latents import LATENTS, latent_layer
from fl_app.client.learner import Learner, learner_of
from fl_app.client.pretrained import Pretrained
from fl_app.client.training_probe import same
from fl_app.data.datasets import Dataset
from fl_app.input_checks import check_inputs, tried
from fl_app.input_warnings import warn_of_inputs
from fl_app.masking.settings import SecAgg
from fl_app.params import FlatModule, is_finite
from fl_app.personal_checks import check_own
from fl_app.reasons import reason_of
from fl_app.records.models import StateForm
from fl_app.report_checks import check_reports
from fl_app.rng import global_torch_seed
from fl_app.schema import Target
from fl_app.wiring import masking, seeded_network

log = getLogger(__name__)
OPTIONS = {
    "network": ("a network such as mlp", "a strategy such as flic"),
    "mixture": ("network=mixture", "strategy=fedem or fedrc"),
    "centroids": ("network=centroids", "strategy=kmeans, kfed or central_kmeans"),
}
"""Networks and strategies by the kind of their models."""


def check_network(values: Mapping[str, Any], data: Dataset) -> None:
    """Raise ValueError for a network that cannot be built or contradicts other settings."""
    net, method, client = values["network"], values["strategy"], values["client"]
    module = built_network(values, data)
    local = check_own(values, module)
    flat = FlatModule(module, local=local)
    _check_finite(flat)
    _check_constants(flat, lambda: fresh_network(values, data))
    learner = learner_of(module, None if client is None else client.learner)
    wanted = getattr(method.resolve(), "model_kind", None) if method else None
    if method and wanted and learner.model_kind != wanted:
        raise ValueError(
            f"network and strategy must have one kind of model, got {net.path} with "
            f"{learner.model_kind} and {method.path} for {wanted}; "
            f"{_alike(learner.model_kind, wanted)}"
        )
    _check_data(module, learner, net, data, values["data"].options)
    if method:
        asks = getattr(method.resolve(), "asks", {})
        check_reports(method, asks, learner, values["privacy"], data)
        _check_latents(method, asks, module)
    if values["records"] is not None and values["records"].central_test:
        _check_central_test(net, learner, data)
    _check_one_tensor(module, learner, values, data)
    if not learner.answers_labels():
        _check_without_accuracy(values, learner)
    if client is not None and client.cohort == "fused":
        _check_fused(values["privacy"], net, learner, module)


def _alike(kind: str, wanted: str) -> str:
    network, _ = OPTIONS.get(wanted, ("another network", ""))
    _, strategy = OPTIONS.get(kind, ("", "another strategy"))
    return f"use {network}, or {strategy}"


def _check_central_test(net: Target, learner: type[Learner], data: Dataset) -> None:
    """Raise ValueError for a test on the server of what has no classes."""
    if data.target != "classification":
        raise ValueError(
            f"records.central_test must be false with data.target={data.target}, because it "
            "takes equally many samples of each class; remove it"
        )
    if not learner.classifies:
        raise ValueError(
            f"records.central_test must be false with {net.path}, which answers with no classes; "
            "remove it"
        )


def _check_one_tensor(
    module: nn.Module, learner: type[Learner], values: Mapping[str, Any], data: Dataset
) -> None:
    """Raise ValueError for answers that the server cannot score without the learner."""
    graph, records, wrong = values["graph"], values["records"], []
    if records is not None and records.central_test:
        wrong.append("records.central_test must be false, got true")
    if graph is not None and graph.benign == "root":
        wrong.append("graph.benign must be largest, got root")
    if not wrong or learner.model_kind != "network" or not len(data.train_labels):
        return
    with torch.no_grad(), global_torch_seed(0):
        answers = module.eval()(next(tried(data))[0])
    if not isinstance(answers, Tensor):
        raise ValueError(
            f"{'; '.join(wrong)}: the network answers with {type(answers).__name__}, which only "
            "its learner can read; remove it, or return the scores alone in evaluation mode"
        )


def _check_without_accuracy(values: Mapping[str, Any], learner: type[Learner]) -> None:
    """Raise ValueError for settings that need the accuracy that a learner does not tell."""
    graph, masks = values["graph"], values["masking"]
    wrong = []
    if graph is not None and graph.benign == "root":
        wrong.append("graph.benign must be largest, got root")
    if masks is not None and masks.sound and isinstance(masking(masks), SecAgg):
        wrong.append(f"masking must be none, got {masks.path}")
    if wrong:
        raise ValueError(
            f"{'; '.join(wrong)}: {learner.__name__} has classifies = False and tells no accuracy; "
            "remove it, or use another learner"
        )


def _check_fused(
    privacy: Target | None, net: Target, learner: type[Learner], module: nn.Module
) -> None:
    """Raise ValueError for a fused cohort whose clients cannot be trained together."""
    guarded: Any = privacy.resolve() if privacy else None
    if guarded and guarded.of_samples:
        raise ValueError(
            "client.cohort must not be fused with privacy=sample_dp, which clips the gradient of "
            "each sample; give client.cohort=auto"
        )
    if not learner.fuses(module):
        raise ValueError(
            "client.cohort=fused needs a network without buffers, dropout and recurrent layers, "
            f"and parameters of float32, but {net.path} has others; give client.cohort=auto"
        )


def _check_latents(method: Target, asks: Mapping[str, object], module: nn.Module) -> None:
    """Raise ValueError for descriptors of latent features that the network does not have."""
    if LATENTS in asks and latent_layer(module) is None:
        raise ValueError(
            f"the network must have a dense layer (torch.nn.Linear) with {method.path}, whose "
            "clients describe their data by the inputs of the first one, got none; use another "
            "network or another strategy"
        )


def fresh_network(values: Mapping[str, Any], data: Dataset) -> nn.Module:
    """Return the network as the run starts with it."""
    return seeded_network(values["network"], values["pretrained"], data, values["seed"])


def built_network(values: Mapping[str, Any], data: Dataset) -> nn.Module:
    """Return the network; raises ValueError, also for what a user's constructor raises."""
    net: Target = values["network"]
    try:
        seeded_network(net, Pretrained(weights=None, freeze=[]), data, values["seed"])
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) and net.path.startswith("fl_app."):
            raise  # its message already gives value, rule and remedy
        raise ValueError(
            f"network._target_ must build a network for inputs of shape {data.shape} and "
            f"{data.classes} classes, got {net.path} with {reason_of(error)}; use "
            "another network or other data"
        ) from error
    return fresh_network(values, data)


def _check_data(
    module: nn.Module, learner: type[Learner], net: Target, data: Dataset, given: Mapping[str, Any]
) -> None:
    """Raise ValueError for labels or inputs that the network or its learner cannot take."""
    if data.target not in learner.targets:
        raise ValueError(
            f"data.target must be {' or '.join(learner.targets)} with {net.path}, whose learner "
            f"is {learner.__name__}, got {data.target}; use other data or another learner"
        )
    if len(data.train_labels) and not len(data.test_labels) and not learner.scores_training_data:
        raise ValueError(
            f"data must have samples for test with {net.path}, got none in {data.name}; "
            f"{_remedy_without_test(given)}"
        )
    if learner.model_kind == "network" and len(data.train_labels):
        check_inputs(module, net, data)
        warn_of_inputs(module, data, scales=given.get("standardise") is False)


def _remedy_without_test(given: Mapping[str, Any]) -> str:
    """Return how data with these options get samples for test."""
    share = given.get("test_share")
    if share is None:
        return "let data._target_ return some"
    if not share:
        return "give data.test_share above 0"
    found = [f"data.{name}" for name in ("test_file", "test_split") if name in given]
    found += ["data.client=null with population=iid"] if given.get("client") else []
    others = "".join(f", or give {each}" for each in found)
    return f"no client has a second sample, of which data.test_share is taken: add some{others}"


def _check_finite(flat: FlatModule) -> None:
    """Raise ValueError for a first model with values that are not finite, as every reply would be.

    Buffers with such values are constants.
    """
    first, parts = flat.vector(), flat.layout.parts.items()
    bad = next((name for name, part in parts if not is_finite(first[part])), None)
    if bad is not None:
        raise ValueError(
            f"network must start from finite float32 numbers, got others in {bad}; initialise it "
            "with smaller ones, or load other weights"
        )


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
