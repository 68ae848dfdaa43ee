"""A sweep as one table and one figure: what was varied, what came out, over the seeds."""

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import yaml
from hydra.experimental.callback import Callback
from matplotlib.figure import Figure
from omegaconf import DictConfig

from fl_app.records.history import read_rounds
from fl_app.report.run import first_right_round
from fl_app.report.style import MARKERS, SETTINGS, colours

UNVARIED = ("data.root", "hydra.", "records.")
"""Overrides that are no part of what a sweep compares."""
MEASURES = {
    "accuracy": "accuracy",
    "global": "accuracy of the global model",
    "central": "global model, balanced test",
    "ari": "ARI",
    "silhouette": "silhouette",
    "count": "communities",
    "right": "right from round",
    "sent": "MB a client and round",
    "loyal_accuracy": "accuracy of the loyal",
    "recall": "malicious told apart",
    "loyal_lost": "loyal lost",
    "backdoor": "success of the backdoor",
    "cleared": "all malicious out by round",
}


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its overrides, its seed and what was measured, None where nothing."""

    overrides: Mapping[str, str]
    seed: str
    measured: Mapping[str, float | None]


class WriteTable(Callback):
    """Hydra's callback that writes `table.md` and `sweep.png` when a sweep has ended.

    `page` is a further file for the table, such as a page of the documentation.
    """

    def __init__(self, page: str | None = None) -> None:
        self.page = page

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the table of the sweep's runs."""
        folder = Path(config.hydra.sweep.dir)
        jobs = read_jobs(folder)
        if not jobs:
            return
        text = "\n".join(table(jobs, _command())) + "\n"
        places = [folder / "table.md", *([Path(self.page)] if self.page else [])]
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        figure = curves(jobs)
        if figure is not None:
            for place in places:
                figure.savefig(place.with_suffix(".png"), dpi=160)
        print(f"{text}\nwritten to {', '.join(map(str, places))}")


def _command() -> str:
    """Return the command line as anyone would give it, without the folders of this machine."""
    given = [a for a in sys.argv[1:] if not a.startswith(("hydra.sweep.dir=", "hydra.run.dir="))]
    shown = ["data.root=<data>" if a.startswith("data.root=") else a for a in given]
    return shlex.join(["scripts/run", *shown]).replace("'data.root=<data>'", "data.root=<data>")


def read_jobs(folder: Path) -> list[Job]:
    """Return the finished runs of a sweep, in the order of their numbers."""
    runs = sorted(folder.glob("*/summary.json"), key=lambda path: _number(path.parent.name))
    return [_job(path.parent) for path in runs]


def _number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdigit() else (sys.maxsize, name)


def _job(folder: Path) -> Job:
    summary = json.loads((folder / "summary.json").read_text())
    rounds = read_rounds(folder)
    given = [str(each).partition("=") for each in yaml.safe_load(_text(folder / "overrides.yaml"))]
    overrides = {k: v for k, _, v in given if not k.startswith(UNVARIED) and k != "seed"}
    found = summary["communities"]
    bytes_sent = [r["bytes"]["down"] + r["bytes"]["up"] for r in rounds]
    trained = sum(len(r["sampled"]) for r in rounds)
    measured = {
        "accuracy": summary["accuracy"]["mean"],
        "global": next((r["global_accuracy"] for r in reversed(rounds) if r["accuracy"]), None),
        "central": next((r["central"]["global"] for r in reversed(rounds) if r["central"]), None),
        "ari": found["ari"],
        "silhouette": found["silhouette"],
        "count": found["count"],
        "right": first_right_round(rounds),
        "sent": sum(bytes_sent) / trained / 1e6 if trained else None,
    }
    return Job(overrides, str(summary["seed"]), measured | _under_attack(rounds))


