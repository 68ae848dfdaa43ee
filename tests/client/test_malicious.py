"""A malicious client among honest ones, built as a run builds it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fl_app import client_wiring, wiring
from fl_app.client import local_state, poisoning
from fl_app.client.local import LocalClient
from fl_app.client.memory import ReadOnly
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load

SMALL = ["population.clients=4", "population.train_samples=40", "population.test_samples=20",
         "client.epochs=1", "population=iid"]  # fmt: skip


def _config(*overrides: str) -> Config:
    return load([*SMALL, *overrides], also=problems)


def _update(config: Config, client_id: int, server_round: int = 1) -> np.ndarray:
    """Return what a client sends minus what it received."""
    _, start = wiring.initial_model(config)
    return _client(config, client_id).fit(start, server_round=server_round).model - start


def _client(config: Config, client_id: int) -> LocalClient:
    return client_wiring.client(config, client_id)


@pytest.fixture(scope="module")
def honest() -> dict[int, np.ndarray]:
    config = _config()
    return {client: _update(config, client) for client in range(4)}


def test_the_honest_do_not_notice_an_attack(honest: dict[int, np.ndarray]) -> None:
    config = _config("attack=scaled", "attack.clients=[1,3]")
    np.testing.assert_array_equal(_update(config, 0), honest[0])
    assert [_client(config, c).malicious for c in range(4)] == [False, True, False, True]


def test_a_forged_update_is_sent_in_place_of_the_true_one(honest: dict[int, np.ndarray]) -> None:
    config = _config("attack=minus_grad", "attack.clients=[1]", "attack.start=2", "attack.stop=2")
    np.testing.assert_allclose(_update(config, 1, 1), honest[1], atol=1e-6)
    forged, true = _update(config, 1, 2), _update(_config(), 1, 2)
    np.testing.assert_allclose(forged, -true, atol=1e-6)
    after, same = _update(config, 1, 3), _update(_config(), 1, 3)
    np.testing.assert_allclose(after, same, atol=1e-6)


def test_a_forged_update_leaves_no_variance_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # where user_networks is
    words = ("network=mcmahan_cnn", "network._target_=user_networks.batch_norm")
    config = _config("attack=scaled", "attack.clients=[1]", "attack.factor=100", *words)
    layout, start = wiring.initial_model(config)
    model = _client(config, 1).fit(start, server_round=1).model
    (variances,) = layout.non_negative.values()
    assert model[variances].min() == 0


def test_noise_is_keyed_by_round_and_client() -> None:
    config = _config("attack=gaussian", "attack.clients=[0,1]", "attack.sigma=0.5")
    first, other, later = _update(config, 0), _update(config, 1), _update(config, 0, 2)
    np.testing.assert_array_equal(first, _update(config, 0))
    np.testing.assert_allclose(first.std(), 0.5, rtol=0.05)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, later)


def test_colluders_send_the_same_from_what_all_of_them_would_have_sent(
    honest: dict[int, np.ndarray],
) -> None:
    options = ("attack=alie", "attack.clients=[0,2,3]", "attack.crew=2", "attack.z=1.5")
    config = _config(*options)
    known = np.stack([honest[0], honest[2]])
    expected = poisoning.alie(known, clients=4, malicious=3, z=1.5)
    for client in (0, 2, 3):
        np.testing.assert_allclose(_update(config, client), expected, atol=1e-6)


@pytest.mark.parametrize("kept", ["personal=fedper", "personal=ditto"])
def test_colluders_know_what_stays_with_the_others(kept: str, tmp_path: Path) -> None:
    words = ("attack=ipm", "attack.clients=[0,1]", "attack.crew=1", "attack.epsilon=1",
             "attack.start=2", kept, f"records.folder={tmp_path}")  # fmt: skip
    config = _config(*words)
    _, start = wiring.initial_model(config)
    found = [local_state.of_run(tmp_path, each, 1) for each in (0, 1)]
    first, second = (
        client_wiring.client(config, each, memory=memory) for each, memory in enumerate(found)
    )
    for each in (first, second):
        each.fit(start, server_round=1)
    honest = replace(first, malicious=False, memory=ReadOnly(found[0]))
    expected = honest.fit(start, server_round=2).model - start
    for each in (first, second):  # the first then keeps its state of this round
        sent = each.fit(start, server_round=2).model - start
        np.testing.assert_allclose(sent, -expected, atol=1e-6)


def test_colluders_that_cannot_know_what_stays_with_the_others_fail() -> None:
    config = _config("attack=ipm", "attack.clients=[0,1]", "personal=fedper")
    with pytest.raises(ValueError, match=r"without colluders with personal=fedper and no records"):
        _update(config, 0)


def test_what_a_colluder_writes_into_the_updates_of_others_is_an_error() -> None:
    config = _config("attack=ipm", "attack.clients=[0,1]")
    _, start = wiring.initial_model(config)
    colluders = _client(config, 0).colluders
    assert colluders is not None
    with pytest.raises(ValueError, match="read-only"):
        colluders(start, 1, {})[0, 0] = 1


def test_full_knowledge_is_of_the_loyal(honest: dict[int, np.ndarray]) -> None:
    options = ("attack=full_knowledge", "attack.clients=[1]", "attack.cohort=4")
    config = _config(*options, "attack.attackers=1")
    known = np.stack([honest[0], honest[2], honest[3]])
    np.testing.assert_allclose(_update(config, 1), -7 * known.mean(axis=0), atol=1e-5)


def test_poisoned_data_make_another_model_of_the_same_samples(
    honest: dict[int, np.ndarray],
) -> None:
    for attack in ("label_flip", "noisy", "backdoor"):
        config = _config(f"attack={attack}", "attack.clients=[1]")
        assert not np.allclose(_update(config, 1), honest[1], atol=1e-3)
        data = _client(config, 1).load(1)
        again = _client(_config(), 1).load(1)
        assert torch.equal(data.train_images, again.train_images)
        assert torch.equal(data.train_labels, again.train_labels)


def test_the_success_of_a_backdoor_is_measured_where_there_is_one() -> None:
    config = _config("attack=backdoor", "attack.clients=[0]", "client.epochs=30")
    _, start = wiring.initial_model(config)
    poisoned = _client(config, 0).fit(start, server_round=1).model
    loyal = _client(config, 1)
    rate, before = (loyal.attack_success(each, server_round=1) for each in (poisoned, start))
    assert rate is not None
    assert before is not None
    assert rate > 0.8 > before
    assert _client(_config(), 1).attack_success(start, server_round=1) is None


def test_an_attack_by_nobody_we_know_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"attack\.clients must be below .*got \[4\]"):
        _config("attack=zero", "attack.clients=[4]")
    with pytest.raises(ConfigError, match="share"):
        _config("attack=zero", "attack.share=1.5")


KMEANS = ["strategy=kmeans", "network=centroids", "network.k=3", "data=blobs"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["zero", "attack.start=5", "attack.stop=4"], "stop must be at least .*=5, g"),
        (["zero", "attack.start=5", "rounds=4", "strategy=fedavg"], "start must be at .*=4, got 5"),
        (["zero", "attack.share=0.1"], r"one malicious client, got .*Zero with attack.share=0\.1"),
        (["zero", "attack.clients=[]"], r"one malicious client, got .* and attack.clients=\[\]"),
        (["zero", "attack.clients=[1]", "attack.share=0.5"], "share must stay 0.3 with attack.cl"),
        (["backdoor", "attack.poisoned=0"], "attack.poisoned must be greater than 0"),
        (["backdoor", "attack.size=8"], r"size must be below .* of shape \(1, 8, 8\), got 8"),
        (["label_flip", "attack.source=0"], "source must be another label than attack.target=0"),
        (["label_flip", *KMEANS], "without labels with .*KMeans, whose clients cluster points"),
        (["zero", *KMEANS, "strategy=central_kmeans"], "attack must be none with .*CentralKMeans"),
        (["full_knowledge", "engine=deployment"], "not be one that knows the updates of loyal"),
        (["alie", "engine=deployment", "population=own"], "no client has the data of another"),
        (["ipm", "engine=deployment", "personal=fedper"], "colluders with personal=fedper, since"),
    ],
)  # fmt: skip
def test_an_attack_without_effect_is_a_configuration_error(words: list[str], said: str) -> None:
    small = SMALL if not {"data=blobs", "population=own"} & set(words) else SMALL[:1]
    with pytest.raises(ConfigError, match=said) as found:
        load([*small, f"attack={words[0]}", *words[1:]], also=problems)
    assert len(found.value.problems) == 1


def test_attacks_that_have_an_effect_are_accepted() -> None:
    _config("attack=zero", "attack.start=3", "attack.stop=3", "rounds=3", "strategy=fedavg")
    _config("attack=alie", "engine=deployment", "personal=ditto")
    load([*SMALL[:1], *KMEANS, "attack=minus_grad"], also=problems)


def test_colluders_of_a_clustering_of_points_train_as_the_honest_do() -> None:
    words = ["strategy=kmeans", "network=centroids", "network.k=3", "attack=alie", "attack.z=1",
             "attack.clients=[0,2]", "population.clients=4", "data=blobs"]  # fmt: skip
    config = load(words)
    _, start = wiring.initial_model(config)
    start = start + np.arange(len(start), dtype=np.float32)
    task = {"steps": 2, "tolerance": 1e-8, "own": False}
    sent = [
        client_wiring.client(config, each).fit(start, server_round=1, task=task).model
        for each in (0, 2)
    ]
    np.testing.assert_allclose(sent[0], sent[1], atol=1e-5)
    assert not np.allclose(sent[0], start)
