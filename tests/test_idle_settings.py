"""Settings that a run accepts although they have no effect in it, and tells."""

import pytest

from fl_app.config import load
from fl_app.idle_settings import idle_settings

FLIC = ("strategy=flic", "rounds=10", "strategy.cluster_round=5", "population.clients=20")
PRIVATE = ("privacy=sample_dp", "privacy.loss_share=0.3")


def told(*words: str) -> str:
    return "\n".join(idle_settings(load(words)))


@pytest.mark.parametrize(
    "words",
    [
        FLIC,
        (*FLIC, "graph.neighbours=3", "graph.sparse_above=19"),
        (*FLIC, "graph.look_ahead_every=4"),
        (*FLIC, "graph.look_ahead_every=0"),
        (*FLIC, "graph.look_ahead_every=10", "strategy.cluster_round=auto"),
        (*FLIC, "engine.clip_update=999", "engine.largest_update=1000"),
        (*FLIC, "engine.clip_update=null"),
        (*FLIC, "engine.clip_update=5000", "engine.largest_update=null"),
        (*PRIVATE, "strategy=ifca"),
        (*PRIVATE, *FLIC, "strategy.fallback=true"),
        ("privacy=sample_dp", "strategy=fedavg"),
        ("privacy=local_dp_round", "strategy=fedavg"),
        ("strategy=fedavg", "rounds=10"),
    ],
)
def test_settings_with_an_effect_and_defaults_are_not_told(words: tuple[str, ...]) -> None:
    assert told(*words) == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("graph.neighbours=3", "graph.sparse_above=20"),
            "graph.neighbours=3 has no effect with population.clients=20: up to "
            "graph.sparse_above=20 clients the graph has all edges; lower graph.sparse_above, or "
            "remove it",
        ),
        (
            ("graph.look_ahead_every=5",),
            "graph.look_ahead_every=5 has no effect with strategy.cluster_round=5: the first look "
            "would be in round 5; give at most 4, or 0 for no looks",
        ),
        (
            ("graph.look_ahead_every=11", "strategy.cluster_round=auto"),
            "graph.look_ahead_every=11 has no effect with rounds=10: the first look would be in "
            "round 11; give at most 10, or 0 for no looks",
        ),
        (
            ("graph.look_ahead_every=2", "strategy.cluster_round=1"),
            "graph.look_ahead_every=2 has no effect with strategy.cluster_round=1: the first look "
            "would be in round 2; remove it",
        ),
        (
            ("engine.clip_update=50", "engine.largest_update=50"),
            "engine.clip_update=50 has hardly any effect with engine.largest_update=50: updates "
            "above that are rejected before they could be shortened; give less, or null",
        ),
        (
            ("strategy.fallback=false", *PRIVATE),
            "privacy.loss_share=0.3 has no effect with fl_app.strategies.flic.Flic, which asks "
            "clients for no losses; remove it, or use a method that does, such as strategy=ifca",
        ),
    ],
)
def test_a_setting_without_effect_is_told_with_the_reason(
    words: tuple[str, ...], sentence: str
) -> None:
    assert told(*FLIC, *words) == sentence
