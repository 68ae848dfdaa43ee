"""What was run and whether it worked, in sentences and a few numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fl_app.report.defence import benign_rule
from fl_app.report.page.clients import odd_updates, ranges, replies
from fl_app.report.page.curves import worst_decile
from fl_app.report.page.look import REMOVED
from fl_app.report.page.outcome import Outcome
from fl_app.report.page.seconds import time_parts
from fl_app.report.run import first_right_round

Facts = list[tuple[str, str]]


def what_was_run(outcome: Outcome) -> Facts:
    """Return the most important settings of the run, by name."""
    config = outcome.run.config
    population, strategy = _group(config, "population"), _group(config, "strategy")
    facts = [
        ("method", method(outcome)),
        ("data", _last(_group(config, "data").get("_target_"))),
        ("split", _last(population.get("_target_"))),
        ("clients", population.get("clients", len(outcome.clients))),
        ("planted groups", outcome.planted),
        ("network", _last(_group(config, "network").get("_target_"))),
        ("participation", strategy.get("participation")),
        ("local epochs", _group(config, "client").get("epochs")),
        ("attack", _attack(_group(config, "attack"))),
        ("changes during the run", _dynamics(population.get("dynamics") or {})),
        ("engine", _group(config, "engine").get("name")),
        ("seed", config.get("seed")),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def method(outcome: Outcome) -> str:
    """Return the name of the method from the summary, else from the configuration."""
    if outcome.summary:
        return str(outcome.summary["strategy"])
    return _last(_group(outcome.run.config, "strategy").get("_target_")).lower() or "a run"


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


def _dynamics(dynamics: Mapping[str, Any]) -> str:
    kinds = [("newcomers", "join"), ("leavers", "leave"), ("drifters", "drift")]
    parts = [f"{dynamics[key]} {verb} at a time" for key, verb in kinds if dynamics.get(key)]
    if dynamics.get("availability", 1.0) < 1:
        parts.append(f"available {dynamics['availability']:.0%} of the time")
    return ", ".join(parts) or "none"


def progress(outcome: Outcome) -> str:
    """Return one sentence with the status, the completed rounds and the time."""
    done, planned = len(outcome.run.rounds), outcome.run.config.get("rounds")
    state = {
        "completed": f"Completed: {done} rounds",
        "interrupted": f"Interrupted after {done} of {planned} rounds",
        "failed": f"Failed after {done} of {planned} rounds",
        "unfinished": f"Still running, or killed: {done} of {planned} rounds",
    }[outcome.status]
    total = sum(float(record["time"]["total_s"]) for record in outcome.run.rounds)
    return f"{state}, in {duration(total)}."


def duration(seconds: float) -> str:
    """Return seconds in a readable unit."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def did_it_work(outcome: Outcome) -> list[str]:
    """Return the results as sentences: accuracy, communities, attack, replies, odd clients."""
    found = [
        _accuracy(outcome),
        _metrics(outcome),
        _communities(outcome),
        _attacked(outcome),
        _lost(outcome),
    ]
    found += [_dominated(outcome), _odd(outcome)]
    return [sentence for sentence in found if sentence]


def _accuracy(outcome: Outcome) -> str:
    if not outcome.after and _measured(outcome):
        return ""  # a task without accuracy
    if not outcome.after:
        return "Accuracy has not been measured yet."
    now = float(np.mean(list(outcome.after.values())))
    worst = worst_decile(outcome.after)
    last = max(outcome.scores)
    text = f"The mean accuracy over the clients is {now:.1%} (round {last})"
    if outcome.compared and outcome.before:
        then, first = float(np.mean(list(outcome.before.values()))), outcome.compared[0]
        split = outcome.split_at
        when = "before the first split" if split and first <= split else "at the first measurement"
        text += f"; {when} it was {then:.1%} (round {first})"
    return f"{text}. The mean accuracy of the worst tenth of the clients is {worst:.1%}."


def _measured(outcome: Outcome) -> Mapping[str, Any]:
    """Return the last measurement of the metrics of the task, by name."""
    measured = (r["metrics"] for r in reversed(outcome.run.rounds) if r.get("metrics"))
    return next(measured, {})


