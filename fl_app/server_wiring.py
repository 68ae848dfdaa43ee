"""Builds the server of a configuration: its strategy, similarity graph and records."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from fl_app import former_form
from fl_app.building import built, is_ours
from fl_app.client.central import CentralTest, balanced
from fl_app.client.learner import Learner, learner_of
from fl_app.client.sgd import SgdLearner
from fl_app.client.task import Task
from fl_app.config import Config, ConfigError
from fl_app.data.population import own
from fl_app.engines import signals, stop_request
from fl_app.engines.community_exchange import CommunityExchange
from fl_app.engines.loop import RoundLoop
from fl_app.engines.masked_exchange import MaskedExchange
from fl_app.engines.plain_exchange import PlainExchange, RoundExchange
from fl_app.engines.privacy_budget import PrivacyBudget
from fl_app.engines.ray_workers import replace_dead_workers
from fl_app.graph.communities import CommunityDetection
from fl_app.graph.vector_backends import VectorBackend, choose
from fl_app.learner_reports import LARGEST
from fl_app.masking.settings import SecAgg
from fl_app.masking_checks import masking_problems
from fl_app.option_schema import taken
from fl_app.params import FlatModule
from fl_app.records.metrics import Endpoint, Metrics
from fl_app.records.models import StateForm
from fl_app.records.points import write_points
from fl_app.records.recorder import Recorder
from fl_app.records.releases import ReleaseLog
from fl_app.records.snapshot import spread
from fl_app.report_checks import check_reports
from fl_app.rng import generator
from fl_app.strategies.abilities import asks_losses
from fl_app.strategies.base import CommunityStrategy
from fl_app.strategies.from_sums import FromSums
from fl_app.strategies.graph_settings import GraphUse
from fl_app.strategies.secure_flic import SecureFlic
from fl_app.strategies.server_context import ServerContext, largest
from fl_app.types import Contrast
from fl_app.wiring import (
    device,
    flat_network,
    initial_model,
    kept_by,
    masking,
    network,
    plan_of,
    privacy,
    schedule,
    shared_population,
    task,
    use_of,
)

DRAWN = 5_000
"""Largest number of points that are recorded for figures."""


def strategy(config: Config) -> CommunityStrategy:
    """Build the strategy with its context."""
    method, options = config.strategy.resolve(), dict(config.strategy.options)
    untaken = getattr(method, "shared", {}).keys() - taken(method)
    shared = {name: options.pop(name) for name in untaken & options.keys()}
    part = replace(config.strategy, options=options)
    made: CommunityStrategy = built("strategy", part, CommunityStrategy, _server_context(config))
    for name, value in shared.items():
        setattr(made, name, value)
    if made.asks:  # a constructor may have set it
        _check_reports(config, made)
    return made


def _server_context(config: Config) -> ServerContext:
    """Return what a strategy knows of the run."""
    wanted, data = task(config.task), shared_population(config).dataset
    module = network(config, data)
    learner, flat = learner_of(module, config.client.learner), flat_network(config, module)
    root, private = config.graph.benign == "root", privacy(config).kind != "none"
    contrast = _contrast(config, private=private)
    return ServerContext(
        seed=config.seed,
        rounds=config.rounds,
        layout=flat.layout,
        initial=flat.vector(),
        min_success=config.engine.min_success,
        evaluate_every=config.records.evaluate_every,
        evaluate_at_most=config.records.evaluate_at_most,
        largest_update=config.engine.largest_update,
        clip_update=config.engine.clip_update,
        sample_cap=config.engine.sample_cap,
        detection=detection(config),
        vector_backend=_vector_backend(config),
        look_ahead_every=config.graph.look_ahead_every,
        contrast=bool(contrast),
        or_own=contrast == "both" and not private,
        private=private,
        noise_varies=privacy(config).adaptive,
        metrics=tuple(wanted.metrics),
        classes=data.classes,
        inputs=None if data.tokens else prod(data.shape),
        has_accuracy=wanted.has_accuracy and learner.answers_labels(),
        least_loss=_least_loss(wanted, learner, ours=is_ours(config.task), private=private),
        benign=_central(config, most=config.graph.root_samples).benign if root else largest,
        fresh=lambda number: initial_model(config, number)[1],
        union=None if config.engine.name == "deployment" else partial(union, config),
    )


def _least_loss(wanted: Task, learner: type[Learner], *, ours: bool, private: bool) -> float:
    """Return the least loss that an honest client can tell; a user's learner or task tells any."""
    sure = learner is SgdLearner and ours and not private
    known = wanted.least_loss if sure else None
    return -LARGEST if known is None else known


