"""Functions that methods share for the graph of clients."""

from collections.abc import Callable, Container, Mapping
from functools import partial
from math import isfinite
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, PositiveFloat

from fl_app.aggregation import lower_median
from fl_app.graph.client_graph import ClientGraph, Detection
from fl_app.graph.common_drift import Updates, without_drift
from fl_app.graph.communities import canonical
from fl_app.graph.detection import ByCut, ByModularity, BySignificance
from fl_app.graph.measures import Cosine, Measure, ShiftedCosine, model_measure
from fl_app.graph.partitions import by_modularity
from fl_app.graph.similarity import DISTANCES, Distance, ModelDistance
from fl_app.graph.split_strength import FEWEST
from fl_app.graph.vectors import ClientVectors
from fl_app.ingress import screen
from fl_app.own import imported_from, unfound
from fl_app.params import Layout
from fl_app.strategies.graph_settings import SKETCHABLE
from fl_app.strategies.outcome import View
from fl_app.strategies.replies import Replies
from fl_app.strategies.server_context import ServerContext
from fl_app.types import Labels, SomeVectors, Vector

MOST_WHOLE = 5000
"""Up to this number of clients, the records have the whole matrix at the clustering."""
IMPORTABLE = "the dotted path of a function that can be imported"
STRAYED = 30.0
"""Models of honest clients were at most 25 times as far from the common one as usual."""


def distance_named(name: str) -> Distance:
    """Return a distance of models by its name, or by the dotted path of the user's function.

    Raises ValueError for a path that cannot be imported.
    """
    if name in DISTANCES:
        return DISTANCES[name]
    if "." not in name:
        raise ValueError(IMPORTABLE)
    try:
        found: Distance = imported_from(name)
    except (ImportError, ValueError) as error:
        why = unfound(name) or " ".join(str(error).split())
        raise ValueError(f"{IMPORTABLE} ({why})") from error
    return found


def _importable(name: str) -> str:
    if name in DISTANCES:  # a method lists the names that it allows separately
        raise ValueError(IMPORTABLE)
    distance_named(name)
    return name


DottedPath = Annotated[str, AfterValidator(_importable)]
Similarity = ModelDistance | DottedPath
Exponent = PositiveFloat
Scale = Literal["ordinary", "all"]


def by_similarity(context: ServerContext, *, exponent: float, scale: Scale) -> ByModularity:
    """Return the detection on normalised similarities of models."""
    return ByModularity(context.detection, exponent, scale == "ordinary")


def graph_of(
    context: ServerContext,
    measure: Measure,
    detection: Detection,
    *,
    length: int,
    whole: bool = False,
) -> ClientGraph:
    """Return an empty graph of vectors (length,); `whole`: the vectors themselves are read."""
    backend = context.vector_backend(length=length, whole=whole)
    return ClientGraph(measure, detection, ClientVectors(backend))


def unused_graph() -> ClientGraph:
    """Return the graph of a state in which none is used."""
    return ClientGraph(Cosine(), ByCut())


def own_graph(context: ServerContext, graph: Callable[[], ClientGraph]) -> ClientGraph:
    """Return the method's `graph`, which contrast alone leaves unused."""
    return unused_graph() if context.contrast and not context.or_own else graph()


def graph_of_latest(context: ServerContext, detection: Detection | None = None) -> ClientGraph:
    """Return an empty graph of latest updates, whose communities are by default by modularity."""
    how = ByModularity(context.detection) if detection is None else detection
    return graph_of(context, ShiftedCosine(), how, length=context.layout.direction.stop)


def graph_of_sums(context: ServerContext, detection: Detection) -> ClientGraph:
    """Return an empty graph of cumulated updates: see `add_updates`; without contrast unused."""
    if not context.contrast:
        return unused_graph()
    return graph_of(context, Cosine(), detection, length=context.layout.direction.stop)


def by_significance(
    context: ServerContext, number: Callable[[], int] | None = None
) -> BySignificance:
    """Return the detection of significant communities of modularity: see `BySignificance`."""
    return BySignificance(partial(by_modularity, how=context.detection), number)


def labels_of_sums(graph: ClientGraph, client_ids: Labels, members: Mapping[int, int]) -> Labels:
    """Return the communities (m,) of clients by their cumulated updates, found in every round.

    `members` are the communities so far. They stay if the new ones only join some of them: when
    each community has its own model, its clients' updates tell nothing of the others any more,
    which is not evidence against them. A client that is in none of them joins the one with the
    largest mean similarity. Clients without an update are in the largest community.
    """
    labels = np.zeros(len(client_ids), int)
    known = np.isin(client_ids, graph.vectors.client_ids)
    if not known.any():
        return labels
    among = graph.vectors.rows_of(client_ids[known].tolist())
    found = graph.labels(among)
    before = np.array([members.get(client, -1) for client in client_ids[known].tolist()])
    old = np.unique(before[before >= 0])
    if len(old) > 1 and all(np.ptp(found[before == row]) == 0 for row in old):
        found = with_nearest(graph, among, before)
    labels[known] = canonical(found)
    return canonical(labels)


