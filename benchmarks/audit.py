"""An attack on each setting of privacy, beside its ledger; writes docs/results/audit.md.

.venv/bin/python benchmarks/audit.py --out outputs/audit.jsonl

Continues where it was stopped: each row is stored in the file as soon as it is known. With
`--keep`, rows that the file lacks are taken from the page.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf, isfinite
from pathlib import Path
from typing import Any

import audit_masks
import torch
from audit_cases import FEW, MANY, Row, rows
from audit_fields import table as table_of_fields
from audit_trials import DELTA, SAMPLES
from table import arguments, header, machine, row

from fl_app.client import private_training
from fl_app.client.accountant import Release
from fl_app.evaluation.privacy_audit import Audit, most_provable

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "audit.md"
MASKED = 200
"""Trials of secure sums, whose keys take longer than any training here."""
DRAWN, RATE = 20_000, 0.1
PARTS = {
    "none": ("No privacy", "These settings promise nothing: the attack works."),
    "sample": (
        "One sample of a client: `privacy=sample_dp`",
        "Inside: the canary is in the client's data. Outside: a black image, which has no "
        "gradient, is in its place. The ledger is about this pair.",
    ),
    "client": (
        "All data of a client: `privacy=local_dp`",
        "Inside and outside: two data sets whose updates are opposite, each as long as the clip "
        "bound or longer. The ledger is about any two data sets.",
    ),
    "sketch": (
        "One sketch of all data of a client: `strategy=secure_flic`",
        "Inside and outside: two data sets whose updates are opposite, and so are the sketches "
        "before the noise. Beside its sketch the client is in sums alone. The default budget is a "
        "weak promise: the attack is nearly always right, as it may be.",
    ),
    "losses": (
        "Losses on training data",
        "Epsilon 4 for a run of one round, of which nine tenths are for losses, and the ledger of "
        "the losses alone. Inside: the loss of the canary is above the bound. Outside: a sample "
        "is in its place whose loss is 0; under `local_dp` all samples are such. The choice is "
        "between two opposite models, a newcomer tells the losses of both, and so does a "
        "client in the trial of a split, on held-out samples with the canary among them.",
    ),
    "beside": (
        "What the ledger is not about",
        "The settings do not promise this, and the bound may exceed the ledger. `sample_dp` hides "
        "whether a sample is there; which of two samples is there shows better, as if the noise "
        "were half as strong. In brackets: the ledger with half the noise. Nothing is promised of "
        "test data either: their loss, accuracy and metrics leave a client exactly.",
    ),
    "fault": (
        "Faults that were planted",
        "The audit must exceed the ledger here, or it could not fail anywhere. The configuration "
        "refuses the one that is marked.",
    ),
}  # fmt: skip
HEAD = """# An attack on every setting of privacy

Written by `benchmarks/audit.py --out <file>`, on {machine}.
Client 0 of a federation on the digits, {samples} samples, one dense layer, trains with and without
a canary, many times with other seeds. The attacker is the strongest that a server can be: it chose
the model that the client received, knows both data sets, sees the reply, and misses only the noise
and the batches that the client drew. It scores a reply by its projection on the difference that the
canary makes to replies without noise.

The canary is an image with one bright pixel that no other sample has, under a class that the model
is certain is wrong: its gradient is longer than the clip bound and at right angles to all others.

- *ledger*: the epsilon at delta {delta:g} that the server books for these rounds.
- *bound*: a lower bound of epsilon with confidence 95 %, for any mechanism, from Clopper-Pearson
  limits of false alarms and misses. The threshold is chosen on half of the trials and judged on the
  other half. However well an attack works, {many:,} trials of each kind prove at most {most:.1f},
  {few:,} at most {least:.1f}.
- *Gaussian bound*: the same for replies whose only randomness is Gaussian noise; it proves more
  with as many trials.
- *guesses*: the share of right guesses if both cases are as likely; 0.5 is chance.
"""


def main() -> None:
    """Run the trials that are missing and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file for the finished rows")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the trials; 0.1: a try")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--keep", action="store_true", help="keep the rows of the page")
    given = parser.parse_args()
    found = (_written(given.page.read_text()) if given.keep else {}) | _stored(given.out)
    for each in rows():
        trials = int(each.trials * given.scale)
        if (each.case.name, each.part) not in found:
            with each.fault():
                audit = each.case.run(trials)
            _store(given.out, found, each, audit)
    if ("one", "masked") not in found:
        for name, audit in zip(("one", "sum"), audit_masks.audits(MASKED), strict=True):
            _append(given.out, found, (name, "masked"), {"ledger": None, **asdict(audit)})
    given.page.write_text("\n".join(page(found)) + "\n")
    print(given.page.read_text())


Found = dict[tuple[str, str], dict[str, Any]]


def _stored(path: Path) -> Found:
    lines = path.read_text().splitlines() if path.exists() else []
    return {tuple(line.pop("key")): line for line in map(json.loads, lines)}


