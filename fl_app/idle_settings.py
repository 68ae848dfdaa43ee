"""Given settings that have no effect in a run, but may in a run like it: the run tells them.

Settings that never have an effect beside another one are errors: see `used_with` and
`strategies.graph_settings`. Those here depend on a size, such as the number of clients, and a sweep
over it must not be refused.
"""

from typing import Any

from fl_app.composition import CONF
from fl_app.schema import Config
from fl_app.strategies.abilities import asks_losses
from fl_app.strategies.graph_settings import NO_GRAPH, GraphUse
from fl_app.usual_settings import usual_settings

OF_LOSSES = ("loss_share", "loss_bound")


def idle_settings(config: Config) -> list[str]:
    """Return a sentence for each given setting without effect: setting, reason and remedy."""
    usual = usual_settings(vars(config), CONF)
    return [
        *_neighbours(config, usual["graph"]),
        *_look_ahead(config, usual["graph"]),
        *_clip(config),
        *_losses(config, usual["privacy"]),
    ]


def _graph_use(config: Config) -> GraphUse:
    found: GraphUse | None = getattr(config.strategy.resolve(), "graph_use", None)
    return found or NO_GRAPH


def _neighbours(config: Config, usual: Any) -> list[str]:
    graph, clients = config.graph, config.population.options["clients"]
    if graph.neighbours == usual["neighbours"] or clients > graph.sparse_above:
        return []
    if not _graph_use(config).modularity:  # a user's method may use it as it likes
        return []
    return [
        f"graph.neighbours={graph.neighbours} has no effect with population.clients={clients}: up "
        f"to graph.sparse_above={graph.sparse_above} clients the graph has all edges; lower "
        "graph.sparse_above, or remove it"
    ]


def _look_ahead(config: Config, usual: Any) -> list[str]:
    every, at = config.graph.look_ahead_every, config.strategy.options.get("cluster_round")
    if every == usual["look_ahead_every"] or not _graph_use(config).ahead:
        return []
    latest = at - 1 if isinstance(at, int) else config.rounds
    if every <= latest:
        return []
    end = f"strategy.cluster_round={at}" if isinstance(at, int) else f"rounds={config.rounds}"
    remedy = f"give at most {latest}, or 0 for no looks" if latest else "remove it"
    return [
        f"graph.look_ahead_every={every} has no effect with {end}: the first look would be in "
        f"round {every}; {remedy}"
    ]


def _clip(config: Config) -> list[str]:
    largest, clip = config.engine.largest_update, config.engine.clip_update
    if largest is None or clip is None or clip < largest:
        return []
    return [
        f"engine.clip_update={clip:g} has hardly any effect with engine.largest_update="
        f"{largest:g}: updates above that are rejected before they could be shortened; give less, "
        "or null"
    ]


def _losses(config: Config, usual: Any) -> list[str]:
    options, method = config.privacy.options, config.strategy
    if asks_losses(method.resolve(), method.options):
        return []
    return [
        f"privacy.{name}={options[name]:g} has no effect with {method.path}, which asks clients "
        "for no losses; remove it, or use a method that does, such as strategy=ifca"
        for name in OF_LOSSES
        if name in options and options[name] != usual.get(name, options[name])
    ]
