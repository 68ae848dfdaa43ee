"""The valid replies of a round, and its failures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from fl_app.aggregation import lower_median
from fl_app.ingress.fits import FitAnswer
from fl_app.learner_reports import Told
from fl_app.types import Labels, Vectors, Weights

FAR = 100.0
"""Larger losses are limited to this multiple of the usual loss."""


@dataclass(frozen=True)
class Replies:
    """The valid replies of a round, sorted by client id.

    `models` (n, d) are valid until the next round; `starts` (n,) row of the model that each client
    trained; `samples` (n,) training samples; `losses` (n,) mean training loss, NaN with a privacy
    unless the strategy asks for it (`wants_loss`); `weights` (n,) weights of the clients in a mean;
    `reports` what the strategy asked for by name, (n,) for numbers and (n, length) for vectors, NaN
    for a client that it did not ask.
    """

    client_ids: Labels
    models: Vectors
    starts: Labels
    samples: Weights
    losses: Weights
    weights: Weights
    reports: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Sequence[FitAnswer], models: Vectors, weights: Weights) -> "Replies":
        """Return the replies of these answers, with copies of their models (n, d)."""
        return cls(
            client_ids=np.array([each.client_id for each in answers], int),
            models=models,
            starts=np.array([each.row for each in answers], int),
            samples=np.array([each.samples for each in answers], float),
            losses=np.array([each.loss for each in answers], float),  # None becomes NaN
            weights=weights,
            reports=_stacked([each.reports for each in answers]),
        )

    def where(self, wanted: np.ndarray) -> "Replies":
        """Return the replies for which `wanted` (n,) is true."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        reports = {name: told[wanted] for name, told in arrays.pop("reports").items()}
        return Replies(**{name: each[wanted] for name, each in arrays.items()}, reports=reports)

    def by(self, labels: Labels) -> Iterator["Replies"]:
        """Yield the replies of each label, in ascending order, by the labels (n,) of all."""
        for label in np.unique(labels):
            inside = labels == label
            yield self if inside.all() else self.where(inside)  # which copies the models

    @property
    def loss(self) -> float:
        """Weighted mean of the training losses of the cohort, NaN if clients do not tell them.

        Their sizes are limited: see `limited`.
        """
        if np.isnan(self.losses).any():
            return np.nan
        return float(np.average(limited(self.losses), weights=self.weights))

    @property
    def usual_loss(self) -> float:
        """The lower median of the losses, which a minority of clients cannot change much.

        Raises ValueError if clients do not tell them.
        """
        if np.isnan(self.losses).any():
            raise ValueError(
                "training losses must be asked for with a privacy, got replies without them; let "
                "wants_loss and asks_losses of the strategy be true (docs/extend/method.md)"
            )
        return lower_median(self.losses)


def limited(losses: Weights) -> Weights:
    """Return losses (n,) with sizes of at most FAR times the usual one, their lower median.

    So a wrong report has little effect in a mean. A loss may be negative, such as that of a
    density. None is limited if the usual size is 0.
    """
    usual = lower_median(np.abs(losses))
    most = FAR * usual if usual > 0 else np.inf
    found: Weights = np.clip(losses, -most, most)
    return found


def _stacked(reports: Sequence[Mapping[str, Told]]) -> Mapping[str, np.ndarray]:
    shapes = {name: np.shape(value) for each in reports for name, value in each.items()}
    return {
        name: np.array([each.get(name, np.full(shape, np.nan)) for each in reports], float)
        for name, shape in shapes.items()
    }


class TooFewRepliesError(RuntimeError):
    """A round has fewer valid replies than `engine.min_success`."""


class LostRepliesError(TooFewRepliesError):
    """Too few valid replies, and some clients were lost."""


class ClientFailure(Exception):  # noqa: N818  (Flower's name for it: results and failures)
    """A client that raised or did not answer, with its id."""

    def __init__(self, client_id: int | str, reason: str) -> None:
        super().__init__(f"client {client_id}: {reason}")
        self.client_id = client_id
        self.reason = reason


class LostClient(ClientFailure):
    """A client whose node is gone or did not answer in time; it may come back."""


class RejectedReply(ClientFailure):
    """A malformed reply, which the strategy cannot receive."""


def too_few(error: TooFewRepliesError, failures: Sequence[ClientFailure]) -> TooFewRepliesError:
    """Return the error with the failures; a LostRepliesError if some clients were lost."""
    named = "; ".join(str(failure) for failure in failures) or "none"
    lost = any(isinstance(failure, LostClient) for failure in failures)
    kind = LostRepliesError if lost else TooFewRepliesError
    return kind(f"{error}; failed: {named}")
