"""What was run and whether it worked, in sentences and a few numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fl_app.evaluation.ranks import worst_decile
from fl_app.records.history import FELL_BACK, VERDICTS
from fl_app.records.rounding import counted, number, share
from fl_app.report.defence import benign_rule
from fl_app.report.page import reply_sentences
from fl_app.report.page.clients import ranges
from fl_app.report.page.look import REMOVED
from fl_app.report.page.run_records import RunRecords, Scores
from fl_app.report.page.seconds import time_parts
from fl_app.report.run import first_right_round, series

Facts = list[tuple[str, str]]


def what_was_run(records: RunRecords) -> Facts:
    """Return the most important settings of the run, by name."""
    config = records.run.config
    population, strategy = _group(config, "population"), _group(config, "strategy")
    network = _last(_group(config, "network").get("_target_"))
    points = network == "centroids"  # no epochs, but steps of Lloyd's
    facts = [
        ("method", method(records)),
        ("data", _last(_group(config, "data").get("_target_"))),
        ("split", _last(population.get("_target_"))),
        ("clients", population.get("clients", len(records.clients))),
        ("planted groups", records.planted),
        ("network", network),
        ("participation", strategy.get("participation")),
        ("local epochs", None if points else _group(config, "client").get("epochs")),
        ("attack", _attack(_group(config, "attack"))),
        ("privacy", _privacy(_group(config, "privacy"))),
        ("personal", _unless("Shared", _group(config, "personal"))),
        ("masking", _unless("Masking", _group(config, "masking"))),
        ("changes during the run", _dynamics(population.get("dynamics") or {})),
        ("engine", _group(config, "engine").get("name")),
        ("seed", config.get("seed")),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def method(records: RunRecords) -> str:
    """Return the name of the method from the summary, else from the configuration."""
    if records.summary:
        return str(records.summary["strategy"])
    return _last(_group(records.run.config, "strategy").get("_target_")).lower() or "a run"


def _group(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return config.get(name) or {}


def _last(path: str | None) -> str:
    return (path or "").rsplit(".", 1)[-1]


def _attack(attack: Mapping[str, Any]) -> str:
    name = _last(attack.get("_target_"))
    if name in ("", "NoAttack"):
        return "none"
    who = f"clients {attack['clients']}" if attack.get("clients") else f"{attack['share']:.0%}"
    return f"{name} by {who}"


def _privacy(privacy: Mapping[str, Any]) -> str:
    name, epsilon = _unless("NoPrivacy", privacy), privacy.get("epsilon")
    if not name or epsilon is None:
        return name
    span = "each round" if privacy.get("budget") == "round" else "the run"
    return f"{name}, epsilon {epsilon:g} for {span}"


def _unless(default: str, option: Mapping[str, Any]) -> str:
    """Return the name of an option, "" for the one that does nothing."""
    name = _last(option.get("_target_"))
    return "" if name == default else name


def _dynamics(dynamics: Mapping[str, Any]) -> str:
    kinds = [("newcomers", "join"), ("leavers", "leave"), ("drifters", "drift")]
    parts = [f"{dynamics[key]} {verb} at a time" for key, verb in kinds if dynamics.get(key)]
    if dynamics.get("availability", 1.0) < 1:
        parts.append(f"available {dynamics['availability']:.0%} of the time")
    return ", ".join(parts) or "none"


def progress(records: RunRecords) -> str:
    """Return the status, the completed rounds and the time; and why, if there is a reason."""
    done, planned = len(records.run.rounds), records.run.config.get("rounds")
    rounds = counted(planned, "round", "rounds") if planned else "an unknown number of rounds"
    state = {
        "completed": f"Completed: {counted(done, 'round', 'rounds')}",
        "interrupted": f"Interrupted after {done} of {rounds}",
        "failed": f"Failed after {done} of {rounds}",
        "unfinished": f"Still running, or killed: {done} of {rounds}",
    }[records.status]
    total = sum(float(record["time"]["total_s"]) for record in records.run.rounds)
    why = (records.summary or {}).get("ended")
    return f"{state}, in {duration(total)}." + (f" The reason: {why.rstrip('.')}." if why else "")


def duration(seconds: float) -> str:
    """Return seconds in a readable unit."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def did_it_work(records: RunRecords) -> list[str]:
    """Return the results as sentences: accuracy, communities, attack, replies, odd clients."""
    found = [
        _accuracy(records),
        records.warning,
        _metrics(records),
        _communities(records),
        _fallback(records),
        _attacked(records),
        reply_sentences.untrained(records),
        reply_sentences.lost(records),
    ]
    found += [reply_sentences.dominated(records), reply_sentences.odd(records)]
    return [sentence for sentence in found if sentence]


def _accuracy(records: RunRecords) -> str:
    if not records.after and _measured(records):
        return ""  # a task without accuracy
    rounds, means = series(records.run.rounds, "accuracy", "mean")
    if not records.after and means:
        return (
            f"The mean accuracy over the clients is {share(means[-1], 1)} (round {rounds[-1]}); "
            "that of each client is hidden by secure aggregation."
        )
    if not records.after:
        return _distance(records) or _unmeasured(records)
    now, last = _mean(records.after, [*records.after]), max(records.scores)
    worst = worst_decile([*records.after.values()])
    assert worst is not None  # since some client was measured
    measured, present = len(records.after), records.present(last)
    some = f"; {measured} of {present} clients evaluated" if measured < present else ""
    return (
        f"The mean accuracy over the clients is {share(now, 1)} (round {last}{some})"
        f"{_change(records)}. The mean accuracy of the worst tenth of the clients is "
        f"{share(worst, 1)}."
    )


