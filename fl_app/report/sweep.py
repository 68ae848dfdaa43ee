"""Writes the results of a sweep when it has ended: tables, curves and a page."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from fl_app.records.reading import read_overrides
from fl_app.report.compare.aggregate import Comparison, aggregate
from fl_app.report.compare.jobs import Job, compared_settings, read_jobs
from fl_app.report.compare.tables import Columns, markdown


class WriteTable(Callback):
    """Hydra callback that writes tables, curves and the page when a sweep has ended.

    It writes the files of `fl-app compare`, `table.md`, and `table.png` if a number was varied.
    `page` is a further file for the table, such as a page of the documentation. Both begin with
    `title`; only the page has `text`, which tells findings of the runs that it was written for.
    `columns` are further columns, such as the numbers of a paper.
    `measures` names the measures to show; null: the usual ones that have values.
    """

    def __init__(
        self,
        *,
        page: str | None,
        title: str,
        text: str,
        columns: Columns | None,
        measures: Sequence[str] | None,
    ) -> None:
        self.page = page
        self.title, self.text = title, text
        self.columns, self.measures = columns, measures
        self.refused: list[tuple[Sequence[str], Sequence[str]]] = []

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Note the overrides and the errors of a run that was refused, which has no folder."""
        if job_return.status is JobStatus.COMPLETED and job_return.return_value:
            self.refused.append((job_return.overrides or (), job_return.return_value))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the table of the sweep's runs."""
        folder = Path(config.hydra.sweep.dir)
        jobs, others, _ = read_jobs([folder])
        if not jobs:
            return
        compared = aggregate(jobs, measures=self.measures)
        refused = self._refused(compared)
        remarks = self._remarks(compared, others, refused)
        texts = {folder / "table.md": ""} | ({Path(self.page): self.text} if self.page else {})
        for place, text in texts.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._table(compared, remarks, text))
        pictures = [place.with_suffix(".png") for place in texts]
        plain = [each.replace("`", "") for each in refused]
        written = [*texts, *_drawn(folder, jobs, pictures, plain)]
        print(f"{self._table(compared, remarks)}\nwritten to {', '.join(map(str, written))}")

    def _table(self, compared: Comparison, remarks: Sequence[str], text: str = "") -> str:
        """Return title, text and table, with the remarks below."""
        lines = markdown(compared, _command(), title=self.title, text=text, columns=self.columns)
        return "\n".join([*lines, *remarks]) + "\n"

    def _refused(self, compared: Comparison) -> list[str]:
        """Return a sentence on each run whose configuration is wrong."""
        return [
            f"Refused: {_settings(overrides, compared.common)}: {'; '.join(errors)}."
            for overrides, errors in self.refused
        ]

    def _remarks(
        self, compared: Comparison, others: Sequence[Path], refused: Sequence[str]
    ) -> list[str]:
        """Return the lines below the table: what is not in it."""
        lines: list[str] = []
        if absent := [each for each in self.measures or () if each not in compared.measures]:
            lines += ["", f"No run has a value of {', '.join(absent)}."]
        if others:
            given = (read_overrides(each) or () for each in others)
            named = (_settings(each, compared.common) for each in given)
            lines += ["", f"Did not complete: {'; '.join(named)}."]
        return lines + [line for sentence in refused for line in ("", sentence)]


def _drawn(
    folder: Path, jobs: Sequence[Job], curved: Sequence[Path], refused: Sequence[str]
) -> list[Path]:
    """Write the curves of a sweep, if it has any, to the files `curved`, and its page.

    The page has the sentences `refused`. Returns the files that were written.
    """
    # matplotlib: Hydra builds the callback for single runs too, which need none of it
    import matplotlib as mpl

    from fl_app.report.compare.numbers import curves
    from fl_app.report.compare.page import write
    from fl_app.report.style import PLAIN_TEXT, SETTINGS

    with mpl.rc_context(SETTINGS | PLAIN_TEXT):  # type: ignore[arg-type]
        figure = curves(jobs)
        if figure is None:
            return write([folder], folder, command=_command(), refused=refused)
        for place in curved:
            figure.savefig(place, dpi=160)
    return [*curved, *write([folder], folder, command=_command(), refused=refused)]


def _settings(overrides: Sequence[str], common: Mapping[str, str]) -> str:
    """Return the overrides of a run, except those that all runs in the table have in common."""
    own = compared_settings(overrides)
    return " ".join(f"`{k}={v}`" if v else f"`{k}`" for k, v in own.items() if common.get(k) != v)


def _command() -> str:
    """Return the command line without the folders of this machine."""
    given = [a for a in sys.argv[1:] if not a.startswith(("hydra.sweep.dir=", "hydra.run.dir="))]
    shown = ["data.root=<data>" if a.startswith("data.root=") else a for a in given]
    return shlex.join(["fl-app", *shown]).replace("'data.root=<data>'", "data.root=<data>")
