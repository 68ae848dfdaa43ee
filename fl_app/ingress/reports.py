"""Reads the reports that a learner sends with its model."""

from collections.abc import Mapping
from typing import Any

from fl_app.ingress.fields import number, vector
from fl_app.ingress.rejection import RejectionError, shown
from fl_app.learner_reports import PREFIX, Report, Told


def read_reports(fields: Mapping[str, Any], asked: Mapping[str, Report]) -> Mapping[str, Told]:
    """Return the reports that were `asked` for, each a number or a vector (length,).

    Raises RejectionError for one that is missing, has another form or leaves its range, and for
    one that was not asked for.
    """
    told = [name for name in fields if isinstance(name, str) and name.startswith(PREFIX)]
    unknown = sorted(name for name in told if name[len(PREFIX) :] not in asked)
    if unknown:
        rule = "a report that was asked for"
        raise RejectionError(shown(unknown[0]), rule, shown(fields[unknown[0]]))
    return {name: _read(fields, f"{PREFIX}{name}", report) for name, report in asked.items()}


def _read(fields: Mapping[str, Any], field: str, report: Report) -> Told:
    if report.length is None:
        return number(fields, field, report.low, report.high)
    return vector(fields, field, int(report.length), report.low, report.high)
