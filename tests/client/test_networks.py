"""One contract for every network of conf."""

import pytest
import torch

from fl_app.composition import choices
from fl_app.wiring import made

OF_TOKENS = ("text_classifier",)


@pytest.mark.parametrize("name", [name for name in choices("network") if name not in OF_TOKENS])
def test_every_network_scores_each_class_of_small_pictures(name: str) -> None:
    network = made(f"network={name}", (3, 32, 32), 10).eval()
    scores = network(torch.zeros(2, 3, 32, 32))
    assert scores.shape == (2, 10)
    assert scores.isfinite().all()


@pytest.mark.parametrize("name", OF_TOKENS)
def test_every_network_of_tokens_ignores_padding(name: str) -> None:
    network = made(f"network={name}", (5,), 3).eval()
    tokens = torch.tensor([[4, 2, 9, 0, 0], [9, 4, 2, 0, 0], [0, 0, 0, 0, 0]])
    scores = network(tokens)
    assert scores.shape == (3, 3)
    assert scores.isfinite().all()
    torch.testing.assert_close(scores[0], scores[1])
    torch.testing.assert_close(scores[0], network(tokens[:1, :3])[0])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("text_classifier", (3, 8, 8), r"needs tokens of shape \(length,\), got inputs of shape"),
        ("small_cnn", (9,), r"a CNN needs images of shape .* use network=mlp for a table"),
        ("small_cnn", (12, 12), r"got inputs of shape \(12, 12\); give images\[:, None\] if"),
        ("small_cnn", (32, 32, 3), r"got 32x3; give images\.transpose\(0, 3, 1, 2\) if the last"),
        ("small_cnn", (1, 3, 3), r"got 3x3; use a larger image size"),
        ("mobilenet", (9,), "mobilenet needs images"),
        ("mobilenet_v2", (9,), "mobilenet_v2 needs images"),
    ],
)
def test_a_network_for_other_inputs_is_refused(
    name: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        made(f"network={name}", shape, 3)


def test_hidden_layers_of_a_dense_network_are_as_many_as_given() -> None:
    sizes = [p.shape for p in made("network=mlp", (7,), 3, hidden=[5]).parameters()]
    assert sizes == [(5, 7), (5,), (3, 5), (3,)]
    assert len(list(made("network=mlp", (7,), 3, hidden=[]).parameters())) == 2
