"""Checks what a strategy asks the clients' learners to tell beside their models."""

from collections.abc import Mapping

from fl_app.client.learner import Learner
from fl_app.data.datasets import Dataset
from fl_app.learner_reports import OFFERED, Report
from fl_app.schema import Target


def check_reports(
    method: Target, asks: object, learner: type[Learner], privacy: Target | None, data: Dataset
) -> None:
    """Raise ValueError for reports that the learner cannot tell, or that privacy would not hide.

    `asks` is that of the class or of the object of `method`.
    """
    if not isinstance(asks, Mapping) or not all(isinstance(a, Report) for a in asks.values()):
        raise ValueError(
            "asks of a strategy must map names to fl_app.learner_reports.Report, got "
            f"{asks!r} in {method.path}; see docs/extend/method.md"
        )
    hidden = privacy is not None and getattr(privacy.resolve(), "kind", "") != "none"
    if not asks:
        return
    names = ", ".join(asks)
    if hidden and privacy:
        raise ValueError(
            f"privacy must be none with {method.path}, which asks clients for {names}, got "
            f"{privacy.path}: no noise hides these; choose another strategy or remove the privacy"
        )
    untold = [name for name in asks if name not in (*learner.tells, OFFERED)]
    if untold:
        raise ValueError(
            f"{method.path} asks clients for {', '.join(untold)}, but {learner.__name__} tells "
            f"{', '.join(learner.tells) or 'nothing'}; give a learner that does by client.learner"
        )
    counted = [name for name, report in asks.items() if "classes" in report.sizes]
    if counted and data.target != "classification":
        raise ValueError(
            f"data.target must be classification with {method.path}, which asks for "
            f"{', '.join(counted)} of each class, got {data.target}; use other data, another "
            "strategy, or settings of it with which it asks for none"
        )
    measured = [name for name, report in asks.items() if "inputs" in report.sizes]
    if measured and data.tokens:
        raise ValueError(
            f"the samples must be numbers with {method.path}, which asks for {', '.join(measured)} "
            "of them, got tokens; use other data or another strategy"
        )
