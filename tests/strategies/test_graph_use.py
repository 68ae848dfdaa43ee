"""Every setting of the graph has an effect on a method, or is refused by name."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import docs_settings
from methods import builder

from fl_app.composition import choices
from fl_app.config import ConfigError, load, option
from fl_app.graph.vector_backends import InMemory, OnDisk, Sketched, VectorBackend
from fl_app.schema import GraphConfig
from fl_app.strategies.base import CommunityStrategy
from fl_app.testing.toy import DETECTION, context, honest, parts, play, roster

POINTS = "strategy=kmeans network=centroids network.k=5"


def _by_graph() -> tuple[list[str], list[str]]:
    """Return the methods with a graph of replies, and those without, each class once."""
    targets = {name: option(f"strategy={name}") for name in choices("strategy")}
    first = sorted({target.path: name for name, target in reversed(targets.items())}.values())
    uses = {name: targets[name].resolve().graph_use for name in first}
    return [n for n in first if uses[n].only is None], [
        n for n in first if uses[n].only is not None
    ]


METHODS, WITHOUT = _by_graph()
SPARSE = replace(DETECTION, sparse_above=5, neighbours=3)
SETTINGS = list(GraphConfig.__dataclass_fields__)
OTHER = {
    "store": "sketch", "memory_gb": 2.0, "sketch_dim": 99, "backend": "leiden",
    "resolution": 1.5, "sparse_above": 7, "neighbours": 9, "look_ahead_every": 3,
    "contrast": True, "benign": "root", "root_samples": 3,
}  # fmt: skip


def _problems(*overrides: str) -> list[str]:
    try:
        load(list(overrides))
    except ConfigError as error:
        return list(error.problems)
    return []


def _cells(method: str) -> dict[str, str]:
    """Return what the table of the docs says of each setting."""
    rows = (line.strip("| ").split(" | ") for line in docs_settings.graph_uses().splitlines())
    head, _, *lines = rows
    column = head.index(f"`{method}`")
    return {line[0].strip("`").removeprefix("graph."): line[column] for line in lines}


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_the_docs_is_what_a_configuration_accepts(method: str) -> None:
    cells = _cells(method)
    assert list(cells) == SETTINGS
    given = {name: f"graph.{name}={OTHER[name]}" for name in SETTINGS}
    refused = [given[name] for name in SETTINGS if cells[name] != "yes"]
    alone = ["graph.contrast=false"] if cells["contrast"] == "yes" else []
    found = _problems(f"strategy={method}", *alone, *refused)
    for problem, each in zip(sorted(found), sorted(refused), strict=True):
        name, _, value = each.partition("=")
        assert f"strategy {method}" in problem
        assert f"{name} must" in problem
        assert value in problem
    taken = [name for name in SETTINGS if cells[name] == "yes" and name != "contrast"]
    idle = {"memory_gb"} if "store" in taken else set()  # with a store other than auto
    words = [given[name] for name in taken if name not in idle]
    assert _problems(f"strategy={method}", *words) == []
    assert _problems(f"strategy={method}", "graph.memory_gb=2.0") == []
    also = [given[name] for name in SETTINGS if cells[name] == "with contrast"]
    if cells["contrast"] == "yes":
        assert _problems(f"strategy={method}", "graph.contrast=true", *also) == []
    assert cells["contrast"] == "yes" or not also


@pytest.mark.parametrize("method", WITHOUT)
def test_a_method_without_a_graph_refuses_what_it_does_not_use(method: str) -> None:
    use = option(f"strategy={method}").resolve().graph_use
    words = {name: f"graph.{name}={OTHER[name]}" for name in SETTINGS}
    used = {name for name in SETTINGS if use.why_not(name, {}) is None}
    loyal = {"benign", "root_samples"} if use.suspects else set()
    assert loyal <= used <= {*use.only, *loyal}
    needs = (
        ["masking=secagg"]
        if getattr(option(f"strategy={method}").resolve(), "needs_masks", 0)
        else []
    )
    found = _problems(f"strategy={method}", *needs, *words.values())
    whys = "which keeps no vectors of clients", "which suspects no clients by their community"
    told = [problem for problem in found if any(why in problem for why in whys)]
    assert len(told) == len(SETTINGS) - len(used)
    assert all(
        any(f"graph.{name} must stay" in each for each in told) for name in set(SETTINGS) - used
    )


def test_a_users_method_may_add_a_graph_to_one_of_ours_without() -> None:
    words = ["strategy=fedavg", "graph.resolution=1.5"]
    assert len(_problems(*words)) == 1
    assert _problems(*words, "strategy._target_=user_methods.Asking") == []


def test_with_contrast_settings_without_effect_are_refused() -> None:
    assert _problems("strategy=flic", "graph.contrast=true", "graph.neighbours=9") == [
        "graph.neighbours must stay 32 with strategy flic, whose graph has all edges with "
        "graph.contrast=true, got 9; remove it, or give graph.neighbours=32"
    ]
    age = ("strategy=cfl_clusters", "strategy.max_age=2")
    assert _problems(*age) == []
    assert _problems(*age, "graph.contrast=true") == [
        "strategy.max_age must stay 1 with graph.contrast=true, which compares cumulated updates "
        "instead, got 2; remove it"
    ]
    assert _problems("strategy=cfl", "graph.resolution=2.0") == [
        "graph.resolution must stay 1.0 with strategy cfl, which uses it only with "
        "graph.contrast=true or both, got 2.0; remove it, or give graph.resolution=1.0"
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("graph.store=exact graph.memory_gb=2", "graph.memory_gb must stay 4 with graph.store=ex"),
        ("graph.store=sketch graph.memory_gb=2", "got 2.0; remove it, or choose graph.store=auto"),
        ("graph.store=disk graph.sketch_dim=9", "must stay 16384 with graph.store=disk"),
        ("graph.root_samples=3", "with graph.benign=largest, got 3; remove it, or choose graph.be"),
        ("strategy.stability_window=3", "must stay 10 with strategy.cluster_round=25, got 3"),
        ("strategy=krum strategy.trim=0.2", "with strategy.rule=krum, got 0.2; remove it, or ch"),
        ("strategy=trimmed_mean strategy.malicious=2", "with strategy.rule=trimmed_mean"),
        ("strategy=krum graph.benign=root", "graph.benign must stay largest with strategy robust"),
        ("strategy=flux strategy.stable_below=0.1", "choose strategy.cluster_round=auto"),
        ("strategy=flux strategy.radius=1.0 strategy.radius_scale=2", "choose strategy.radius=kn"),
        ("strategy=communities_1nn strategy.beta=2", "choose strategy.attribution=wnn"),
        ("strategy=ifca strategy.trial_rounds=5", "or choose strategy.restarts other than 0"),
        ("strategy=ifca strategy.average=gradients strategy.rule=median", "rule must stay mean"),
        (
            "strategy=ifca strategy.average=gradients strategy.weighting=uniform",
            "weighting must stay capped with strategy.average=gradients, got uniform; remove it",
        ),
        ("strategy=cfl fallback=true", "strategy.fallback must not be true with strategy.mode=by"),
        (f"{POINTS} strategy=kfed strategy.steps=2", "steps must stay 5 with strategy.only_start"),
        (
            f"{POINTS} strategy.only_start=true strategy.init=kmeans++ strategy.momentum=0.1",
            "got 0.1; remove it, or choose strategy.only_start=false",
        ),
        ("attack=alie attack.z=1 attack.cohort=9", "attack.cohort must stay 100 with attack.z=1.0"),
        ("privacy=local_dp privacy.rate=0.5", "or choose privacy.quantile other than null"),
        (f"{POINTS} client.epochs=3", "client.epochs must stay 5 with clients that cluster points"),
        (f"{POINTS} client/optimizer=adam", "client.optimizer must stay torch.optim.SGD"),
        ("client.cohort=single client.cohort_size=9", "must stay 64 with client.cohort=single"),
        ("engine.sample_cap=9 strategy.weighting=uniform", "choose strategy.weighting=capped"),
        (
            "engine.sample_cap=9 strategy=dcfl",
            "which has no strategy.weighting, got 9.0; remove it",
        ),
        (
            "engine.connection=x",
            "with engine.name=inprocess, got x; remove it, or choose engine.na",
        ),
        ("engine.folder=x engine=simulation", "must stay null with engine.name=simulation, got x"),
        ("engine.warm=false", "engine.warm must stay true with engine.name=inprocess"),
        ("engine.restarts=2", "engine.restarts must stay 5 with engine.name=inprocess, got 2"),
        ("engine.cpus_per_client=2", "remove it, or choose engine.name=simulation"),
        ("engine.gpus_per_client=1 engine=deployment", "must stay 0 with engine.name=deployment"),
        ("engine.ray_address=a:1 engine=deployment", "null with engine.name=deployment, got a:1"),
        ("metrics.host=0.0.0.0", "must stay 127.0.0.1 with metrics.port=null"),
        ("population.dynamics.drift=labels", "with population.dynamics.drifters=0, got labels"),
        ("population.dynamics.period=5", "choose population.dynamics.pattern=periodic"),
    ],
)
def test_what_another_setting_makes_idle_is_refused(words: str, told: str) -> None:
    (found,) = _problems(*words.split())
    assert told in found


WITH_RULE = ("flic", "late", "hierarchical", "ifca", "feddrift", "flux", "pacfl", "fedgwc", "fedem")


@pytest.mark.parametrize("name", WITH_RULE)
def test_weights_with_a_rule_that_uses_none_are_refused(name: str) -> None:
    network = ["network=mixture"] if name == "fedem" else []
    words = [f"strategy={name}", "strategy.rule=median", *network]
    assert _problems(*words) == []
    assert _problems(*words, "strategy.weighting=uniform") == [
        "strategy.weighting must stay capped with strategy.rule=median, got uniform; remove it, or "
        "choose strategy.rule=mean"
    ]


@pytest.mark.parametrize(
    "words",
    [
        "strategy=fedrc network=mixture strategy.rule=median strategy.weighting=samples",
        "strategy=ifca strategy.average=gradients strategy.rule=median fallback=true",
        "strategy=ifca strategy.average=gradients strategy.weighting=uniform fallback=true",
        "strategy=cfl fallback=auto",
        "strategy=cfl fallback=false",
        "strategy=cfl_clusters fallback=true",
        f"{POINTS} strategy=kfed strategy.init=random strategy.steps=2 strategy.weighting=equal",
    ],
)
def test_what_one_of_several_settings_uses_is_accepted(words: str) -> None:
    assert _problems(*words.split()) == []


def test_settings_that_have_an_effect_are_accepted() -> None:
    used = ("graph.store=sketch", "graph.sketch_dim=9", "graph.benign=root", "graph.root_samples=3")
    assert _problems("strategy=flic", *used) == []


def test_all_are_told_at_once_with_value_and_remedy() -> None:
    found = _problems("strategy=dcfl", "graph.resolution=2.0", "graph.store=sketch")
    assert found == [
        "graph.resolution must stay 1.0 with strategy dcfl, which does not find communities "
        "by modularity, got 2.0; remove it, or give graph.resolution=1.0",
        "graph.store must be auto, exact or disk with strategy dcfl, whose models are means of "
        "the clients' last models, got sketch; use auto, which uses the disk beyond "
        "graph.memory_gb",
    ]


def test_sketches_will_do_where_the_distance_allows_them_and_no_look_ahead_always() -> None:
    assert not _problems("strategy=late", "strategy.similarity=cosine", "graph.store=sketch")
    own = "strategy.distance=fl_app.graph.similarity.euclidean_between"
    assert "needs whole updates" in _problems("strategy=hierarchical", own, "graph.store=sketch")[0]
    for method in METHODS:
        assert not _problems(f"strategy={method}", "graph.look_ahead_every=0")


def test_a_distance_is_one_of_those_named_or_a_path() -> None:
    for name in ("trusted", "nowhere", "fl_app.nowhere"):
        (found,) = _problems("strategy=hierarchical", f"strategy.distance={name}")
        assert found.startswith("strategy.distance must be 'euclidean' or 'cosine' or the dotted")
    assert not _problems("strategy=late", "strategy.similarity=trusted")


STORES = {
    "exact": lambda **_: InMemory(),
    "disk": lambda **_: OnDisk(capacity=12),
    "sketch": lambda **_: Sketched(dimension=4096, seed=0),
}
BUILD = {
    "flic": builder("flic", participation=1.0, cluster_round=3),
    "cfl": builder(
        "cfl", participation=1.0, mode="clusters", alpha_threshold=0.5, mean_below=1.8,
        norm_above=0.1, gap_above=0.1,
    ),
    "hierarchical": builder("hierarchical", participation=1.0, cluster_round=3),
    "late": builder("late", participation=1.0, cluster_round=3, similarity="euclidean"),
    "dcfl": builder("dcfl", participation=1.0),
    "communities": builder("communities", participation=1.0),
    "communities_wnn": builder("communities_wnn", participation=1.0),
}  # fmt: skip


def _groups(name: str, **given: Any) -> set[frozenset[int]]:
    strategy: CommunityStrategy = BUILD[name](context(**given))
    play(strategy, roster(12), range(1, 9), client=honest)
    return parts(strategy)


@pytest.mark.parametrize("store", list(STORES))
@pytest.mark.parametrize("name", list(BUILD))
def test_every_store_finds_the_same_communities(name: str, store: str) -> None:
    whole: list[bool] = []

    def backend(**options: Any) -> VectorBackend:
        whole.append(options["whole"])
        return STORES[store](**options)

    if store == "sketch" and name in ("dcfl", "communities", "communities_wnn"):
        BUILD[name](context(vector_backend=backend))
        assert whole == [True]
        return
    found = _groups(name, vector_backend=backend)
    assert found == {frozenset(range(group, 12, 3)) for group in range(3)}


@pytest.mark.parametrize("name", ["flic", "late", "communities", "communities_wnn"])
def test_sparse_graphs_find_the_same_communities(name: str) -> None:
    assert _groups(name, detection=SPARSE) == _groups(name)


@pytest.mark.parametrize("name", list(BUILD))
def test_matrices_of_many_clients_are_shown_at_the_clustering_alone(name: str) -> None:
    strategy = BUILD[name](context(detection=SPARSE))
    play(strategy, roster(12), range(1, 9))
    strategy.events.clear()
    view = strategy.view(8)
    assert view is not None
    assert view.similarity is None
    assert view.distance is None
    np.testing.assert_array_equal(view.client_ids, np.arange(12))
