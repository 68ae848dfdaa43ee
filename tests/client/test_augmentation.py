"""Augmentation of images and the epochs of slow clients, both drawn by key."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # where user_networks is
from fl_app import client_wiring, wiring
from fl_app.client.augmentation import augmented
from fl_app.client.recipe import Recipe
from fl_app.client.stragglers import Epochs, most
from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run
from fl_app.records.models import read_models
from fl_app.rng import global_seeds

SMALL = ["population.clients=5", "population.groups=1", "population.train_samples=30",
         "population.test_samples=10", "strategy=fedavg", "strategy.participation=1", "rounds=2",
         "client.epochs=2"]  # fmt: skip
QUIET = ["records.figures=false", "records.report=false", "tracking=none"]
CROP = ["client/transform=crop_flip",
        "client.transform.transforms=[{_target_: torchvision.transforms.v2.RandomCrop, "
        "size: [8,8], padding: 1}]"]  # fmt: skip
SLOW = "client.epochs={low: 0, high: 4, share: 0.6}"


def _models(folder: Path, *overrides: str) -> dict[str, np.ndarray]:
    run([*SMALL, *QUIET, *overrides], folder)
    return read_models(folder)[0]


def test_each_image_and_epoch_is_changed_by_a_draw_of_its_own() -> None:
    from torchvision.transforms import v2

    crop = v2.RandomCrop(8, padding=2)
    images = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)).expand(20, 1, 8, 8)
    first = augmented(crop, images, 0, seed=5)
    assert first.shape == images.shape
    assert len({each.numpy().tobytes() for each in first}) > 5
    assert torch.equal(first, augmented(crop, images, 0, seed=5))
    assert not torch.equal(first, augmented(crop, images, 1, seed=5))
    assert not torch.equal(first, augmented(crop, images, 0, seed=6))


@pytest.mark.parametrize("given", [CROP, [SLOW]])
def test_a_run_repeats_itself_however_its_clients_share_the_work(
    given: list[str], tmp_path: Path
) -> None:
    one, three, plain = (
        _models(tmp_path / str(n), *each)
        for n, each in enumerate(
            ([*given, "engine.workers=1"], [*given, "engine.workers=3"], ["engine.workers=1"])
        )
    )
    for name in one:
        np.testing.assert_array_equal(one[name], three[name])
    assert any((one[name] != plain[name]).any() for name in one)


def test_a_cohort_with_augmentation_says_that_it_trains_one_by_one(tmp_path: Path) -> None:
    _models(tmp_path, *CROP, "client.cohort=fused")
    assert "not as a cohort: client.transform" in (tmp_path / "run.log").read_text()


def test_a_fused_cohort_has_the_epochs_of_each_client(tmp_path: Path) -> None:
    single, fused = (
        _models(tmp_path / kind, SLOW, f"client.cohort={kind}") for kind in ("single", "fused")
    )
    assert "one by one" not in (tmp_path / "fused" / "run.log").read_text()
    for name in single:
        np.testing.assert_allclose(single[name], fused[name], atol=1e-4)


def test_epochs_are_drawn_per_client_and_round() -> None:
    slow = Epochs(low=1, high=9, share=0.5)
    drawn = [slow.draw(0, server_round=r, client=c) for r in range(40) for c in range(40)]
    assert (min(drawn), max(drawn), most(slow)) == (1, 9, 9)
    whole = drawn.count(9) / len(drawn)  # expected: a half, and a ninth of the other half
    assert whole == pytest.approx(0.5 + 0.5 / 9, abs=0.05)
    assert {Epochs(low=1, high=9, share=0.0).draw(0, server_round=1, client=c) for c in range(9)} \
        == {9}  # fmt: skip


def test_a_client_without_an_epoch_sends_back_what_it_received() -> None:
    config = load([*SMALL, "client.epochs={low: 0, high: 0, share: 1}"], also=problems)
    _, start = wiring.initial_model(config)
    np.testing.assert_array_equal(client_wiring.client(config, 0).fit(start, server_round=1).model,
                                  start)  # fmt: skip


def test_a_client_without_an_epoch_tells_the_loss_of_what_it_received() -> None:
    config = load([*SMALL, "client.epochs={low: 0, high: 0, share: 1}"], also=problems)
    _, start = wiring.initial_model(config)
    client = client_wiring.client(config, 0)
    score = client.score(start, train_data=True, server_round=1)
    assert client.fit(start, server_round=1).loss == pytest.approx(score.loss, rel=1e-5)


def test_images_are_changed_by_other_numbers_than_layers_draw() -> None:
    drawn: list[torch.Tensor] = []

    def keep(image: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.rand(3))
        return image

    change = Recipe(transform=keep).change(5)
    assert change is not None
    change(torch.zeros(1, 1, 2, 2), 0)
    with global_seeds(5):
        assert not torch.equal(drawn[0], torch.rand(3))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["client/transform=crop_flip"], r"of the shape \(1, 8, 8\) .*ValueError: Required cr"),
        (["client.transform._target_=torchvision.transforms.v2.Nothing"], "client.transform must"),
        (["+client.transform.size=4", "client.transform._target_=torchvision.transforms.v2.Resize",
          "+client.transform.colour=red"], "client.transform must be a class with arguments"),
        (["client.epochs={low: 3, high: 2, share: 1}"], "with low at most high"),
        (["client.epochs={low: 3}"], "client.epochs"),
        (["client.epochs=many"], "client.epochs must be"),
        ([SLOW, "privacy=sample_dp"], "has no client.epochs as a distribution"),
        ([*CROP, "privacy=sample_dp"], "has no client.transform"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_configuration_error(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load([*SMALL, *overrides], also=problems)
