"""What leaves a private client whose network is a user's own: hidden, or refused by name."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import user_networks as user

from fl_app import client_wiring, wiring
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load
from fl_app.params import Layout

SMALL = ["population.clients=4", "population.train_samples=40", "population.test_samples=20",
         "client.epochs=2", "population=iid", "strategy=fedavg", "rounds=5"]  # fmt: skip
NOISY = ("privacy.epsilon=null", "privacy.noise_multiplier=5")


def _config(network: str, *overrides: str) -> Config:
    own = ["network=mcmahan_cnn", f"network._target_=user_networks.{network}"]
    return load([*SMALL, *own, *overrides], also=problems)


def _fit(config: Config) -> tuple[Layout, np.ndarray, np.ndarray]:
    """Return the layout, what a client received and what it sends."""
    layout, start = wiring.initial_model(config)
    return layout, start, client_wiring.client(config, 0).fit(start, server_round=1).model


@pytest.mark.parametrize(
    ("network", "named"),
    [
        ("unscaled_norm", r"'2' \(BatchNorm1d\)"),
        ("frozen_norm", r"'2' \(BatchNorm1d\)"),
        ("batch_norm", r"'2' \(BatchNorm1d\)"),
        ("batch_mean", r"'2' \(BatchMean\)"),
        ("instance_norm", r"0\.running_mean, 0\.running_var"),
        ("moving_average", r"2\.average"),
        ("teacher", r"2\.followed"),
        ("stateful", "whose output for the same batch varies"),
    ],
)
def test_a_network_that_shows_samples_is_refused_by_name(network: str, named: str) -> None:
    with pytest.raises(ConfigError, match=f"privacy=sample_dp needs a network.*{named}"):
        _config(network, "privacy=sample_dp")
    unchecked = load([*SMALL, "network=mcmahan_cnn", "privacy=sample_dp",
                      f"network._target_=user_networks.{network}"])  # fmt: skip
    with pytest.raises(ValueError, match=named):  # a client trusts no one else's check
        client_wiring.client(unchecked, 0)


def test_a_layer_that_opacus_has_no_gradients_for_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"gradient for each sample, got steps \(LSTM\)"):
        _config("projected", "privacy=sample_dp")


def test_rounded_gradients_longer_than_the_clip_bound_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"float32, .* got 3\.weight of torch\.bfloat16; train"):
        _config("rough", "privacy=sample_dp")
    _config("rough", "privacy=sample_dp", "network.freeze=['3.*']")


def test_gradients_that_belong_to_no_sample_are_refused_by_the_name_of_their_parameter() -> None:
    # an embedding of positions: Opacus would bound each position's gradient, not each sample's
    with pytest.raises(ConfigError, match=r"every trainable parameter, got places\.weight"):
        _config("Everything", "privacy=sample_dp")


def test_parameters_without_a_gradient_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"the answers depend, got 3\.weight, 3\.bias, which"):
        _config("unused", "privacy=sample_dp")
    _config("unused", "privacy=sample_dp", "network.freeze=['3.*']")


def test_layers_that_the_backward_pass_calls_again_are_trained() -> None:
    _, start, sent = _fit(_config("checkpointed", "privacy=sample_dp"))
    assert (sent != start).all()


def test_a_batch_of_one_sample_is_trained_by_a_network_that_squeezes() -> None:
    alone = "client.batch_size=1", "client.learning_rate=1", "privacy.epsilon=inf"
    config = _config("squeezed", "privacy=sample_dp", *alone)  # most batches have 0, 1 or 2 samples
    _, start, sent = _fit(config)
    assert (sent != start).any()


@pytest.mark.parametrize("network", ["attention", "recurrent", "Gated", "Cells", "Vision"])
def test_layers_that_torch_computes_as_a_whole_are_trained(network: str) -> None:
    _, start, sent = _fit(_config(network, "privacy=sample_dp"))
    assert (sent != start).all()


@pytest.mark.parametrize("epsilon", [1, 100])
@pytest.mark.parametrize("network", ["constant_buffers", "scaled_table", "Tokens"])
def test_what_leaves_in_buffers_is_what_was_received(network: str, epsilon: int) -> None:
    config = _config(network, "privacy=sample_dp", f"privacy.epsilon={epsilon}")
    layout, start, sent = _fit(config)
    weights = layout.direction
    assert len(start[weights.stop :])
    assert sent[weights.stop :].tobytes() == start[weights.stop :].tobytes()
    assert (sent[weights] != start[weights]).mean() > 0.9


def test_buffers_that_private_training_changed_all_the_same_are_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = _config("frozen_norm", "privacy=local_dp")  # a network that changes its buffers
    monkeypatch.setattr("fl_app.client.private_network.check", lambda *_, **__: None)
    private = _config("frozen_norm", "privacy=sample_dp")
    layout, start, sent = _fit(private)
    assert sent[layout.direction.stop :].tobytes() == start[layout.direction.stop :].tobytes()
    layout, start, sent = _fit(config)
    assert (sent != start).all()


@pytest.mark.parametrize("privacy", ["local_dp", "sample_dp"])
def test_frozen_parts_get_no_noise(privacy: str) -> None:
    head = 32 * 10 + 10
    layout, start, sent = _fit(_config("frozen_backbone", f"privacy={privacy}"))
    assert layout.size == len(start) == len(sent) == head
    assert (sent != start).all()


def test_local_noise_has_the_dimension_of_what_is_hidden() -> None:
    options = ("privacy=local_dp", "privacy.clip=0.1")
    layout, start, noisy = _fit(_config("batch_norm", *options, *NOISY))
    _, _, clipped = _fit(_config("batch_norm", *options, "privacy.epsilon=inf"))
    hidden = layout.size - user.HIDDEN
    assert layout.names[-1] == "3.offsets"
    assert noisy[hidden:].tobytes() == start[hidden:].tobytes()
    noise = noisy - clipped
    assert (noise[:hidden] != 0).all()
    means = slice(layout.direction.stop, layout.direction.stop + user.HIDDEN)
    np.testing.assert_allclose(noise[layout.direction].std(), 5 * 0.1, rtol=0.1)
    np.testing.assert_allclose(noise[means].std(), 5 * 0.1, rtol=0.5)


def test_a_variance_under_any_noise_is_positive() -> None:
    for clip in (0.1, 1e4):
        layout, start, sent = _fit(
            _config("batch_norm", "privacy=local_dp", f"privacy.clip={clip}", *NOISY)
        )
        variances = slice(layout.direction.stop + user.HIDDEN, layout.size - user.HIDDEN)
        assert (start[variances] == 1).all()
        assert (sent[variances] >= np.float32(0.01)).all()
        assert (sent[variances] != 1).all()


def test_local_privacy_refuses_a_buffer_that_noise_may_break() -> None:
    with pytest.raises(ConfigError, match=r"privacy=local_dp needs float buffers .*2\.average"):
        _config("moving_average", "privacy=local_dp")


def test_a_network_with_nothing_to_train_or_other_constants_each_time_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="at least one trainable parameter, got none"):
        _config("nothing_trainable")
    with pytest.raises(ConfigError, match=r"must be equal each time .* got 2\.offsets"):
        _config("drawn_by_numpy")
