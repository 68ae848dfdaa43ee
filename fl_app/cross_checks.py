"""Rules between the groups of a configuration that need only their values."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from fl_app.attack_checks import attack_problems
from fl_app.rng import cohort_size
from fl_app.schema import ClientConfig, EngineConfig, GraphConfig, Target
from fl_app.types import Fallback
from fl_app.used_with import ABSENT, idle_settings, yaml_of

DYNAMICS = "population.dynamics"
SHORT_NAMES = {"learning_rate": "lr", "momentum": "momentum", "weight_decay": "weight_decay"}
"""Settings of the group `client` that the optimiser SGD has as arguments."""
OF_BATCHES = (
    "epochs", "batch_size", "learning_rate", "momentum", "weight_decay", "proximal", "precision",
    "batch_norm", "clip_norm",
)  # fmt: skip
"""Settings of the group `client` for training in batches, which Lloyd's algorithm has none of."""


def cross_checks(values: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return contradictions between the typed groups; a rule needs valid groups.

    `defaults` are the default settings in conf of each group, for the option that is chosen.
    """
    strategy, population, rounds = values["strategy"], values["population"], values["rounds"]
    records, engine = values["records"], values["engine"]
    options = strategy.options if strategy else {}
    found = _clustered_too_late(options, rounds) + _tried_too_long(options, rounds)
    found += _too_many_starts(options, rounds)
    found += _too_many_for_the_clients(options, population, engine)
    method = strategy.resolve() if strategy else None
    if strategy and not hasattr(method, "model_kind"):
        found.append(
            "strategy._target_ must name a subclass of fl_app.strategies.base.CommunityStrategy, "
            f"got {strategy.path}; use one of conf/strategy"
        )
    alone = getattr(method, "simulation_only", False)
    if strategy and alone and engine and engine.name == "deployment":
        found.append(
            f"engine must be inprocess or simulation with {strategy.path}, whose server needs "
            "all clients' points, got deployment; use another strategy or engine"
        )
    if records and records.evaluate_at_most == 0 and getattr(method, "reads_scores", False):
        found.append(
            f"records.evaluate_at_most must be null or 1 or more with {strategy.path}, which needs "
            "the clients' scores of its results, got 0; remove it"
        )
    found += _judges_nothing(strategy, values["fallback"])
    if rounds and records and any(late > rounds for late in records.snapshot_rounds):
        early = ",".join(str(each) for each in records.snapshot_rounds if each <= rounds)
        found.append(
            f"records.snapshot_rounds must be at most rounds={rounds}, "
            f'got {records.snapshot_rounds}; give "records.snapshot_rounds=[{early}]"'
        )
    if getattr(method, "clusters_points", False) and values["client"]:
        found += _of_batches(values["client"], defaults["client"])
    else:
        found += _unused_short_names(values["client"], defaults["client"])
    found += _idle(values, defaults) + _uncapped(strategy, engine, defaults)
    found += attack_problems(values)
    return found + _without_effect(strategy, values["graph"], defaults)


def _judges_nothing(strategy: Target | None, fallback: Fallback | None) -> list[str]:
    """Return a problem for a fallback with a method whose communities clients cannot judge."""
    if strategy is None or fallback is not True or "fallback" in strategy.options:
        return []
    masked = getattr(strategy.resolve(), "needs_masks", False)
    why = (
        "the server learns no loss of one client that could judge communities"
        if masked
        else "it has no communities that clients could judge"
    )
    return [
        f"fallback must be auto or false with {strategy.path}, got true: {why}; remove it, or use "
        "another strategy"
    ]


def _clustered_too_late(options: Mapping[str, Any], rounds: int | None) -> list[str]:
    """Return a problem for a round of the clustering that leaves it no updates, or no use."""
    found: list[str] = []
    last, ignored = options.get("cluster_round"), options.get("ignore_before", 0)
    if rounds and isinstance(last, int) and last >= rounds:
        earlier = max(rounds // 2, 1, ignored)
        lower = f"rounds={rounds} strategy.cluster_round={earlier} or " if earlier < rounds else ""
        found.append(
            f"strategy.cluster_round must be below rounds={rounds} so that communities train, "
            f"got {last}; give {lower}rounds={last + 1} or more"
        )
    if isinstance(last, int) and ignored > last:
        found.append(
            f"strategy.ignore_before must be at most strategy.cluster_round={last}, "
            f"got {ignored}; lower it, since no update would remain for the clustering"
        )
    if rounds and last == "auto" and ignored >= rounds:
        found.append(
            f"strategy.ignore_before must be below rounds={rounds} with strategy.cluster_round="
            f"auto, got {ignored}; lower it, since communities would not train"
        )
    return found


def _tried_too_long(options: Mapping[str, Any], rounds: int | None) -> list[str]:
    """Return a problem for a search of initial models that would not end before the run does."""
    restarts, each = options.get("restarts"), options.get("trial_rounds")
    if not rounds or not isinstance(restarts, int) or not isinstance(each, int):
        return []
    needed = (restarts + 1) * each
    if not restarts or needed <= rounds:
        return []
    return [
        f"(strategy.restarts + 1) * strategy.trial_rounds must be at most rounds={rounds}, got "
        f"({restarts} + 1) * {each} = {needed}; raise rounds or lower one of them, since the best "
        "of the sets of initial models is selected after the last one was tried"
    ]


def _too_many_starts(options: Mapping[str, Any], rounds: int | None) -> list[str]:
    """Return a problem for more starts of k-means than rounds that they can share."""
    starts = options.get("n_init")
    if "patience" not in options or not rounds or not isinstance(starts, int) or starts <= rounds:
        return []  # without rounds in a start, as in central k-means, there may be any number
    return [
        f"strategy.n_init must be at most rounds={rounds}, got {starts}; raise rounds or lower it, "
        "since each start has at least one round"
    ]


def _unused_short_names(client: ClientConfig | None, defaults: Mapping[str, Any]) -> list[str]:
    """Return a problem for each setting of SGD that the chosen optimiser does not use."""
    if client is None:
        return []
    options = client.optimizer.options
    found = []
    for name, argument in SHORT_NAMES.items():
        value = getattr(client, name)
        if value in (options.get(argument), defaults[name]):
            continue
        takes = argument in options
        found.append(
            f"client.{name} is the {argument} of client/optimizer=sgd and has no effect with "
            f"{client.optimizer.path}{f' and {argument}={options[argument]}' if takes else ''}, "
            f"got {value}; " + (f"give client.optimizer.{argument} alone" if takes else "remove it")
        )
    return found


def _of_batches(client: ClientConfig, defaults: Mapping[str, Any]) -> list[str]:
    """Return a problem for each given setting that clients who cluster points do not read."""
    given = {name: (getattr(client, name), defaults[name]) for name in OF_BATCHES}
    parts = {
        name: (getattr(client, name).path, usual["_target_"])
        for name, usual in defaults.items()
        if isinstance(usual, Mapping)
    }
    return [
        f"client.{name} must stay {yaml_of(usual)} with clients that cluster points, got "
        f"{yaml_of(value)}: they have no batches; remove it"
        for name, (value, usual) in (given | parts).items()
        if value != usual
    ]


def _idle(values: Mapping[str, Any], defaults: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a problem for each given setting that another one makes idle: see `used_with`."""

    def look_up(setting: str) -> object:
        place, _, name = setting.rpartition(".")
        return _options(values["dynamics" if place == DYNAMICS else place])[1].get(name, ABSENT)

    found = []
    for group, usual in defaults.items():
        kind, given = _options(values[group])
        used_with = getattr(kind, "used_with", {})
        place = DYNAMICS if group == "dynamics" else group
        found += idle_settings(place, used_with, given, usual, look_up)
    return found


def _uncapped(
    strategy: Target | None,
    engine: EngineConfig | None,
    defaults: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return a problem for a limit of weights with a method of ours that has no weighting.

    With points it also limits the weight of a client in the agreement with the classes.
    """
    if strategy is None or engine is None or not strategy.sound or "weighting" in strategy.options:
        return []
    method, usual = strategy.resolve(), defaults["engine"]["sample_cap"]
    points, ours = getattr(method, "clusters_points", False), strategy.path.startswith("fl_app.")
    if points or not ours or engine.sample_cap == usual:
        return []
    return [
        f"engine.sample_cap must stay {yaml_of(usual)} with {strategy.path}, which has no "
        f"strategy.weighting, got {yaml_of(engine.sample_cap)}; remove it, or use another strategy"
    ]


def _options(group: Any) -> tuple[object, Mapping[str, Any]]:
    """Return the class of a group, and its settings; none of a group that is wrong by itself."""
    if isinstance(group, Target):
        return group.resolve(), group.options
    return type(group), vars(group) if is_dataclass(group) else {}


def _without_effect(
    strategy: Target | None,
    graph: GraphConfig | None,
    defaults: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return a problem for each given setting of the graph without effect on this strategy."""
    method = strategy.resolve() if strategy else None
    use = getattr(method, "graph_use", None)
    if strategy is None or method is None or graph is None or use is None:
        return []
    if use.only is not None and not method.__module__.startswith("fl_app."):
        return []  # a user's method may add a graph to one of ours that has none
    name = getattr(method, "name", None) or method.__name__.lower()
    found: list[str] = use.problems(
        name, strategy.options, asdict(graph), defaults["graph"], defaults["strategy"]
    )
    return found


def _too_many_for_the_clients(
    options: Mapping[str, Any], population: Target | None, engine: EngineConfig | None
) -> list[str]:
    """Return a problem for each number that must not exceed the number of clients."""
    clients = population.options.get("clients") if population else None
    limited = {
        "strategy.communities": options.get("communities"),
        "engine.min_success": engine.min_success if engine else None,
    }
    if not isinstance(clients, int):
        return []
    found = [
        f"{name} must be at most population.clients={clients}, got {value}; lower it"
        for name, value in limited.items()
        if isinstance(value, int) and value > clients
    ]
    share, needed = options.get("participation"), limited["engine.min_success"]
    if isinstance(share, int | float) and needed and needed <= clients:
        trained = cohort_size(share, clients)
        if needed > trained:
            found.append(
                f"engine.min_success must be at most the {trained} clients that train in a round "
                f"with strategy.participation={share:g} of population.clients={clients}, got "
                f"{needed}; lower it or raise strategy.participation"
            )
    return found
