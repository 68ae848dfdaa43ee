"""The command `fl-app compare`: a comparison as one self-contained page and as tables."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib.figure import Figure

from fl_app.records.names import OVERRIDES
from fl_app.records.output_folder import require
from fl_app.report.compare import figures, tables
from fl_app.report.compare.aggregate import MOST_KEYS, Comparison, aggregate
from fl_app.report.compare.jobs import read_jobs
from fl_app.report.compare.measures import MEASURES, METRIC
from fl_app.report.compare.numbers import curves
from fl_app.report.style import PLAIN_TEXT, SETTINGS

USAGE = "fl-app compare <folders of runs, or of a multirun> [to=<folder>]"
WIDE_INCHES = 6.5
INK, LINE = "#010203", "#040506"
"""Placeholders that the page replaces, so that one figure fits the light and dark scheme."""
ON_PAGE = SETTINGS | PLAIN_TEXT | {
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK,
    "ytick.color": INK, "grid.color": LINE, "svg.fonttype": "none", "svg.hashsalt": "fl-app",
    "legend.frameon": False,
}  # fmt: skip
TOO_MANY = (
    f"There are no figures, because the runs differ in more than {MOST_KEYS} settings. Compare the "
    "folders of fewer runs, such as those of one sweep."
)
CAPTIONS = {
    "courses accuracy": "Accuracy over the rounds",
    "endings": "Accuracy at the end",
    "courses ari": "Agreement with the planted groups (adjusted Rand index) over the rounds",
    "courses count": "Number of communities over the rounds",
    "curves": "Measures against the varied numbers: each point is a mean over all other settings",
}
OF_METRIC = "A metric of the task over the rounds"
OF_SEEDS = {
    "endings": "one marker per seed, a bar at the mean",
    "courses accuracy": "mean and standard deviation over the seeds",
    OF_METRIC: "mean and standard deviation over the seeds",
}
"""What the captions add if there are several seeds."""


def compare(arguments: Sequence[str]) -> None:
    """Write compare.html, compare.csv and compare.tex for the runs in the named folders."""
    targets = [a.removeprefix("to=") for a in arguments if a.startswith("to=")]
    folders = [Path(a) for a in arguments if not a.startswith("to=")]
    wrong = [str(folder) for folder in folders if not folder.is_dir()]
    if wrong or not folders:
        given = ", ".join(wrong) or "none"
        raise ValueError(f"arguments must be existing folders, got {given}; usage: {USAGE}")
    alone = folders[0] if len(folders) == 1 else Path("comparison")
    target = Path(targets[-1]) if targets else alone
    require(target)
    for path in write(folders, target):
        print(path)


def write(
    folders: Sequence[Path],
    target: Path,
    *,
    command: str | None = None,
    refused: Sequence[str] = (),
) -> list[Path]:
    """Write the page and the tables into `target`; return their paths.

    `command` is the command line that writes them, None for `fl-app compare`; `refused` are
    sentences on runs that have no folder. Raises ValueError if no run has completed.
    """
    jobs, unfinished, unknown = read_jobs(folders)
    excluded = [
        *_excluded(unfinished, "it did not complete", "they did not complete"),
        *_excluded(unknown, f"it has no {OVERRIDES}", f"they have no {OVERRIDES}", names=True),
        *refused,
    ]
    if unknown and not jobs:
        raise ValueError(" ".join(excluded))
    if not jobs:
        reasons = " ".join(excluded) or "They have no run."
        raise ValueError(
            f"the folders must have a completed run, got none in {', '.join(map(str, folders))}; "
            f"name folders of runs that have ended. {reasons}"
        )
    comparison = aggregate(jobs)
    target.mkdir(parents=True, exist_ok=True)
    texts = {
        "compare.html": page(comparison, _origin(folders, command), excluded),
        "compare.csv": tables.to_csv(comparison),
        "compare.tex": tables.to_latex(comparison),
    }
    for name, text in texts.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in texts]


def _origin(folders: Sequence[Path], command: str | None) -> Markup:
    """Return what the page says of its runs: the command, or the folders without private paths."""
    if command is not None:
        return Markup("Written by <code>{}</code>").format(command)
    names = (folder.name if folder.is_absolute() else str(folder) for folder in folders)
    return Markup("Comparison of the runs in {}").format(
        Markup(", ").join(Markup("<code>{}</code>").format(name) for name in names)
    )


def _excluded(folders: Sequence[Path], one: str, many: str, *, names: bool = False) -> list[str]:
    """Return a sentence on runs that are not compared, if there are any, and why."""
    if not folders:
        return []
    told = f" ({', '.join(folder.name for folder in folders)})" if names else ""
    runs = "1 run is" if len(folders) == 1 else f"{len(folders)} runs are"
    return [f"{runs} excluded because {one if len(folders) == 1 else many}{told}."]


def page(comparison: Comparison, origin: str, excluded: Sequence[str]) -> str:
    """Return the page as HTML without external references.

    `origin` says where its runs come from, and `excluded` are sentences on those not in it.
    """
    jobs = [job for row in comparison.rows for job in row.jobs]
    environment = Environment(
        loader=PackageLoader("fl_app.report.compare", "."), autoescape=True, trim_blocks=True
    )
    body = tables.body(comparison, lambda text: Markup("<b>{}</b>").format(text))
    return environment.get_template("page.html").render(
        comparison=comparison,
        origin=origin,
        excluded=excluded,
        over_seeds=tables.over_seeds(comparison),
        heads=tables.heads(comparison),
        body=body,
        keys=len(tables.texts(comparison)),
        settings_heads=tables.settings_heads(comparison),
        settings_cells=tables.settings_cells,
        no_figures=TOO_MANY if comparison.many else "These runs have no data for these figures.",
        rule=tables.RULE if tables.has_bold(body, "<b>") else "",
        pictures=_pictures(comparison),
        part=_part(comparison),
        labels=[MEASURES[m].label for m in comparison.measures],
        jobs=jobs,
        commits=sorted({job.commit for job in jobs if job.commit}),
    )


def _pictures(comparison: Comparison) -> list[tuple[Markup, str, bool]]:
    """Return each figure with data as SVG, with its caption and whether it is wide."""
    if comparison.many:
        return []
    jobs = [job for row in comparison.rows for job in row.jobs]
    with mpl.rc_context(ON_PAGE):  # type: ignore[arg-type]
        own = [measure for measure in comparison.measures if measure.startswith(METRIC)]
        drawn = {
            "courses accuracy": figures.courses(comparison, "accuracy"),
            "endings": figures.endings(comparison),
            **{f"courses {metric}": figures.courses(comparison, metric) for metric in own},
            "courses ari": figures.courses(comparison, "ari"),
            "courses count": figures.courses(comparison, "count"),
            "curves": curves(jobs),
        }
        return [
            (_svg(figure), _caption(comparison, name), figure.get_figwidth() > WIDE_INCHES)
            for name, figure in drawn.items()
            if figure
        ]


def _caption(comparison: Comparison, name: str) -> str:
    """Return the sentence under a figure; of one seed nothing is a mean over seeds."""
    text = CAPTIONS.get(name, OF_METRIC)
    added = OF_SEEDS.get(name if name in CAPTIONS else OF_METRIC)
    return f"{text}: {added}." if added and len(comparison.seeds) > 1 else f"{text}."


def _part(comparison: Comparison) -> str:
    """Return which of the settings have a panel, if not all do."""
    every, most = len(comparison.settings()), figures.MOST_PANELS
    if every <= most:
        return ""
    return f"There are panels for the first {most} of {every} settings. The table has all."


def _svg(figure: Figure) -> Markup:
    """Return a figure as an SVG element in the colours of the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # the ids of groups are not unique over the figures, and nothing refers to them
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    for colour in (INK, "#000000"):
        text = text.replace(colour, "currentColor")
    return Markup(text.replace(LINE, "var(--line)"))
