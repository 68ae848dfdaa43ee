"""Rules for what stays with each client, between the groups of a configuration."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from fl_app.client.learner import learner_of
from fl_app.client.personal import Shared, reason, staying
from fl_app.client.sgd import SgdLearner
from fl_app.schema import GraphConfig, RecordsConfig, Target
from fl_app.strategies.alternating import Alternating
from fl_app.wiring import personal


def check_own(values: Mapping[str, Any], module: nn.Module) -> Sequence[str]:
    """Return the names of what stays with each client; raises ValueError if it cannot."""
    client, given = values["client"], values["personal"]
    if client is None or given is None or not given.sound:
        return ()
    own, sharing = personal(given), client.batch_norm
    learner = learner_of(module, client.learner)
    if own.name != Shared.name and learner.model_kind != "network":
        raise ValueError(
            f"personal must be none with models of the kind {learner.model_kind}, got {own.name}; "
            "use another network, or remove it"
        )
    if own.needs_sgd and learner.train is not SgdLearner.train:
        raise ValueError(
            f"personal must be none or fedper with a learner that trains in its own way, got "
            f"{own.name} with {learner.__name__}; use SgdLearner"
        )
    if own.own_model and sharing == "local":
        raise ValueError(
            f"client.batch_norm must be average with personal={own.name}, whose clients have all "
            "layers of their own, got local; remove it"
        )
    local = staying(module, sharing, own)
    if local:
        why = reason(sharing, own.name)
        _check_whole(why, values["records"], values["graph"])
        _check_trial(why, values["strategy"])
    return local


def _check_trial(why: str, strategy: Target | None) -> None:
    """Raise ValueError for a trial that trains two models of a client in turn."""
    if strategy is None or not strategy.sound:
        return
    kind, given = strategy.resolve(), strategy.options.get("fallback")
    if isinstance(kind, type) and issubclass(kind, Alternating) and given is True:
        raise ValueError(
            f"strategy.fallback must be false with {why} and {strategy.path}, got true: its "
            "trial trains two models in turn, and what stays with a client would follow both; "
            f"give strategy.fallback=false, or remove {why}"
        )


def _check_whole(why: str, records: RecordsConfig | None, graph: GraphConfig | None) -> None:
    """Raise ValueError for a test on the server of models of which a part is with the clients."""
    tested = []
    if records is not None and records.central_test:
        tested.append(f"records.central_test must be false with {why}, got true")
    if graph is not None and graph.benign == "root":
        tested.append(f"graph.benign must be largest with {why}, got root")
    if tested:
        raise ValueError(
            f"{'; '.join(tested)}: the server has only a part of each model and cannot test it; "
            f"remove it, or remove {why}"
        )