def _written(text: str) -> Found:
    """Return the rows of a page, with the digits that it has."""
    found: Found = {}
    parts = {title: part for part, (title, _) in PARTS.items()}
    for section in text.split("\n## ")[1:]:
        part = parts.get(section.split("\n")[0], "masked")
        for line in section.split("\n"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            names = {"the client's masked vector": "one", "the sum of three": "sum"}
            if part != "masked" and len(cells) == 7 and cells[0] not in ("setting", "---"):
                found[cells[0], part] = _values(cells[1], cells[2:])
            elif cells and cells[0] in names:
                bound, accuracy, auc, trials = cells[1:]
                values = _values("no limit", [bound, "", accuracy, auc, trials])
                found[names[cells[0]], part] = values
    return found


def _values(ledger: str, cells: Sequence[str]) -> dict[str, Any]:
    """Return the values in the cells of a row."""
    numbers = [float(cell) for cell in re.findall(r"[\d.]+", ledger)] or [inf]
    epsilon, gaussian, accuracy, auc, trials = cells
    return {
        "ledger": numbers[0], "doubled": numbers[1] if len(numbers) > 1 else None,
        "epsilon": float(epsilon), "gaussian": float(gaussian or 0), "accuracy": float(accuracy),
        "auc": float(auc), "trials": int(trials.split(" + ")[0].replace(",", "")),
    }  # fmt: skip


def _store(path: Path, found: Found, each: Row, audit: Audit) -> None:
    doubled = each.case.ledger(distance=2.0) if each.part == "beside" and each.gaussian else None
    values = {"ledger": each.case.ledger(), "doubled": doubled, **asdict(audit)}
    _append(path, found, (each.case.name, each.part), values)


def _append(path: Path, found: Found, key: tuple[str, str], values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"key": key, **values}) + "\n")
    found[key] = values
    print(key, values, flush=True)


def page(found: Found) -> list[str]:
    """Return the lines of the page."""
    most, least = (most_provable(trials) for trials in (MANY, FEW))
    head = HEAD.format(
        machine=machine(), samples=SAMPLES, delta=DELTA, many=MANY, few=FEW, most=most, least=least
    )
    lines = [head, *_verdict(found)]
    for part, (title, text) in PARTS.items():
        lines += ["", f"## {title}", "", text, "", *_table(found, part)]
        lines += _masked(found) if part == "none" else []
        lines += _sampling() if part == "sample" else []
    return [*lines, "", "## What leaves a client", "", *table_of_fields()]


def _verdict(found: Found) -> list[str]:
    promised = "sample", "client", "sketch", "losses"
    held = [(e, found[e.case.name, e.part]) for e in rows() if e.part in promised]
    above = [each.case.name for each, values in held if _best(each, values) > values["ledger"]]
    planted = [(e, found[e.case.name, e.part]) for e in rows() if e.part == "fault"]
    caught = sum(_best(each, values) > values["ledger"] for each, values in planted)
    told = f"bounds above the ledger: {', '.join(above)}" if above else "no bound above its ledger"
    return [
        f"Result: of {len(held)} rows with a promise, {told}; {caught} of {len(planted)} planted "
        "faults found."
    ]


def _best(each: Row, values: Mapping[str, float]) -> float:
    return max(values["epsilon"], values["gaussian"] if each.gaussian else 0.0)


def _table(found: Found, part: str) -> list[str]:
    lines = header("setting", "ledger", "bound", "Gaussian bound", "guesses", "AUC", "trials")
    for each in rows():
        if each.part == part:
            values = found[each.case.name, part]
            lines.append(row(each.case.name, *_cells(each, values)))
    return lines


def _cells(each: Row, values: Mapping[str, Any]) -> Sequence[str]:
    doubled = values["doubled"]
    return (
        _number(values["ledger"]) + (f" ({_number(doubled)})" if doubled is not None else ""),
        _number(values["epsilon"]),
        _number(values["gaussian"]) if each.gaussian else "",
        f"{values['accuracy']:.3f}",
        f"{values['auc']:.3f}",
        f"{values['trials']:,} + {values['trials']:,}",
    )


def _number(value: float) -> str:
    return f"{value:.2f}" if isfinite(value) else "no limit"


def _masked(found: Found) -> list[str]:
    one, total = found["one", "masked"], found["sum", "masked"]
    lines = [
        "", "## Secure sums: `masking=secagg`", "",
        "Three clients, no noise. The canary is in the data of the first one. The attacker knows "
        "the updates of the other two.", "",
        *header("what the server sees", "bound", "guesses", "AUC", "trials"),
    ]  # fmt: skip
    for name, values in (("the client's masked vector", one), ("the sum of three", total)):
        cells = (_number(values["epsilon"]), f"{values['accuracy']:.3f}", f"{values['auc']:.3f}")
        lines.append(row(name, *cells, f"{values['trials']} + {values['trials']}"))
    return lines


def _sampling() -> list[str]:
    """Return what the batches of a client are like, beside what the ledger assumes."""
    release = Release(noise_multiplier=1.0, rate=RATE, steps=DRAWN)
    draw = torch.Generator().manual_seed(0)
    batches = [*private_training._batches(SAMPLES, release, draw)]
    sizes = torch.tensor([len(each) for each in batches]).double()
    taken = torch.zeros(DRAWN, SAMPLES, dtype=torch.float64)
    for step, batch in enumerate(batches):
        taken[step, batch] = 1
    pairs = torch.corrcoef(taken.T).fill_diagonal_(0).abs().max()
    after = torch.corrcoef(torch.stack([taken[:-1].flatten(), taken[1:].flatten()]))[0, 1]
    rows_of = [
        ("steps", f"{DRAWN:,}", f"{len(batches):,}"),
        ("mean size of a batch", f"{RATE * SAMPLES:.3f}", f"{sizes.mean():.3f}"),
        ("variance of the size", f"{RATE * (1 - RATE) * SAMPLES:.3f}", f"{sizes.var():.3f}"),
        ("largest correlation of two samples", "0", f"{pairs:.3f}"),
        ("correlation of one sample in two batches in a row", "0", f"{after:.4f}"),
    ]
    text = (
        "The ledger assumes that each step draws each sample by itself (Poisson sampling). Batches "
        "of a fixed size from a shuffled list would have variance 0. What a client draws, at rate "
        f"{RATE:g}:"
    )
    table = [*header("", "assumed", "drawn"), *(row(*each) for each in rows_of)]
    return ["", "### Batches", "", text, "", *table]


if __name__ == "__main__":
    main()