def _contrast(config: Config, *, private: bool) -> Contrast:
    """Return whether the graph has contrast: by default where the method gains by it.

    By default methods stay as published without the fallback, which undoes what the own graph finds
    wrongly, and above `graph.sparse_above` clients, because contrast compares all pairs.
    """
    given: Contrast = config.graph.contrast
    graph_use: GraphUse | None = getattr(config.strategy.resolve(), "graph_use", None)
    if given != "auto":
        return given
    few = config.population.options["clients"] <= config.graph.sparse_above
    judged = config.strategy.options.get("fallback", "auto") is not False
    return graph_use.usual(private=private) if graph_use and few and judged else False


def _vector_backend(config: Config) -> Callable[..., VectorBackend]:
    graph = config.graph
    return partial(
        choose,
        graph.store,
        clients=config.population.options["clients"],
        memory_gb=graph.memory_gb,
        dimension=graph.sketch_dim,
        seed=config.seed,
    )


def check_strategy(config: Config) -> None:
    """Raise ConfigError for a strategy that cannot be built, by building it.

    Of ours only those that ask clients for reports, since what they ask for can depend on their
    settings. Not for a run on another federation, whose data are not on this machine.
    """
    known = is_ours(config.strategy) and not getattr(config.strategy.resolve(), "asks", None)
    if known or config.engine.connection is not None:
        return
    try:
        strategy(config)
    except ValueError as error:
        raise ConfigError([str(error)]) from error


def _check_reports(config: Config, method: CommunityStrategy) -> None:
    """Raise ValueError for reports that the clients cannot tell."""
    data = shared_population(config).dataset
    learner = learner_of(network(config, data), config.client.learner)
    check_reports(config.strategy, method.asks, learner, config.privacy, data)


def detection(config: Config) -> CommunityDetection:
    """Return how communities are found."""
    graph = config.graph
    return CommunityDetection(
        backend=graph.backend,
        resolution=graph.resolution,
        sparse_above=graph.sparse_above,
        neighbours=graph.neighbours,
        seed=config.seed,
    )


def union(config: Config) -> np.ndarray:
    """Return the training points (p, d) of all clients, float32; only simulations have them."""
    people = shared_population(config)
    of_clients = (people.client(client_id).train_images for client_id in range(people.clients))
    return np.concatenate([images.flatten(1).numpy() for images in of_clients])


def class_counts(config: Config) -> Callable[[], np.ndarray] | None:
    """Return the function for the clients' class counts (n, c), None where nobody knows them."""
    known = config.engine.name != "deployment" and config.population.resolve() is not own
    people = shared_population(config) if known else None
    classifies = people is not None and people.dataset.target == "classification"
    return people.class_counts if people is not None and classifies else None


def identity(config: Config) -> dict[str, Any]:
    """Return the strategy, engine and seed for the summary."""
    method = config.strategy.resolve()
    name = getattr(method, "name", None) or config.strategy.path.rsplit(".", 1)[-1].lower()
    return {"strategy": name, "engine": config.engine.name, "seed": config.seed}