def with_nearest(graph: ClientGraph, among: Labels, before: Labels) -> Labels:
    """Return the communities (m,) `before` of the rows `among` (m,), with those of new clients.

    They are -1 of a new client, which joins the one with the largest mean similarity. Of no other
    client, all are one community. Numbered as by `canonical`.
    """
    old = np.unique(before[before >= 0])
    if not len(old):
        return np.zeros(len(among), int)
    if (before < 0).any():
        similarity = graph.similarity(among)
        assert similarity is not None
        inside = (before[:, None] == old).astype(float)
        nearest = old[(similarity @ inside / inside.sum(axis=0)).argmax(axis=1)]
        before = np.where(before >= 0, before, nearest)
    return canonical(before)


def graph_of_models(
    context: ServerContext, distance: str, detection: Detection, *, averaged: bool = False
) -> ClientGraph:
    """Return an empty graph of models, or of their updates, by the name of a distance.

    `averaged`: means of the models are computed from it, so it stores whole models.
    """
    layout = context.layout
    measure = model_measure(distance, layout, distance_named(distance))
    whole = averaged or distance not in SKETCHABLE
    length = needed(layout, distance, averaged=averaged).stop
    return graph_of(context, measure, detection, length=length, whole=whole)


def needed(layout: Layout, distance: str, *, averaged: bool = False) -> slice:
    """Return the part of a model that its distance uses: all of it for a user's function."""
    return layout.direction if distance in DISTANCES and not averaged else slice(0, layout.size)


def put_models(
    graph: ClientGraph, server_round: int, replies: Replies, odd: Container[int], part: slice
) -> None:
    """Store the models of a round, and mark the clients with odd updates."""
    for client_id, model in zip(replies.client_ids.tolist(), replies.models, strict=True):
        graph.put(client_id, model[part], server_round, odd=client_id in odd)


def put_updates(
    graph: ClientGraph, server_round: int, replies: Replies, start: Vector, part: slice
) -> None:
    """Store the updates of a round: the model `start` (d,) minus that which a client returned."""
    for client_id, model in zip(replies.client_ids.tolist(), replies.models, strict=True):
        graph.put(client_id, start[part] - model[part], server_round)


def strayed(between: Distance, replies: Replies, model: Vector, layout: Layout) -> set[int]:
    """Return the clients more than STRAYED times as far from `model` (d,) as usual.

    Usual is the lower median of the round; of fewer than three replies none has strayed. An update
    of ordinary length can lead far by the trusted distance: one that takes a layer to nearly zero.
    """
    apart = between(replies.models, model[None, :], layout)[:, 0]
    if len(apart) < screen.FEWEST:
        return set()
    usual = np.full(len(apart), lower_median(apart))
    return set(replies.client_ids[screen.too_long(apart, usual, multiple=STRAYED)].tolist())


def add_updates(
    graph: ClientGraph,
    context: ServerContext,
    server_round: int,
    replies: Replies,
    sent: SomeVectors,
    groups: Labels,
) -> None:
    """Add to the sum of each client the model of `sent` (m, d) that it trained, less its own.

    The common drift of each of the `groups` (n,) of clients is removed: see `without_drift`.
    Clients of different rounds can then be compared, and the independent noise of the rounds
    averages out. A group below FEWEST has no common drift and is ignored.
    With `noise_varies`, every round has the same weight. If noise is in proportion to a bound on
    the updates, each round tells as much, however large its bound is.
    """
    part = context.layout.direction
    for mine in replies.by(groups):
        if len(mine.client_ids) < FEWEST:
            continue
        updates = Updates(sent[:, part], mine.starts, mine.models[:, part])
        without = without_drift(updates, equally=context.noise_varies)
        for client, update in zip(mine.client_ids.tolist(), without, strict=True):
            graph.add(client, update, server_round)


def check_distance(between: Distance, model: Vector, layout: Layout) -> None:
    """Raise ValueError for a model (d,) whose distance to itself is not finite.

    The distances of fl-app are finite for every finite model; a user's function may return other
    values or raise.
    """
    row = model[None, :]
    to_itself = float(between(row, row, layout)[0, 0])
    if not isfinite(to_itself):
        raise ValueError(f"its distance to itself must be finite, got {to_itself}")


def view_of(
    context: ServerContext,
    graph: ClientGraph,
    client_ids: Labels,
    labels: Labels,
    *,
    clustered: bool,
) -> View:
    """Return the view of communities (n,) of clients (n,) in the graph.

    With more than `sparse_above` clients it has matrices (n, n) only at the clustering, with more
    than MOST_WHOLE never, and not if one of them has no vector, as after a round of few replies.
    """
    n = len(client_ids)
    large = n > context.detection.sparse_above and not (clustered and n <= MOST_WHOLE)
    if large or not np.isin(client_ids, graph.vectors.client_ids).all():
        return View(client_ids, labels, None)
    among = graph.vectors.rows_of(client_ids.tolist())
    distance = graph.distance(among)
    return View(client_ids, labels, graph.similarity(among), distance)


def groups_of(labels: Labels, among: Labels) -> list[np.ndarray]:
    """Return the rows of each community from the labels (m,) of the rows `among` (m,)."""
    return [among[labels == row] for row in range(int(labels.max()) + 1)]
