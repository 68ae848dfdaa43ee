"""What cannot be combined with masks is refused before the run, with value, rule and remedy."""

import pytest

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.server_wiring import server
from fl_app.strategies.flic import Flic

SECURE = "experiment=secure_ifca"


def _problems(*words: str) -> tuple[str, ...]:
    try:
        load(words, also=problems)
    except ConfigError as error:
        return error.problems
    return ()


def test_the_experiment_is_sound() -> None:
    assert _problems(SECURE) == ()
    assert _problems(SECURE, "strategy.participation=0.5", "masking.neighbours=4") == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["strategy.unchosen=restart"], "strategy.unchosen must be keep with masking=secagg, got "
         "restart: it needs more than sums over clients; give strategy.unchosen=keep"),
        (["strategy.weighting=capped"], "strategy.weighting must be samples or uniform with "
         "masking=secagg, got capped"),
        (["strategy.rule=median"], "strategy.rule must be mean with masking=secagg, got median"),
        (["strategy.restarts=1"], "strategy.restarts must be 0 with masking=secagg, got 1"),
        (["strategy.fallback=true"], "strategy.fallback must be False or auto with "
         "masking=secagg, got True: it needs more than sums over clients; give "
         "strategy.fallback=False"),
        (["strategy.average=gradients"], "strategy.average must be models with masking=secagg"),
        (["engine.clip_update=2"], "engine.clip_update must be null with masking=secagg, got 2: "
         "the server sees no update whose length it could check; give engine.clip_update=null"),
        (["engine.largest_update=9"], "engine.largest_update must be null with masking=secagg"),
        (["engine.place_newcomers=true"], "engine.place_newcomers must be false with "
         "masking=secagg, got true: a newcomer tells its losses; remove it"),
        (["privacy=local_dp"], "privacy must be none with masking=secagg, got local_dp"),
        (["strategy.participation=0.1"], "strategy.participation must sample 3 clients or more "
         "with masking=secagg, got 0.1 of 20, which is 2; raise it"),
        (["masking.smallest=5", "strategy.participation=0.2"], "strategy.participation must "
         "sample 5 clients or more with masking.smallest=5, got 0.2 of 20, which is 4; raise it"),
        (["masking.threshold=0.5"], "masking.threshold must be"),
        (["masking.neighbours=1"], "masking.neighbours must be"),
    ],
)  # fmt: skip
def test_each_contradiction_is_named(words: list[str], told: str) -> None:
    found = _problems(SECURE, *words)
    assert sum(each.startswith(told) for each in found) == 1
    if words in (["strategy.rule=median"], ["strategy.average=gradients"]):
        # without masks too: with these the weighting that masks need has no effect
        (other,) = (each for each in found if not each.startswith(told))
        assert other.startswith("strategy.weighting must stay capped")
    else:
        assert len(found) == 1 or words == ["privacy=local_dp"]  # which IFCA alone cannot have


@pytest.mark.parametrize("strategy", ["ifca", "secure_flic"])
def test_the_experiment_with_the_settings_for_masks_is_named(strategy: str) -> None:
    found = _problems(f"strategy={strategy}", "masking=secagg", "engine.clip_update=3")
    preset = strategy if strategy == "secure_flic" else f"secure_{strategy}"
    named = [each for each in found if f"experiment={preset} has all of these settings" in each]
    assert len(named) == 1


@pytest.mark.parametrize(
    "strategy", ["flic", "cfl", "communities", "dcfl", "krum", "fedmedian", "fedem", "pacfl"]
)
def test_a_method_that_needs_single_updates_is_refused(strategy: str) -> None:
    found = _problems(
        f"strategy={strategy}", "masking=secagg", "engine.clip_update=null",
        "engine.largest_update=null",
    )  # fmt: skip
    told = "strategy must be ifca, fedavg or secure_flic"
    assert [each for each in found if each.startswith(told)]


COMMUNITIES = "experiment=secure_flic"


def test_communities_from_sketches_are_sound_on_each_engine_with_their_noise() -> None:
    assert _problems(COMMUNITIES) == ()
    assert _problems(COMMUNITIES, "engine=deployment") == ()
    assert _problems(COMMUNITIES, "strategy.randomness=seed") == ()
    assert _problems(COMMUNITIES, "strategy.epsilon=inf") == ()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["masking=none"], "masking must be secagg with fl_app.strategies.secure_flic.SecureFlic, "
         "got none: without masks the server sees every update"),
        (["strategy.randomness=seed", "engine=deployment"], "strategy.randomness must be system "
         "with engine=deployment, got seed"),
        (["strategy.participation=0.4"], "strategy.smallest must be so large that 3 clients or "
         "more of a community are sampled with masking=secagg, got 5 with "
         "strategy.participation=0.4, which is 2; raise one of them"),
        (["masking.smallest=6"], "strategy.smallest must be so large that 6 clients"),
        (["strategy.smallest=2"], "strategy.smallest must be"),
        (["strategy.cluster_round=1"], "strategy.cluster_round must be"),
        (["strategy.cluster_round=40"], "strategy.cluster_round must be below rounds=40"),
        (["strategy.dimension=1"], "strategy.dimension must be"),
        (["strategy.epsilon=0"], "strategy.epsilon must be"),
        (["strategy.delta=0"], "strategy.delta must be"),
        (["strategy.weighting=capped"], "strategy.weighting must be"),
        (["privacy=local_dp"], "privacy must be none with masking=secagg, got local_dp"),
        (["graph.contrast=true"], "graph.contrast must stay auto"),
        (["graph.neighbours=9"], "graph.neighbours must stay"),
    ],
)  # fmt: skip
def test_what_communities_from_sketches_need_is_named(words: list[str], told: str) -> None:
    found = _problems(COMMUNITIES, *words)
    assert [each for each in found if each.lower().startswith(told.lower())], found


def test_a_server_without_masks_refuses_a_method_that_needs_them() -> None:
    with pytest.raises(ValueError, match="masking must be secagg"):
        server(load([COMMUNITIES, "masking=none"]))


def test_a_task_without_accuracy_is_refused() -> None:
    found = _problems(SECURE, "data=blobs", "task=regression")
    assert [each for each in found if each.startswith("task must have an accuracy")]


def test_a_server_that_flower_starts_without_the_checks_refuses_too() -> None:
    with pytest.raises(ValueError, match=r"strategy\.unchosen must be keep"):
        server(load([SECURE, "strategy.unchosen=restart"]))


def test_a_method_that_only_says_that_sums_suffice_is_to_be_derived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Flic, "sums_suffice", {"weighting": ("samples",)}, raising=False)
    told = _problems("masking=secagg", "strategy=flic", "strategy.weighting=samples")
    assert any("derive your own from FromSums" in each for each in told)