def _metrics(outcome: Outcome) -> str:
    """Return a sentence on the metrics of the task, and what their means are means of."""
    found = _measured(outcome)
    if not found:
        return ""
    parts = [
        f"{name} {each['mean']:.3f} ± {each['std']:.3f} "
        f"({_counted(len(each['clients']), 'client', 'clients')})"
        for name, each in found.items()
    ]
    return (
        f"Metrics: {'; '.join(parts)}. Each is the mean over the clients of the metric on the "
        "client's own test data, ± the standard deviation; a client on whose data the metric is "
        "undefined has no value. For a metric that is no mean over samples, such as F1, AUC or "
        "R2, this is not its value on the test data of all clients together."
    )


def _communities(outcome: Outcome) -> str:
    records = [r["communities"] for r in outcome.run.rounds if r["communities"]]
    ranks = {rank for rank in outcome.final.values() if rank != REMOVED}
    if not records or not ranks:
        return "There are no communities in this run."
    text = f"{_counted(len(ranks), 'community', 'communities')} at the end"
    out = len(outcome.removed)
    text += f", {_counted(out, 'client', 'clients')} removed" if out else ""
    last, right = records[-1], first_right_round(outcome.run.rounds)
    if outcome.planted is None or last["ari"] is None:
        return f"{text}; there are no planted groups to compare with."
    if right is not None:
        return f"{text}; from round {right} on they are exactly the planted groups."
    return f"{text}; agreement with the {outcome.planted} planted groups: ARI {last['ari']:.2f}."


def _attacked(outcome: Outcome) -> str:
    found = [r["attack"] for r in outcome.run.rounds if r["attack"]]
    if not found:
        return ""
    last = found[-1]
    loyal = next((f["loyal_accuracy"] for f in reversed(found) if f["loyal_accuracy"]), None)
    text = f"Detection of malicious clients: recall {_share(last['recall'])}, "
    text += f"precision {_share(last['precision'])}."
    text += f" The accuracy of the loyal clients is {loyal:.1%}." if loyal is not None else ""
    return f"{text} The server assumes as loyal: {benign_rule(outcome.run.config)}."


def _share(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.0%}"


def _lost(outcome: Outcome) -> str:
    failed = sum(len(record["failed"]) for record in outcome.run.rounds)
    rejected = sum(len(record["rejected"]) for record in outcome.run.rounds)
    lost = outcome.run.rounds[-1].get("lost") if outcome.run.rounds else None
    gone = f"Not connected at the end: clients {', '.join(map(str, lost))}." if lost else ""
    if not failed + rejected:
        return gone
    replies = _counted(failed, "reply", "replies")
    text = f"{replies} failed and {rejected} were rejected; see the table of clients."
    return f"{text} {gone}".rstrip()


def _dominated(outcome: Outcome) -> str:
    """Return a sentence on clients that had more than half of the weight of their community."""
    shares: dict[str, float] = {}
    for record in outcome.run.rounds:
        for client, share in (record.get("dominance") or {}).items():
            shares[client] = max(share, shares.get(client, 0.0))
    if not shares:
        return ""
    first = max(shares, key=shares.__getitem__)
    others = _counted(len(shares) - 1, "other client", "other clients")
    text = f"Client {first} had up to {shares[first]:.0%} of the weight of its community"
    return f"{text}, and {others} more than half." if len(shares) > 1 else f"{text}."


def _odd(outcome: Outcome) -> str:
    """Return a sentence on clients with odd updates in at least half of their trained rounds."""
    trained, odd = replies(outcome)[0], odd_updates(outcome.run.rounds)
    clients = sorted(client for client in odd if 2 * len(odd[client]) >= trained[client])
    if not clients:
        return ""
    sizes = [size for client in clients for size in odd[client]]
    return (
        f"Clients with odd updates in at least half of their rounds: {ranges(clients)}; these "
        f"updates have {min(sizes):.2g} to {max(sizes):.2g} times the usual norm."
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def where_time_went(outcome: Outcome) -> str:
    """Return one sentence with the total time and the share of each part."""
    sums = {name: sum(seconds) for name, seconds in time_parts(outcome).items()}
    total = sum(sums.values())
    if not total:
        return "No round has ended yet."
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in sums.items())
    return f"{duration(total)} in all: {parts}."
