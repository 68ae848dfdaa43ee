"""The privacy budget that clients have spent, by round."""

from matplotlib.figure import Figure

from fl_app.report.run import Run, changes, series
from fl_app.report.style import BLUE, ORANGE, RED, dot, mark_changes, new_figure


def privacy(run: Run) -> Figure | None:
    """Draw the maximum and mean of the clients' spent epsilon, the clip bound and the noise."""
    rounds, most = series(run.rounds, "privacy", "epsilon", "max")
    if not rounds:
        return None
    figure, panels = new_figure(rows=2, height=4.6)
    delta = next(r["privacy"]["delta"] for r in run.rounds if r["privacy"])
    panels[0].plot(rounds, most, color=BLUE, marker=dot(rounds), label="client that spent most")
    mean = series(run.rounds, "privacy", "epsilon", "mean")
    panels[0].plot(
        *mean, color=ORANGE, linestyle="--", marker=dot(mean[0]), label="mean over clients"
    )
    limits = series(run.rounds, "privacy", "limit")[1]
    if limits:
        panels[0].axhline(limits[-1], color=RED, linestyle=":", label=f"budget {limits[-1]:g}")
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel(f"epsilon spent (delta {delta:g})")
    panels[0].legend(loc="upper left")
    clip = series(run.rounds, "privacy", "clip")
    noise = series(run.rounds, "privacy", "noise_multiplier")
    panels[1].plot(*clip, color=BLUE, marker=dot(clip[0]), label="clip bound")
    panels[1].plot(
        *noise, color=ORANGE, linestyle="--", marker=dot(noise[0]), label="noise multiplier"
    )
    panels[1].set_ylim(bottom=0)
    panels[1].set_ylabel("bound and noise")
    panels[1].legend(loc="center right")
    for axes in panels:
        mark_changes(axes, changes(run.rounds))
    return figure
