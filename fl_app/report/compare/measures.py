"""The measures of a run, from its summary and its rounds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fl_app.records.plain import spent_epsilon
from fl_app.report.run import first_right_round

Record = Mapping[str, Any]
Values = dict[str, float | None]


@dataclass(frozen=True)
class RunMeasure:
    """A number of a run: its label, whether more or less is better, its decimals.

    Measures with `asked` are shown only in tables that name them. Those with `scales` have no
    usual size and get more decimals if they are small.
    """

    label: str
    better: Literal["more", "less"] | None = "more"
    digits: int = 3
    asked: bool = False
    scales: bool = False


METRIC = "metric."
"""Prefix of the names of a task's metrics, which each run names itself."""


class RunMeasures(dict[str, RunMeasure]):
    """Measures by name; a task's metric is one too, and whether more is better is not known."""

    def __missing__(self, name: str) -> RunMeasure:
        if not name.startswith(METRIC):
            raise KeyError(name)
        label = f"{name.removeprefix(METRIC)}, mean over clients"
        return RunMeasure(label, None, scales=True)


MEASURES = RunMeasures({
    "accuracy": RunMeasure("accuracy"),
    "average": RunMeasure("accuracy averaged over rounds", asked=True),
    "std": RunMeasure("deviation over clients", "less", asked=True),
    "global": RunMeasure("accuracy of the global model"),
    "central": RunMeasure("global model, balanced test"),
    "central_communities": RunMeasure("mean of community models, balanced test"),
    "distance": RunMeasure("mean squared distance", "less", scales=True),
    "v_measure": RunMeasure("v-measure"),
    "homogeneity": RunMeasure("homogeneity"),
    "completeness": RunMeasure("completeness"),
    "ari": RunMeasure("ARI"),
    "silhouette": RunMeasure("silhouette", None),  # each method has its own similarity
    "wasserstein_silhouette": RunMeasure("Wasserstein adjusted silhouette", asked=True),
    "count": RunMeasure("communities", None, 1),
    "right": RunMeasure("right from round", "less", 0),
    "sent": RunMeasure("MB per client and round", "less", 2, scales=True),
    "loyal_accuracy": RunMeasure("accuracy of loyal clients"),
    "recall": RunMeasure("malicious clients detected"),
    "loyal_lost": RunMeasure("loyal clients suspected", "less", 1),
    "pure_share": RunMeasure("share in pure communities"),
    "loyal_communities": RunMeasure("loyal communities", None, 1),
    "success": RunMeasure("success of the attack", "less"),
    "cleared": RunMeasure("first round with all malicious detected", "less", 0),
    "joined_rounds": RunMeasure("rounds until a newcomer is assigned correctly", "less", 1),
    "joined_share": RunMeasure("newcomers assigned correctly", digits=2),
    "drifted_rounds": RunMeasure("rounds until a drifted client is assigned correctly", "less", 1),
    "drifted_share": RunMeasure("drifted clients assigned correctly", digits=2),
    "epsilon": RunMeasure("epsilon spent", None, 2, scales=True),
    "noise": RunMeasure("noise multiplier", None, 2, scales=True),
})  # fmt: skip


def known(names: Iterable[str]) -> list[str]:
    """Return the names of MEASURES, and after them those of metrics among `names`."""
    return [*MEASURES, *sorted({name for name in names if name.startswith(METRIC)})]


def measured(summary: Record, rounds: Sequence[Record]) -> Values:
    """Return every measure by name, None where the run has no value."""
    found = summary["communities"]
    central = next((r["central"] for r in reversed(rounds) if r["central"]), None)
    apart = central["communities"] if central else []
    bytes_sent = [r["bytes"]["down"] + r["bytes"]["up"] for r in rounds]
    trained = sum(len(r["sampled"]) for r in rounds)
    scores = [r["accuracy"]["mean"] for r in rounds if r["accuracy"]]
    own: Values = {
        "accuracy": summary["accuracy"]["mean"],
        "average": float(np.mean(scores)) if scores else None,
        "std": summary["accuracy"].get("std"),
        "global": next((r["global_accuracy"] for r in reversed(rounds) if r["accuracy"]), None),
        "central": central["global"] if central else None,
        "central_communities": float(np.mean(apart)) if apart else None,
        "ari": found["ari"],
        "silhouette": found["silhouette"],
        "wasserstein_silhouette": _last(rounds, "wasserstein_silhouette"),
        "count": found["count"],
        "right": first_right_round(rounds),
        "sent": sum(bytes_sent) / trained / 1e6 if trained else None,
    }
    metrics = summary.get("metrics") or {}
    own |= {f"{METRIC}{name}": each["mean"] for name, each in metrics.items()}
    return own | _under_attack(rounds) | _points(rounds) | _settled(rounds) | _privacy(rounds)


def _last(rounds: Sequence[Record], name: str) -> float | None:
    """Return a measure of the last communities; runs of earlier versions may lack it."""
    found: Record = next((r["communities"] for r in reversed(rounds) if r["communities"]), {})
    return found.get(name)


def _under_attack(rounds: Sequence[Record]) -> Values:
    """Return the last measurement under attack, and the first round with a recall of 1."""
    found = [r["attack"] for r in rounds if r["attack"] and r["accuracy"]]
    names = ("loyal_accuracy", "recall", "loyal_lost", "pure_share", "success")
    last = {name: found[-1].get(name) if found else None for name in names}
    sizes = found[-1].get("loyal_sizes") if found else None
    last["loyal_communities"] = len(sizes) if sizes is not None else None
    detected = (r["round"] for r in rounds if r["attack"] and r["attack"]["recall"] == 1.0)
    return last | {"cleared": next(detected, None)}


def _points(rounds: Sequence[Record]) -> Values:
    """Return the last measurement of clusters of points."""
    last = (r["notes"] for r in reversed(rounds) if "distance" in (r["notes"] or {}))
    found: Mapping[str, float] = next(last, {})
    names = ("distance", "v_measure", "homogeneity", "completeness")
    return {name: found.get(name) for name in names}


def _settled(rounds: Sequence[Record]) -> Values:
    """Return the rounds until newcomers and drifted clients are assigned to the right community.

    Also the share of them that ever is.
    """
    found: Values = {}
    for kind in ("joined", "drifted"):
        events = [event for r in rounds for event in r["events"] if event["kind"] == kind]
        changed = sum(len(event["clients"]) for event in events)
        settled = [(r["communities"] or {}).get("settled") for r in rounds]
        known = any(each is not None for each in settled)
        each_one = [one for each in settled for one in (each or {}).values()]
        waited = [one["rounds"] for one in each_one if one["kind"] == kind]
        found[f"{kind}_rounds"] = float(np.mean(waited)) if waited else None
        found[f"{kind}_share"] = len(waited) / changed if changed and known else None
    return found


def _privacy(rounds: Sequence[Record]) -> Values:
    """Return the largest epsilon that a client has spent at the end, and the noise multiplier.

    The epsilon is infinite without noise.
    """
    last = next((r["privacy"] for r in reversed(rounds) if r.get("privacy")), None)
    if last is None:
        return {"epsilon": None, "noise": None}
    return {"epsilon": spent_epsilon(last["epsilon"]["max"]), "noise": last["noise_multiplier"]}