def _unmeasured(records: RunRecords) -> str:
    if _group(records.run.config, "records").get("evaluate_at_most") == 0:
        return "There is no accuracy, since records.evaluate_at_most=0 lets no client evaluate."
    return "Accuracy has not been measured yet."


def _distance(records: RunRecords) -> str:
    """Return the score of centroids without an accuracy, if they were scored."""
    scored = [r for r in records.run.rounds if "distance" in (r.get("notes") or {})]
    if not scored:
        return ""
    value, at = scored[-1]["notes"]["distance"], scored[-1]["round"]
    return (
        f"The mean squared distance of a point to the nearest centroid is {number(value)} "
        f"(round {at}). There is no accuracy, which needs points with known classes."
    )


def _mean(scores: Scores, clients: Sequence[int]) -> float:
    return float(np.mean([scores[client] for client in clients]))


def _change(records: RunRecords) -> str:
    """Return the accuracy before, with the clients that it is comparable for."""
    if records.compared is None:
        return ""
    (first, last), split, both = records.compared, records.split_at, records.both
    split_up = "before the first split" if records.divided else "before the clustering"
    when = split_up if split and first <= split else "at the first measurement"
    if not both:
        return f"; none of these clients was measured {when} (round {first})"
    then, now = (share(_mean(scores, both), 1) for scores in (records.before, records.after))
    if len(both) == len(records.before) == len(records.after):
        return f"; {when} it was {then} (round {first})"
    some = f"over the {counted(len(both), 'client', 'clients')} measured in both rounds"
    return f"; {some} it was {then} {when} (round {first}) and {now} in round {last}"


def _measured(records: RunRecords) -> Mapping[str, Any]:
    """Return the last measurement of the metrics of the task, by name."""
    measured = (r["metrics"] for r in reversed(records.run.rounds) if r.get("metrics"))
    return next(measured, {})


def _metrics(records: RunRecords) -> str:
    """Return a sentence on the metrics of the task, and what their means are means of."""
    found = _measured(records)
    if not found:
        return ""
    parts = [
        f"{name} {number(each['mean'])} ± {number(each['std'])} "
        f"({counted(len(each['clients']), 'client', 'clients')})"
        for name, each in found.items()
    ]
    return (
        f"Metrics: {'; '.join(parts)}. Each is the mean over the clients of the metric on the "
        "client's own test data, ± the standard deviation; a client on whose data the metric is "
        "undefined has no value. For a metric that is no mean over samples, such as F1, AUC or "
        "R2, this is not its value on the test data of all clients together."
    )


def _communities(records: RunRecords) -> str:
    found = [r["communities"] for r in records.run.rounds if r["communities"]]
    ranks = {rank for rank in records.final.values() if rank != REMOVED}
    if not found or not ranks:
        return "There are no communities in this run."
    when = "at the end" if records.summary else f"after round {len(records.run.rounds)}"
    text = f"{counted(len(ranks), 'community', 'communities')} {when}"
    out = len(records.removed)
    text += f", {counted(out, 'client', 'clients')} removed" if out else ""
    last, right = found[-1], first_right_round(records.run.rounds)
    if records.planted is None:
        return f"{text}; there are no planted groups to compare with."
    # at the end the summary also measures clients that the method did not cluster
    ari = (records.summary or {})["communities"]["ari"] if records.assignment else last["ari"]
    if ari is None:
        masked = _unless("Masking", _group(records.run.config, "masking"))
        why = ", since masks hide the group of each client from the server" if masked else ""
        return f"{text}; the agreement with the {records.planted} planted groups is not known{why}."
    if right is not None and ari == 1.0:
        return f"{text}; from round {right} on they are exactly the planted groups."
    return f"{text}; agreement with the {records.planted} planted groups: ARI {number(ari, 2)}."


def _fallback(records: RunRecords) -> str:
    """Return what the clients' own validation made of the communities, in the order of rounds."""
    return " ".join(
        _verdict(int(record["round"]), event)
        for record in records.run.rounds
        for event in record["events"]
        if event["kind"] in VERDICTS
    )


def _verdict(at: int, event: Mapping[str, Any]) -> str:
    if event["kind"] == FELL_BACK:
        who = ranges(sorted(event["clients"]))
        return f"By the clients' validation in round {at}, {event['detail']}: {who}."
    return f"By the clients' validation in round {at}, {event['detail']}."


def _attacked(records: RunRecords) -> str:
    found = [r["attack"] for r in records.run.rounds if r["attack"]]
    if not found:
        return ""
    last = found[-1]
    loyal = next((f["loyal_accuracy"] for f in reversed(found) if f["loyal_accuracy"]), None)
    text = f"Detection of malicious clients: recall {_share(last['recall'])}, "
    text += f"precision {_share(last['precision'])}."
    text += f" The accuracy of the loyal clients is {share(loyal, 1)}." if loyal is not None else ""
    return f"{text} The server assumes as loyal: {benign_rule(records.run.config)}."


def _share(value: float | None) -> str:
    return "undefined" if value is None else share(value)


def where_time_went(records: RunRecords) -> str:
    """Return one sentence with the total time and the share of each part."""
    sums = {name: sum(seconds) for name, seconds in time_parts(records).items()}
    total = sum(sums.values())
    if not total:
        return "No round has ended yet."
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in sums.items())
    return f"{duration(total)} in all: {parts}."
