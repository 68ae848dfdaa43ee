"""The curves for the choice of `strategy.cluster_round=auto`: when FedAvg is stable.

    .venv/bin/python benchmarks/auto_cluster_round.py [--mnist <folder>]

Reads the loss curves of the MNIST runs of `benchmarks/flic_mnist.py --out <folder>`, runs FLIC with
`auto` on the embedded digits, and writes docs/results/auto_cluster_round.md with its figure.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from summaries import summary_of
from table import arguments

from fl_app.evaluation.stability import loss_fall
from fl_app.records.history import read_rounds
from fl_app.report.run import first_right_round

REPO = Path(__file__).resolve().parent.parent
TABLE = REPO / "docs" / "results" / "auto_cluster_round.md"
FIGURE = REPO / "docs" / "figures" / "auto_cluster_round.png"
WINDOWS, TOLERANCES = (5, 10, 20), (0.01, 0.02, 0.05)
CHOSEN = (10, 0.02)
Curves = dict[str, list[dict[str, Any]]]


def falls(losses: list[float], window: int) -> list[float | None]:
    """Return the criterion after each round."""
    return [loss_fall(losses[:n], window=window) for n in range(1, len(losses) + 1)]


def due(losses: list[float], window: int, tolerance: float) -> int | None:
    """Return the first round whose criterion is below the tolerance."""
    curve = enumerate(falls(losses, window), start=1)
    return next((n for n, fall in curve if fall is not None and fall < tolerance), None)


def federated_losses(records: list[dict[str, Any]]) -> list[float]:
    """Return the loss curve up to the clustering round."""
    last = next((r["round"] for r in records if r["events"]), len(records))
    return [record["train_loss"] for record in records[:last]]


def digits(out: Path, seed: int) -> Path:
    """Run FLIC with `auto` on the embedded digits; return its folder."""
    folder = out / f"digits-seed{seed}"
    command = [sys.executable, "-m", "fl_app.main", "strategy.cluster_round=auto", "rounds=60"]
    command.append("fallback=false")
    command += [
        f"seed={seed}",
        "records.figures=false",
        "records.report=false",
        f"hydra.run.dir={folder}",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


def draw(curves: Curves) -> None:
    """Draw loss and criterion of every run, with the chosen tolerance."""
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, layout="constrained")
    window, tolerance = CHOSEN
    for name, records in curves.items():
        losses = federated_losses(records)
        rounds = range(1, len(losses) + 1)
        (line,) = top.plot(rounds, losses, label=name, linewidth=1.2)
        found = [f if f is not None else float("nan") for f in falls(losses, window)]
        bottom.plot(rounds, found, color=line.get_color(), linewidth=1.2)
        at = due(losses, window, tolerance)
        if at is not None:
            bottom.plot([at], [found[at - 1]], "o", color=line.get_color(), markersize=6)
    bottom.axhline(tolerance, color="black", linestyle=":", label=f"tolerance {tolerance:g}")
    top.set(ylabel="training loss", yscale="log")
    bottom.set(xlabel="round", ylabel=f"fall over {window} rounds\nin shares of the first loss")
    bottom.set_ylim(-0.01, 0.15)
    top.legend(fontsize=8)
    bottom.legend(fontsize=8)
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=130)


def table(curves: Curves, ran: list[Path]) -> list[str]:
    """Return the rounds at which each setting would cluster, and what `auto` gave."""
    settings = [(w, t) for w in WINDOWS for t in TOLERANCES]
    lines = [
        "| run | right from | " + " | ".join(f"w {w}, t {t:g}" for w, t in settings) + " |",
        "|---" * (2 + len(settings)) + "|",
    ]
    for name, records in curves.items():
        losses = federated_losses(records)
        found = [due(losses, window, tolerance) or "-" for window, tolerance in settings]
        cells = [name, first_right_round(records), *found]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", "Runs with `auto` at the defaults:", ""]
    lines += ["| run | clustered after | communities | ARI | before | after |", "|---" * 6 + "|"]
    for folder in ran:
        summary = summary_of(folder)
        at = next((r["round"] for r in read_rounds(folder) if r["events"]), None)
        found, accuracy = summary["communities"], summary["accuracy"]
        before = accuracy["before_clustering"]
        lines.append(
            f"| {folder.name} | {at} | {found['count']} | {found['ari']:.3f} | {before:.3f} "
            f"| {accuracy['mean']:.3f} |"
        )
    return lines


def main() -> None:
    """Run, read, draw and write."""
    parser = arguments(__doc__)
    parser.add_argument("--mnist", type=Path, default=REPO / "outputs" / "flic_mnist")
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / "auto_cluster_round")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    found = sorted(options.mnist.glob("*-seed*/summary.json"))
    mnist = [path.parent for path in found if "_paper" not in path.parent.name]
    if not mnist:
        rule = "must be the output folder of benchmarks/flic_mnist.py"
        sys.exit(f"--mnist {rule}, got {options.mnist} without a run; the page stays as it is")
    ran = [digits(options.out, seed) for seed in options.seeds]
    curves = {folder.name: read_rounds(folder) for folder in [*mnist, *ran]}
    draw(curves)
    window, tolerance = CHOSEN
    lines = [
        "# When `strategy.cluster_round=auto` clusters",
        "",
        "Written by `benchmarks/auto_cluster_round.py`. FLIC clusters after the first round in",
        "which the mean training loss over w rounds is less than t times the first round's loss",
        "below the mean over the w rounds before. The cells are this round on each curve; `-`: it",
        f"is not within the curve. Chosen: w = {window}, t = {tolerance:g}. With C = 0.1, ten",
        "rounds sample about as many clients as there are, which averages out the effect of",
        "sampling.",
        "",
        *table(curves, ran),
        "",
        "![loss and criterion over rounds](../figures/auto_cluster_round.png)",
    ]
    TABLE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
