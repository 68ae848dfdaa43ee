"""`fl-app evaluate`: the accuracy and metrics of a finished run, computed again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.client.training import Score
from fl_app.config import Config
from fl_app.kmeans.scores import Scored, pooled
from fl_app.kmeans.weighting import CAPPED
from fl_app.records.history import read_rounds
from fl_app.strategies.centroid_strategy import score_cap
from fl_app.strategies.model_evaluation import TEST_LOSS
from fl_app.strategies.replies import FAR
from fl_app.use.run import FinishedRun, load_run
from fl_app.use.samples import labelled, on_device
from fl_app.use.scorer import Scorer, config_of
from fl_app.wiring import device

Values = Mapping[int, float]


@dataclass(frozen=True)
class Evaluation:
    """The scores of clients by id, each of the model that it uses; `pooled` are over all points."""

    accuracy: Values
    loss: Values = field(default_factory=dict)
    metrics: Mapping[str, Values] = field(default_factory=dict)
    pooled: Mapping[str, float] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return the evaluation as JSON values."""
        metrics = {name: _spread(values) for name, values in self.metrics.items()}
        metrics |= {name: {"mean": value, "clients": {}} for name, value in self.pooled.items()}
        losses, accuracy = _spread(self.loss), _spread(self.accuracy)
        return {"loss": losses, "accuracy": accuracy, "metrics": metrics}


def evaluate(folder: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Return the scores of the clients that evaluated last, and their distance from the records.

    `changes` are settings such as `data.root=<folder>`; with any, all clients are scored and
    nothing is compared.
    """
    run = load_run(folder)
    config = config_of(run.folder, changes)
    last = None if changes else recorded(run)
    wanted = _evaluated(last) if last is not None else []
    away = _left(read_rounds(run.folder)) if last is not None else set[int]()
    wanted = wanted or sorted({*run.clients} - away)
    found = _of_clients(Scorer(run, config), wanted, config).content()
    return found | {"round": run.round, "recorded": _compared(found, last, run)}


def evaluate_samples(run: FinishedRun, path: Path, clients: Sequence[int]) -> dict[str, Any]:
    """Return the scores of clients' models on labelled samples: see `samples.labelled`."""
    config = config_of(run.folder, [])
    scorer = Scorer(run, config)
    inputs, labels = on_device(*labelled(run, path), device(config))
    scores: dict[tuple[str, int | None], Score] = {}
    used = {c: (run.name(client=c), c if run.kept_by else None) for c in clients}
    for name, client in used.values():
        if (name, client) not in scores:
            model = scorer.vector(name)
            scorer.become(client)
            scores[name, client] = scorer.learner.score(model, inputs, labels)
    by_client = {client: scores[key] for client, key in used.items()}
    return _scored(by_client, config).content() | {"round": run.round, "recorded": None}


def recorded(run: FinishedRun) -> Mapping[str, Any] | None:
    """Return the record of the last round with an evaluation, None if there is none."""
    rounds = reversed(read_rounds(run.folder))
    return next((each for each in rounds if _measured(each)), None)


def _measured(record: Mapping[str, Any]) -> bool:
    return bool(record["accuracy"] or _metrics(record) or "distance" in record["notes"])


def _metrics(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return record.get("metrics") or {}  # older runs recorded none


def _evaluated(record: Mapping[str, Any]) -> list[int]:
    """Return the clients with any score in a record."""
    found = [record["accuracy"] or {}, *_metrics(record).values()]
    return sorted({int(client) for each in found for client in each.get("clients", ())})


def _left(rounds: Iterable[Mapping[str, Any]]) -> set[int]:
    """Return the clients that left the run: the mean under masks does not name who is in it."""
    found = set[int]()
    for record in rounds:
        for event in record["events"]:
            if event["kind"] == "left":
                found.update(event["clients"])
    return found


def _of_clients(scorer: Scorer, clients: Sequence[int], config: Config) -> Evaluation:
    scores: dict[int, Score] = {}
    locals_ = {client: scorer.client(client) for client in clients}
    names = {client: scorer.used(local) for client, local in locals_.items()}
    for client in sorted(clients, key=lambda each: names[each]):  # loads each model once
        model = scorer.vector(names[client])
        scores[client] = locals_[client].score(
            model, train_data=False, server_round=scorer.run.round
        )
    return _scored({client: scores[client] for client in clients}, config)


def _scored(scores: Mapping[int, Score], config: Config) -> Evaluation:
    """Return the scores of clients; a centroid has the majority class of all its points.

    A client without test samples has none.
    """
    tables = [
        Scored(client, score.table, score.loss, score.samples)
        for client, score in scores.items()
        if score.table is not None and score.samples
    ]
    if tables:
        weighting = config.strategy.options.get("weighting", CAPPED)
        cap = score_cap(weighting, config.engine.sample_cap)
        both, accuracy = pooled(tables, cap=cap, far=FAR)
        return Evaluation(accuracy, pooled=both)
    scores = {client: score for client, score in scores.items() if score.samples}
    names = dict.fromkeys(name for score in scores.values() for name in score.metrics)
    return Evaluation(
        {c: score.accuracy for c, score in scores.items() if score.accuracy is not None},
        {c: score.loss for c, score in scores.items()},
        {n: {c: s.metrics[n] for c, s in scores.items() if n in s.metrics} for n in names},
    )


def _spread(values: Values) -> dict[str, Any]:
    each = list(values.values())
    mean = float(np.mean(each)) if each else None
    return {"mean": mean, "clients": {str(client): value for client, value in values.items()}}


def _compared(
    found: Mapping[str, Any], last: Mapping[str, Any] | None, run: FinishedRun
) -> dict[str, Any] | None:
    """Return the round of the last evaluation, and the largest difference from what it recorded.

    The difference is null if the models are of a later round, as those of a stopped run can be,
    and if the record has none of the scores.
    """
    if last is None:
        return None
    if last["round"] != run.round:
        return {"round": last["round"], "largest_difference": None}
    recorded_metrics = _metrics(last)
    pairs = list(_pairs(found["accuracy"], last["accuracy"]))
    for name, values in ({TEST_LOSS: found["loss"]} | found["metrics"]).items():
        known = recorded_metrics.get(name, {"mean": last["notes"].get(name)})
        pairs += _pairs(values, known)
    gaps = [abs(ours - theirs) for ours, theirs in pairs]
    return {"round": last["round"], "largest_difference": max(gaps, default=None)}


def _pairs(ours: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> list[tuple[float, float]]:
    """Return pairs of computed and recorded values; a value that is not computed is infinite."""
    if theirs is None or theirs["mean"] is None:
        return []
    given = theirs.get("clients", {})
    pairs = [(ours["clients"].get(client, np.inf), value) for client, value in given.items()]
    return [(np.inf if ours["mean"] is None else ours["mean"], theirs["mean"]), *pairs]