def server(config: Config) -> RoundLoop:
    """Build the server loop with its strategy and its records."""
    if config.engine.name == "simulation":
        replace_dead_workers()
    recorder = _recorder(config)
    method = strategy(config)
    if method.clusters_points:
        _describe_points(config, recorder.folder)
    return RoundLoop(
        strategy=method,
        recorder=recorder,
        clients=config.population.options["clients"],
        round_timeout_s=config.engine.round_timeout_s,
        connect_timeout_s=config.engine.connect_timeout_s,
        figures=config.records.figures,
        central=central_test(config),
        schedule=schedule(config),
        budget=privacy_budget(config, recorder.releases),
        places=config.engine.place_newcomers and not kept_by(config),
        unplaced=method.context.private and not kept_by(config),
        class_counts=class_counts(config),
        exchange=exchange(config, method),
        evaluate_with_training=config.engine.evaluate_with_training,
    )


def _recorder(config: Config) -> Recorder:
    """Return the writer of the run's folder."""
    now = datetime.now()
    folder = Path(
        config.records.folder or f"outputs/{config.experiment_name}/{now:%Y-%m-%d_%H-%M-%S-%f}"
    )
    data, use = shared_population(config).dataset, use_of(config)
    if config.records.resume or config.records.restarts:
        former_form.check(folder, config.population.path, data.form())
    return Recorder(
        folder,
        identity=identity(config),
        config_yaml=config.yaml(),
        checkpoint_every=config.records.checkpoint_every,
        snapshot_rounds=_snapshot_rounds(config),
        resume=config.records.resume,
        track=partial(config.tracking.resolve(), **config.tracking.options),
        form=StateForm.of(flat_network(config, network(config, data))),
        use=use,
        monitor=None if config.metrics.port is None else partial(endpoint, config),
        started_by=config.records.started_by,
        restarts=config.records.restarts,
    )


def exchange(config: Config, method: CommunityStrategy) -> RoundExchange:
    """Return how the method receives replies; raises ValueError for masks that do not fit."""
    settings = masking(config.masking)
    if found := masking_problems(vars(config)):
        raise ValueError("; ".join(found))
    if not isinstance(settings, SecAgg):
        return PlainExchange(method)
    if isinstance(method, SecureFlic):
        return CommunityExchange(method, settings)
    assert isinstance(method, FromSums)  # `masking_problems` refuses all others
    return MaskedExchange(method, settings)


def endpoint(config: Config, folder: Path) -> Endpoint:
    """Return the started metrics endpoint of a run; raises OSError if its port is taken."""
    assert config.metrics.port is not None
    metrics = Metrics(folder, identity(config), config.rounds)

    def hurry() -> bool:
        return signals.asked() or stop_request.asked()

    return Endpoint(metrics, host=config.metrics.host, port=config.metrics.port, hurry=hurry)


def _snapshot_rounds(config: Config) -> set[int]:
    """Return the rounds with a snapshot: the configured ones, and more for few clients."""
    small = config.population.options["clients"] <= config.graph.sparse_above
    more = spread(config.rounds, config.records.snapshots) if small else set()
    return {*config.records.snapshot_rounds, *more}


def _describe_points(config: Config, folder: Path) -> None:
    """Record the shape of a point, and points in the plane, for the figures of a clustering."""
    shape, points = shared_population(config).dataset.shape, None
    if config.engine.name != "deployment" and prod(shape) == 2:
        every = union(config)
        draw = generator(config.seed, purpose="drawn points")
        points = every[draw.permutation(len(every))[:DRAWN]]
    write_points(folder, shape, points)


def privacy_budget(config: Config, asked: ReleaseLog) -> PrivacyBudget | None:
    """Return the privacy budget of the clients, None without privacy."""
    guard = privacy(config)
    if guard.kind == "none":
        return None
    losses = asks_losses(config.strategy.resolve(), config.strategy.options)
    return PrivacyBudget(guard, partial(plan_of, config, losses=losses), asked)


def central_test(config: Config) -> CentralTest | None:
    """Return the server's test set, None unless `records.central_test` is set."""
    return _central(config, most=None) if config.records.central_test else None


def _central(config: Config, *, most: int | None) -> CentralTest:
    data, where = shared_population(config).dataset, device(config)
    model = FlatModule(network(config, data), device=where)
    return CentralTest(model, *balanced(data, where, most=most), config.client.precision)
