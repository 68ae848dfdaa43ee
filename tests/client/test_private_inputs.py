"""DP-SGD with data that are scaled or filled in by a client's own samples is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_app import client_wiring
from fl_app.compatibility import problems
from fl_app.config import Config, ConfigError, load

IMAGES = ("data=image_folder", "network=small_cnn")
TABLE = ("data=table", "data.file=rows.csv", "data.label=sick", "data.classes=[n,y]", "network=mlp")
SAMPLE = "privacy=sample_dp"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for place in ("train/a", "train/b", "test/a", "test/b"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 255, (8, 8), np.uint8)
        Image.fromarray(pixels).save(folder / "0.png")
    lines = ["age,blood,sick", *(f"{age},a,{'ny'[age % 2]}" for age in range(20)), ",a,n"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    return tmp_path


def _load(root: Path, *words: str, checked: bool = True) -> Config:
    common = ["population=own", "population.clients=1", "strategy=fedavg", "rounds=1"]
    return load([*common, f"data.root={root}", *words], also=problems if checked else None)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((*IMAGES, "data.channels=1"), "data.standardise"),
        ((*TABLE, "data.missing=mean", "+data.categories.blood=[a]"), "data.missing"),
        ((*TABLE, "data.missing=mean", "data.standardise=true", "data.exclude=[blood]"),
         "data.standardise, data.missing"),
        ((*TABLE, "data.exclude=[age]"), "data.categories.blood"),
    ],
)  # fmt: skip
def test_statistics_of_own_samples_are_refused(
    root: Path, words: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"other samples of the client, got {named}, found"):
        _load(root, *words, SAMPLE)
    client = _load(root, *words, SAMPLE, checked=False)
    with pytest.raises(ValueError, match=f"other samples of the client, got {named}, found"):
        client_wiring.client(client, 0)
    _load(root, *words, "privacy=local_dp")


@pytest.mark.parametrize(
    "words",
    [
        (*IMAGES, "data.channels=1", "data.standardise=false"),
        (*TABLE, "data.exclude=[age]", "+data.categories.blood=[a]"),
    ],
)
def test_inputs_that_depend_on_one_sample_are_not(root: Path, words: tuple[str, ...]) -> None:
    assert client_wiring.client(_load(root, *words, SAMPLE), 0).samples