def _under_attack(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return what the last measurement says of an attack, and when it had no attacker left."""
    found = [r["attack"] for r in rounds if r["attack"] and r["accuracy"]]
    names = ("loyal_accuracy", "recall", "loyal_lost", "backdoor")
    last = {name: found[-1][name] if found else None for name in names}
    over = (r["round"] for r in rounds if r["attack"] and r["attack"]["recall"] == 1.0)
    return last | {"cleared": next(over, None)}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def varied(jobs: Sequence[Job]) -> list[str]:
    """Return the overrides that are not the same in all runs, in the order they are given."""
    keys = dict.fromkeys(key for job in jobs for key in job.overrides)
    return [key for key in keys if len({job.overrides.get(key) for job in jobs}) > 1]


def table(jobs: Sequence[Job], command: str) -> list[str]:
    """Return a Markdown table: a row per combination, mean and deviation over its seeds."""
    keys = varied(jobs)
    seeds = sorted({job.seed for job in jobs})
    kept = {k: v for k, v in jobs[0].overrides.items() if k not in keys}
    shown = [m for m in MEASURES if any(job.measured[m] is not None for job in jobs)]
    lines = [
        "# A sweep",
        "",
        f"Written by `{command}`.",
        f"Mean and standard deviation over seeds {', '.join(seeds)}; settings common to all: "
        f"{', '.join(f'`{k}={v}`' for k, v in kept.items()) or 'the defaults'}.",
        "",
        _row([*keys, *(MEASURES[m] for m in shown)]),
        _row(["---"] * (len(keys) + len(shown))),
    ]
    for values, group in _grouped(jobs, keys).items():
        cells = [_spread([job.measured[m] for job in group], digits=_digits(m)) for m in shown]
        lines.append(_row([*values, *cells]))
    return lines


def _grouped(jobs: Iterable[Job], keys: Sequence[str]) -> dict[tuple[str, ...], list[Job]]:
    groups = defaultdict(list)
    for job in jobs:
        groups[tuple(job.overrides.get(key, "default") for key in keys)].append(job)
    return groups


def _digits(measure: str) -> int:
    return {"count": 1, "right": 0, "sent": 2, "cleared": 0, "loyal_lost": 1}.get(measure, 3)


def _spread(values: Sequence[float | None], *, digits: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    text = f"{np.mean(known):.{digits}f}"
    if len(known) > 1:
        text += f" ± {np.std(known):.{digits}f}"
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)})"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def curves(jobs: Sequence[Job]) -> Figure | None:
    """Draw accuracy, ARI and silhouette against every number that was varied.

    A line per combination of what is no number; each point is the mean over all the rest.
    """
    keys = varied(jobs)
    numbers = [key for key in keys if all(_is_number(job.overrides.get(key)) for job in jobs)]
    names = [key for key in keys if key not in numbers]
    rows = [m for m in ("accuracy", "ari", "silhouette") if any(j.measured[m] for j in jobs)]
    if not numbers or not rows:
        return None
    with mpl.rc_context(SETTINGS):  # type: ignore[arg-type]
        size = (3.6 * len(numbers) + 1.6, 2.2 * len(rows) + 0.6)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(rows), len(numbers), squeeze=False, sharey="row")
        lines = _grouped(jobs, names)
        style = zip(lines, colours(len(lines)), MARKERS * len(lines), strict=False)
        for label, colour, marker in style:
            for (i, measure), (j, key) in product(enumerate(rows), enumerate(numbers)):
                x, y = _means(lines[label], key, measure)
                panels[i, j].plot(x, y, color=colour, marker=marker, label=" ".join(label))
        for i, measure in enumerate(rows):
            panels[i, 0].set_ylabel(MEASURES[measure])
        for j, key in enumerate(numbers):
            panels[-1, j].set_xlabel(key)
        if names:
            handles, labels = panels[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper")
    return figure


def _is_number(value: str | None) -> bool:
    try:
        float(value or "")
    except ValueError:
        return False
    return True


def _means(jobs: Iterable[Job], key: str, measure: str) -> tuple[list[float], list[float]]:
    at = defaultdict(list)
    for job in jobs:
        value = job.measured[measure]
        if value is not None:
            at[float(job.overrides[key])].append(value)
    return sorted(at), [float(np.mean(at[x])) for x in sorted(at)]
