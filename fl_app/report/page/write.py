"""Writes the page: records, figures, template, as one file that needs no network."""

import gzip
from base64 import b64encode
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from fl_app.records.atomic import replacing
from fl_app.records.environment import git_commit, versions
from fl_app.records.names import REPORT
from fl_app.records.output_folder import require
from fl_app.records.plain import dumps
from fl_app.records.rounding import share
from fl_app.report.network import NEIGHBOURS
from fl_app.report.page import answers, curves, gains, metrics, seconds
from fl_app.report.page.clients import client_table, community_rows
from fl_app.report.page.flow import alluvial
from fl_app.report.page.frames import frames
from fl_app.report.page.look import DARK
from fl_app.report.page.run_records import FULL_SCALE, RunRecords, read_records

TEMPLATE = "report.html"
FIGURES = {
    "accuracy": curves.accuracy,
    "metrics": metrics.metrics,
    "attack": curves.attack,
    "alluvial": alluvial,
    "quality": curves.quality,
    "notes": curves.notes,
    "gains": gains.gains,
    "gain": gains.gain,
    "seconds": seconds.time,
}
"""Each takes the records of a run and returns its figure, or None if the run has no data for it."""


def write_page(folder: Path) -> Path:
    """Write `folder/report.html` from the files that the run in the folder has written so far.

    Raises ValueError for a folder without a run, and for records that cannot be read.
    """
    records = read_records(folder)
    require(folder)
    text = render(records)
    with replacing(folder / REPORT) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return folder / REPORT


def render(records: RunRecords) -> str:
    """Return the page of the records of a run as HTML."""
    communities = community_rows(records)
    figures = {name: made for name, make in FIGURES.items() if (made := make(records))}
    loader = PackageLoader("fl_app.report.page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["percent"] = _percent
    page: str = environment.get_template(TEMPLATE).render(
        records=records,
        method=answers.method(records),
        facts=answers.what_was_run(records),
        progress=answers.progress(records),
        answers=answers.did_it_work(records),
        time=answers.where_time_went(records),
        parts_of_time=seconds.how(records),
        communities=communities,
        some_measured=any(row["measured"] < row["clients"] for row in communities),
        figures=figures,
        configuration=_yaml(records.run.config),
        full_scale=FULL_SCALE,
        neighbours=NEIGHBOURS,
        **_made_with(records),
        data=_script({"figures": figures, "frames": frames(records), "dark": DARK,
                      "clients": client_table(records)}),
        plotly=_plotly(),
    )  # fmt: skip
    return page


def _percent(value: float | None) -> str:
    return "" if value is None else share(value, 1)


def _yaml(config: dict[str, Any]) -> str:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True) if config else ""


def _made_with(records: RunRecords) -> dict[str, Any]:
    """Return versions and commit of the run, or of this process if the run has no summary."""
    made = records.summary or {"versions": versions(), "git": git_commit()}
    commit, _, dirty = made["git"].partition("-")
    short = commit[:12] + (f" ({dirty})" if dirty else "")
    return {"versions": made["versions"], "git": made["git"], "commit": short}


def _script(value: Any) -> str:
    """Return JSON that is safe inside a script element."""
    return dumps(value).replace("<", "\\u003c")


@lru_cache(maxsize=1)
def _plotly() -> str:
    """Return plotly.js from the Python package, as gzip in base64; the page unpacks it."""
    found = find_spec("plotly")
    assert found is not None
    assert found.origin is not None
    script = Path(found.origin).parent / "package_data" / "plotly.min.js"
    return b64encode(gzip.compress(script.read_bytes(), compresslevel=9, mtime=0)).decode()
