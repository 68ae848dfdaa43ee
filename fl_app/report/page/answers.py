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
    """Return the settings that tell one run from another, by name."""
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
    """Return the name of the method, as the summary or the configuration has it."""
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
    """Return one sentence on how far the run got."""
    done, planned = len(outcome.run.rounds), outcome.run.config.get("rounds")
    told = {
        "completed": f"Completed: {done} rounds",
        "interrupted": f"Interrupted after {done} of {planned} rounds",
        "failed": f"Failed after {done} of {planned} rounds",
        "unfinished": f"Still going, or ended without a word: {done} of {planned} rounds",
    }[outcome.status]
    total = sum(float(record["time"]["total_s"]) for record in outcome.run.rounds)
    return f"{told}, in {duration(total)}."


def duration(seconds: float) -> str:
    """Return seconds as one reads them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def did_it_work(outcome: Outcome) -> list[str]:
    """Return what came out, a sentence each: accuracy, communities, attack, losses."""
    found = [_accuracy(outcome), _communities(outcome), _attacked(outcome), _lost(outcome)]
    found += [_dominated(outcome), _stood_out(outcome)]
    return [sentence for sentence in found if sentence]


def _accuracy(outcome: Outcome) -> str:
    if not outcome.after:
        return "Accuracy has not been measured yet."
    now = float(np.mean(list(outcome.after.values())))
    worst = worst_decile(outcome.after)
    last = max(outcome.scores)
    told = f"Mean accuracy over the clients is {now:.1%} (round {last})"
    if outcome.compared and outcome.before:
        then, first = float(np.mean(list(outcome.before.values()))), outcome.compared[0]
        split = outcome.split_at
        when = f"before the clients were parted, round {first}" if split and first <= split else (
            f"when first measured, round {first}")  # fmt: skip
        told += f", after {then:.1%} {when}"
    return f"{told}; the worst tenth of the clients is at {worst:.1%}."


def _communities(outcome: Outcome) -> str:
    records = [r["communities"] for r in outcome.run.rounds if r["communities"]]
    ranks = {rank for rank in outcome.final.values() if rank != REMOVED}
    if not records or not ranks:
        return "The method keeps all clients together: there are no communities."
    told = f"{_counted(len(ranks), 'community', 'communities')} at the end"
    out = len(outcome.removed)
    told += f", {_counted(out, 'client', 'clients')} removed" if out else ""
    last, right = records[-1], first_right_round(outcome.run.rounds)
    if outcome.planted is None or last["ari"] is None:
        return f"{told}; no groups were planted to compare with."
    if right is not None:
        return f"{told}: exactly the planted groups, for good from round {right}."
    return f"{told}; agreement with the {outcome.planted} planted groups: ARI {last['ari']:.2f}."


def _attacked(outcome: Outcome) -> str:
    found = [r["attack"] for r in outcome.run.rounds if r["attack"]]
    if not found:
        return ""
    last = found[-1]
    loyal = next((f["loyal_accuracy"] for f in reversed(found) if f["loyal_accuracy"]), None)
    told = f"Of the malicious clients {_share(last['recall'])} were told apart"
    told += f", of those told apart {_share(last['precision'])} are malicious"
    told += f"; the loyal are at {loyal:.1%}." if loyal is not None else "."
    return f"{told} Taken for loyal: {benign_rule(outcome.run.config)}."


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.0%}"


def _lost(outcome: Outcome) -> str:
    failed = sum(len(record["failed"]) for record in outcome.run.rounds)
    rejected = sum(len(record["rejected"]) for record in outcome.run.rounds)
    lost = outcome.run.rounds[-1].get("lost") if outcome.run.rounds else None
    gone = f"Not connected at the end: clients {', '.join(map(str, lost))}." if lost else ""
    if not failed + rejected:
        return gone
    replies = _counted(failed, "reply", "replies")
    told = f"{replies} failed and {rejected} were rejected; the table of clients says whose."
    return f"{told} {gone}".rstrip()


def _dominated(outcome: Outcome) -> str:
    """Tell of the client that held most of the weight of its community, and of the others."""
    shares: dict[str, float] = {}
    for record in outcome.run.rounds:
        for client, share in (record.get("dominance") or {}).items():
            shares[client] = max(share, shares.get(client, 0.0))
    if not shares:
        return ""
    first = max(shares, key=shares.__getitem__)
    others = _counted(len(shares) - 1, "other client", "other clients")
    told = f"Client {first} held up to {shares[first]:.0%} of the weight of its community"
    return f"{told}, and {others} more than half." if len(shares) > 1 else f"{told}."


def _stood_out(outcome: Outcome) -> str:
    """Tell of the clients whose updates were odd in at least half of the rounds they trained in."""
    trained, odd = replies(outcome)[0], odd_updates(outcome.run.rounds)
    clients = sorted(client for client in odd if 2 * len(odd[client]) >= trained[client])
    if not clients:
        return ""
    sizes = [size for client in clients for size in odd[client]]
    return (
        f"Updates of clients {ranges(clients)} were unusually long or short in at least half of "
        f"their rounds: {min(sizes):.2g} to {max(sizes):.2g} times the usual norm."
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def where_time_went(outcome: Outcome) -> str:
    """Return one sentence with the share of each part."""
    sums = {name: sum(seconds) for name, seconds in time_parts(outcome).items()}
    total = sum(sums.values())
    if not total:
        return "No round has ended yet."
    parts = ", ".join(f"{name} {part / total:.0%}" for name, part in sums.items())
    return f"{duration(total)} in all: {parts}."
