"""The summaries of the runs of benchmarks."""

from pathlib import Path
from typing import Any

from fl_app.records.names import SUMMARY
from fl_app.records.reading import json_object


def summary_of(folder: Path) -> dict[str, Any]:
    """Return the summary of a run that has ended; raises ValueError without one."""
    return json_object(folder / SUMMARY)
