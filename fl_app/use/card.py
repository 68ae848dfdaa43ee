"""The model card of exported models: what they are, how they were trained, how good they are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.records.history import read_rounds
from fl_app.records.names import ROUNDS
from fl_app.records.plain import spent_epsilon
from fl_app.records.reading import read_config
from fl_app.use.run import FinishedRun

CARD = "model_card.md"
IN_UNIT = {f"torch.nn.{name}" for name in ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")}
"""Losses of a regression that compare its answers themselves with the data."""
Files = Sequence[tuple[str, str, float]]


def write_card(
    run: FinishedRun, to: Path, files: Files, *, owner: int | None = None, scored: bool = True
) -> Path:
    """Write the card of exported models: name, file and largest difference of each.

    `owner` is the client of whom a part of them is; None: they are those of communities. If not
    `scored`, the clients were scored with models of their own, which are in no file.
    """
    path = to / CARD
    path.write_text("\n".join(_lines(run, files, owner, scored)) + "\n", encoding="utf-8")
    return path


def _lines(run: FinishedRun, files: Files, owner: int | None, scored: bool) -> Iterable[str]:
    summary = run.summary
    config = read_config(run.folder)
    rounds = read_rounds(run.folder) if (run.folder / ROUNDS).exists() else []
    rounds = [each for each in rounds if each["round"] <= run.round]  # a killed run has later ones
    yield f"# Models of {summary.get('strategy', 'a run')}, round {run.round}"
    yield ""
    if owner is not None:
        yield f"**Model of client {_called(run, owner)} alone**, since a part of it stays with each"
        yield f"client: use it for this one. Its accuracy was {_accuracy_of(run, owner, rounds)}."
        yield "What follows is of the whole run."
        yield ""
    if not scored:
        yield f"**Not the models that were scored**: with {run.kept_by} each client has a model of"
        yield "its own, and the scores below are of those. The models in the files have no scores."
        yield ""
    if summary or rounds:
        yield from _facts(run, summary, config, rounds, "" if scored else " of own models")
    else:
        yield from _without_records(run)
    yield "\n## Files\n"
    yield "| model | file | largest difference from PyTorch |"
    yield "|---|---|---|"
    yield from (f"| {name} | `{file}` | {gap:.1e} |" for name, file, gap in files)
    yield ""
    yield from _input(run, config)
    yield from _from_raw(run.serving["preprocess"])
    yield "\n## Communities\n"
    yield from _communities(run, rounds, "" if scored else " of own models")
    yield "\n## Versions\n"
    versions = summary.get("versions", {})
    yield from (f"- {name} {version}" for name, version in versions.items())
    yield f"- commit {summary.get('git') or 'unknown'}"


def _facts(
    run: FinishedRun,
    summary: Mapping[str, Any],
    config: Mapping[str, Any],
    rounds: Sequence[Mapping[str, Any]],
    of_which: str,
) -> Iterable[str]:
    clients = summary.get("clients", {})
    yield f"- **Method**: {_target(config, 'strategy')}"
    yield f"- **Data**: {_target(config, 'data')}, {_target(config, 'population')}"
    yield f"- **Network**: {_target(config, 'network')}"
    yield (
        f"- **Training**: {summary.get('rounds', run.round)} rounds, "
        f"{clients.get('total', len(run.clients))} clients, {summary.get('status', 'unknown')}, "
        f"seed {run.serving['seed']}"
    )
    if (record := _last(rounds, "accuracy")) is not None:
        last = record["accuracy"]
        told = f"- **Accuracy{of_which}**{_when(run, record)}: {last['mean']:.4f}, "
        told += f"standard deviation {last['std']:.4f} over "
        worst = min(last["clients"], key=last["clients"].get, default=None)
        if worst is None:  # hidden by secure aggregation
            yield f"{told}the clients"
        else:
            yield (
                f"{told}{len(last['clients'])} clients; worst client {_called(run, int(worst))} "
                f"with {last['clients'][worst]:.4f}"
            )
    record = _last(rounds, "metrics")
    if measured := (record or summary).get("metrics"):
        named = (f"{name} {each['mean']:.4g}" for name, each in measured.items())
        when = "" if record is None else _when(run, record)
        yield f"- **Measures{of_which}**{when}: {', '.join(named)}"
    yield f"- **Privacy**: {_privacy(run, rounds)}"
    if rejected := clients.get("rejected"):
        yield (
            f"- **Rejected replies**: {rejected}, in which a value broke a rule of the server, by "
            "a fault or by an attack; `rounds.jsonl` has the reasons"
        )
    yield f"- **Attacks seen**: {_attacks(summary, rounds)}"


def _without_records(run: FinishedRun) -> Iterable[str]:
    """Return what is known without the records of a run, as of a model that was trained further."""
    tuned = run.serving.get("tuned")
    if tuned is not None:
        yield (
            f"- **Training**: {tuned['model']} of a run, as it was after round {run.round}, "
            f"trained further for {tuned['epochs']} epochs on the data of one client alone, "
            "without differential privacy: give the model to this client alone"
        )
    yield (
        "- **Method, data, scores, privacy and attacks** of the run: not known, since its records "
        "are not in this folder; see the card of its own models"
    )


def _last(rounds: Sequence[Mapping[str, Any]], field: str) -> Mapping[str, Any] | None:
    """Return the last record with a value of a field; None: none has one."""
    return next((each for each in reversed(rounds) if each.get(field)), None)


def _when(run: FinishedRun, record: Mapping[str, Any]) -> str:
    """Return of which models a record is, if not of those in the files."""
    if record["round"] == run.round:
        return ""
    return f" of the models after round {record['round']}, not of these"


def _privacy(run: FinishedRun, rounds: Sequence[Mapping[str, Any]]) -> str:
    record = _last(rounds, "privacy")
    if record is None:
        return "none; the models were trained without differential privacy"
    last = record["privacy"]
    most, mean = (_short(spent_epsilon(last["epsilon"][name])) for name in ("max", "mean"))
    until = "" if record["round"] == run.round else f", until round {record['round']}"
    if last["kind"] == "sketch":
        return (
            f"epsilon {most} at delta {_short(last['delta'])} for each client's "
            "sketch, spent once; the models were trained without differential privacy"
        )
    return (
        f"{last['kind']}, epsilon {most} at delta {_short(last['delta'])} spent by the client "
        f"with most, {mean} on average{until}"
    )


def _attacks(summary: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> str:
    """Return what the server saw of attacks: removed clients, and what the run planted."""
    removed = summary.get("clients", {}).get("removed") or []
    found = [f"removed clients {removed}"] if removed else []
    planted = next((each["attack"] for each in reversed(rounds) if each["attack"]), None)
    if planted is not None:
        found.append("a planted attack (" + _fields(planted) + ")")
    return "; ".join(found) or "none"


def _input(run: FinishedRun, config: Mapping[str, Any]) -> Iterable[str]:
    kind, classes = run.serving["input_type"], ", ".join(run.classes)
    outputs = {
        "classification": f"one score per class before the softmax: {classes}",
        "multilabel": f"one score per class before the sigmoid: {classes}",
        "tokens": f"for each token one score per class before the softmax: {classes}",
        "regression": _predicted(run, config),
        "centroids": "minus the squared distance to each centroid",
        "numbers": "what the network returns: numbers, but no scores of classes",
    }
    yield (
        f"The input is a tensor (samples, {', '.join(map(str, run.input_shape))}) of {kind}, as "
        "`preprocess` in `serving.json` makes it from raw samples. The output is "
        f"{outputs.get(run.answers, 'what the network returns')}."
    )


def _from_raw(described: Mapping[str, Any]) -> Iterable[str]:
    """Return how raw samples become inputs, for a reader without this package."""
    target = str(described.get("_target_"))
    kind = target.rpartition(".")[2] if target.startswith("fl_app.") else ""
    if kind == "Pixels":
        scaled = described["mean"] is not None
        yield (
            "\nBytes 0..255 of each image (channels, height, width) are divided by 255"
            + (", then `mean` of their channel is subtracted, and they are divided by its "
               "`deviation`. " if scaled else ". ")
            + "Files were turned as their EXIF data say and resized by Pillow's default filter."
        )  # fmt: skip
    elif kind == "TableRows":
        yield (
            "\nThe inputs are the columns in `order`. A column of `numbers` is one input: "
            "(x - `mean`) / `deviation`, where a deviation of 0 counts as 1 and null means no "
            "scaling, with `fill` in place of a missing number. A column of `categories` is one "
            "input per category, in the order of the list: 1 for the category of the row and 0 for "
            "the others, with `usual` in place of a missing one."
        )
    elif kind == "TextRows":
        pieces = {"words": "words in lower case and signs between them", "spaces": "parts between "
                  "white space", "characters": "characters"}  # fmt: skip
        yield (
            f"\nTexts are split into {pieces[described['tokens']]}. The token of a piece is 2 plus "
            "its place in `words`, from 0, or 1 if it is not there. Texts are cut at `length` "
            "tokens, or padded with 0 at the end."
        )


def _predicted(run: FinishedRun, config: Mapping[str, Any]) -> str:
    """Return what a regression answers: the unit of the data is sure with some losses alone."""
    predicted = " and ".join(run.predicted) or "numbers"
    loss = ((config.get("task") or {}).get("loss") or {}).get("_target_")
    if loss in IN_UNIT and not (config.get("client") or {}).get("learner"):
        return f"the predicted {predicted}, in the unit of the data"
    return f"what the network returns to predict {predicted}, as the loss or the learner uses it"


def _communities(
    run: FinishedRun, rounds: Sequence[Mapping[str, Any]], of_which: str
) -> Iterable[str]:
    """Return a table of the models that clients use, with the scores of their clients."""
    last = _last(rounds, "accuracy")
    accuracy: Mapping[str, float] = {} if last is None else last["accuracy"]["clients"]
    of_which += "" if last is None else _when(run, last)
    users: dict[str, list[int]] = {}
    for client, names in run.clients.items():
        users.setdefault(names[0] if len(names) == 1 else "chosen by the client", []).append(client)
    if last is None:  # numbers are predicted, say
        yield from _measured(run, rounds, of_which, users)
        return
    yield f"| model | clients | accuracy{of_which} | worst client |"
    yield "|---|---|---|---|"
    for name, clients in sorted(users.items()):
        known = {c: accuracy[str(c)] for c in clients if str(c) in accuracy}
        if not known:
            yield f"| {name} | {len(clients)} | | |"
            continue
        worst = min(known, key=known.__getitem__)
        yield (
            f"| {name} | {len(clients)} | {np.mean(list(known.values())):.4f} | "
            f"{_called(run, worst)}: "
            f"{known[worst]:.4f} |"
        )


def _measured(
    run: FinishedRun,
    rounds: Sequence[Mapping[str, Any]],
    of_which: str,
    users: Mapping[str, Sequence[int]],
) -> Iterable[str]:
    """Return a table of models without accuracy, with the mean of each measure of their clients."""
    last = _last(rounds, "metrics")
    measured: Mapping[str, Any] = {} if last is None else last["metrics"]
    of_which += "" if last is None else _when(run, last)
    heads = ["model", "clients", *(f"{name}{of_which}" for name in measured)]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for name, clients in sorted(users.items()):
        cells = [name, str(len(clients))]
        for each in measured.values():
            known = [each["clients"][str(c)] for c in clients if str(c) in each["clients"]]
            cells.append(f"{np.mean(known):.4g}" if known else "")
        yield f"| {' | '.join(cells)} |"


def _accuracy_of(run: FinishedRun, client: int, rounds: Sequence[Mapping[str, Any]]) -> str:
    last = _last(rounds, "accuracy")
    found = None if last is None else last["accuracy"]["clients"].get(str(client))
    if last is None or found is None:
        return "not measured"
    when = "at the end" if last["round"] == run.round else f"after round {last['round']}"
    return f"{found:.4f} {when}"


def _called(run: FinishedRun, client: int) -> str:
    """Return the id of a client, with its own name if it has one."""
    name = run.client_names.get(client)
    return str(client) if name is None else f"{client} ({name})"


def _target(config: Mapping[str, Any], group: str) -> str:
    node = config.get(group) or {}
    name = str(node.get("_target_", "unknown")).rpartition(".")[2]
    hidden = ("_target_", "root", "dynamics", "fitted")  # of no use on another machine, or long
    rest = {key: value for key, value in node.items() if key not in hidden and value is not None}
    return f"`{name}`" + (f" ({_fields(rest)})" if rest else "")


def _fields(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in values.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({_fields(value)})" if len(value) <= 6 else f"for {len(value)} clients"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
