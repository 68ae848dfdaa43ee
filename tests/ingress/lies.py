"""A grammar of lies: everything that a reply can contain, drawn from a `random.Random`.

Each function takes an honest reply and returns the kind of the lie and the reply that tells it.
A lie may be a valid reply by chance: see tests/ingress/rules.py.
"""

from random import Random

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common import Code, EvaluateRes, FitRes, Parameters, Status
from hostile import value
from mutations import mutated

from fl_app.params import from_bytes, to_bytes

FACTORS = (-1e9, -100.0, -1.0, 0.0, 0.5, 10.0, 1e6, 1e9, 1e15, 1e30)
Lie = tuple[str, object]


def _changed(vector: np.ndarray, draw: Random) -> np.ndarray:
    """Return other numbers for a model: finite or not, near or far."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = [
            lambda: vector * np.float32(draw.choice(FACTORS)) + np.float32(1e-3),
            lambda: np.full_like(vector, draw.choice((1e-12, 3.0, 1e15, 1e20, 3e38, np.nan))),
            lambda: vector + np.float32(draw.gauss(0, 1)),
        ]
        changed: np.ndarray = draw.choice(found)().astype(np.float32)
    if draw.random() < 0.4:
        place = draw.randrange(len(vector))
        changed = vector.copy()
        changed[place] = draw.choice((np.nan, np.inf, -np.inf, 3e38, 1e19, -1.0, 0.0))
    return changed


def _parameters(draw: Random, data: bytes) -> tuple[str, object]:
    if draw.random() < 0.5:
        kind, found = mutated(draw, data)
        return kind, Parameters([found], "numpy.ndarray")
    if draw.random() < 0.6:
        return "other numbers", Parameters([to_bytes(_changed(from_bytes(data), draw))], "")
    tensors = draw.choice(([], [data] * 2, [value(draw)], value(draw), (data,), [bytearray(data)]))
    return "other tensors", draw.choice((Parameters(tensors, "numpy.ndarray"), value(draw)))


def _status(draw: Random) -> object:
    return draw.choice(
        (Status(Code.FIT_NOT_IMPLEMENTED, ""), Status(0, ""), Status(value(draw), ""), value(draw))
    )


def _metrics(draw: Random, honest: dict[str, object], names: tuple[str, ...]) -> tuple[str, object]:
    metrics = dict(honest)
    what = draw.random()
    if what < 0.8:
        name = draw.choice(names)
        metrics[name] = value(draw)
        return f"field {name}", metrics
    if what < 0.9:
        metrics.pop(draw.choice(tuple(metrics)))
        return "missing field", metrics
    return "other metrics", value(draw)


FIT_FIELDS = ("loss", "choice", "train_s", "fitting", "report.norm", "report.losses")


def _reports(draw: Random, honest: dict[str, object]) -> tuple[str, object]:
    """Replace a vector of the reports, if there is one, by a similar one."""
    vectors = [name for name, told in honest.items() if type(told) is bytes]
    if not vectors:
        return _metrics(draw, honest, FIT_FIELDS)
    name = draw.choice(vectors)
    if draw.random() < 0.5:
        kind, told = mutated(draw, honest[name])
    else:
        kind, told = "other numbers", _changed(np.frombuffer(honest[name], "<f4"), draw).tobytes()
    return f"{name}: {kind}", honest | {name: told}


def lie_of_fit(draw: Random, honest: FitRes) -> Lie:
    """Return a lie in place of an honest reply to training."""
    status, parameters = honest.status, honest.parameters
    samples, metrics = honest.num_examples, honest.metrics
    what = draw.random()
    if what < 0.5:
        kind, parameters = _parameters(draw, parameters.tensors[0])
    elif what < 0.65:
        kind, metrics = _metrics(draw, metrics, FIT_FIELDS)
    elif what < 0.75:
        kind, metrics = _reports(draw, metrics)
    elif what < 0.9:
        kind, samples = "field num_examples", value(draw)
    elif what < 0.95:
        kind, status = "status", _status(draw)
    else:
        return "another object", value(draw)
    return kind, FitRes(status, parameters, samples, metrics)


SCORE_FIELDS = ("accuracy", "choice_loss", "attack_success", "table", "community")


def lie_of_evaluation(draw: Random, honest: EvaluateRes) -> Lie:
    """Return a lie in place of an honest score."""
    status, loss, samples, metrics = (
        honest.status, honest.loss, honest.num_examples, honest.metrics,
    )  # fmt: skip
    what = draw.random()
    if what < 0.1 and "table" in metrics:
        kind, table = mutated(draw, metrics["table"])
        kind, metrics = f"table: {kind}", metrics | {"table": table}
    elif what < 0.6:
        kind, metrics = _metrics(draw, metrics, SCORE_FIELDS)
    elif what < 0.75:
        kind, loss = "field loss", value(draw)
    elif what < 0.9:
        kind, samples = "field num_examples", value(draw)
    elif what < 0.95:
        kind, status = "status", _status(draw)
    else:
        return "another object", value(draw)
    return kind, EvaluateRes(status, loss, samples, metrics)


def lie_of_content(draw: Random, honest: RecordDict) -> tuple[str, RecordDict]:
    """Return a reply of another structure: records missing, of other types, or with others."""
    content = honest.copy()
    name = draw.choice(tuple(content))
    what = draw.randrange(4)
    if what == 0:
        del content[name]
        return "missing record", content
    if what == 1:
        content[name] = draw.choice((
            ConfigRecord({"a": 1}), MetricRecord({"a": 1}), ArrayRecord([np.zeros(2)]),
            ConfigRecord({"code": 77, "message": ""}), ConfigRecord({"code": "x", "message": ""}),
            MetricRecord({"num_examples": [1, 2]}), MetricRecord({"loss": [0.5]}),
        ))  # fmt: skip
        return "another record", content
    if what == 2:
        return "another message's reply", RecordDict({"getpropertiesres.status": content[name]})
    return "an empty message", RecordDict()


def lie_of_record(draw: Random, honest: RecordDict) -> tuple[str, RecordDict]:
    """Return a reply with one value of its records exchanged for another that can travel."""
    content = honest.copy()
    name = draw.choice([key for key in content if not isinstance(content[key], ArrayRecord)])
    fields = content[name].copy()
    field = draw.choice([*fields, "client_id", "num_examples", "community", "fitting"])
    sent = value(draw, sendable=True)
    try:
        fields[field] = sent
    except TypeError:  # Flower's own record does not take it
        return lie_of_content(draw, honest)
    content[name] = fields
    return f"record field {field}", content


def lie_of_properties(draw: Random, honest: dict[str, object]) -> tuple[str, object]:
    """Return properties that no honest node sends."""
    return _metrics(draw, honest, ("client_id", "group", "samples", "malicious"))
