"""Images in folders: what is read, and what each error names."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fl_app.data import images
from fl_app.data.datasets import DataError, moments
from fl_app.wiring import made

image_folder = partial(made, "data=image_folder", seed=0)


def _picture(path: Path, width: int = 4, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (width, 4), 9 if len(mode) == 1 else (9,) * len(mode)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            _picture(tmp_path / split / name / "0.png")
    return tmp_path


def test_folders_are_classes_and_keep_their_names(root: Path) -> None:
    data = image_folder(root=str(root), size=[6, 5], standardise=False)
    assert (data.shape, data.classes, data.class_names) == ((3, 6, 5), 2, ("cat", "dog"))
    assert data.train_labels.tolist() == [0, 1]


def test_hidden_files_and_folders_are_left_out(root: Path) -> None:
    (root / "train" / ".ipynb_checkpoints").mkdir()
    (root / "train" / "cat" / "._0.png").write_bytes(b"left by macOS")
    _picture(root / "train" / "cat" / ".ipynb_checkpoints" / "0.png")
    data = image_folder(root=str(root), standardise=False)
    assert (data.class_names, data.train_labels.tolist()) == (("cat", "dog"), [0, 1])


def test_a_link_to_a_folder_above_brings_no_image_twice(root: Path) -> None:
    cats, dogs = root / "train" / "cat", root / "train" / "dog"
    (cats / "round").symlink_to(cats, target_is_directory=True)
    (cats / "up").symlink_to(root, target_is_directory=True)
    (cats / "others").symlink_to(dogs, target_is_directory=True)
    (dogs / "others").symlink_to(cats, target_is_directory=True)
    found = [str(path.relative_to(root)) for path in images.shown_files(cats)]
    assert found == ["train/cat/0.png", "train/cat/others/0.png"]


def test_a_grey_gif_is_an_image(root: Path) -> None:
    Image.new("L", (4, 4), 90).save(root / "train" / "cat" / "0.gif")
    data = image_folder(root=str(root), channels=1, standardise=False)
    assert (data.train_images == 90).all(axis=(1, 2, 3)).any()


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images_are_converted_to_the_channels_asked_for(root: Path, channels: int) -> None:
    _picture(root / "train" / "cat" / "1.png", mode="L")
    data = image_folder(root=str(root), channels=channels, standardise=False)
    assert data.shape == (channels, 4, 4)
    assert (data.train_images[:, 0] == 9).all()


def test_sixteen_bits_are_scaled_and_not_cut(root: Path) -> None:
    values = np.full((4, 4), 256 * 7, np.uint16)
    Image.fromarray(values).save(root / "train" / "cat" / "0.png")
    data = image_folder(root=str(root), channels=1, standardise=False)
    assert (data.train_images[0] == 7).all()


def test_sixteen_bits_of_a_pgm_are_read_as_those_of_a_png(root: Path) -> None:
    values = np.full((4, 4), 256 * 7, ">u2")
    (root / "train" / "cat" / "0.pgm").write_bytes(b"P5 4 4 65535\n" + values.tobytes())
    (root / "train" / "cat" / "0.png").unlink()
    data = image_folder(root=str(root), channels=1, standardise=False)
    assert (data.train_images[0] == 7).all()


def test_thirty_two_bits_are_refused(root: Path) -> None:
    Image.fromarray(np.full((4, 4), 7, np.int32)).save(root / "train" / "cat" / "1.tif")
    with pytest.raises(DataError, match=r"cat.1.tif must have 8 or 16 bits per channel, got 32"):
        image_folder(root=str(root), channels=1)


@pytest.mark.parametrize(("highest", "told"), [(4095, 1), (4096, 0)])
def test_sixteen_bits_of_which_twelve_are_used_are_told(
    root: Path, caplog: pytest.LogCaptureFixture, highest: int, told: int
) -> None:
    for name in ("cat", "dog"):
        values = np.full((4, 4), highest, np.uint16)
        Image.fromarray(values).save(root / "train" / name / "0.png")
    images._tell_of_dark.cache_clear()
    image_folder(root=str(root), channels=1, standardise=False)
    assert len(caplog.messages) == told
    assert all("scale the images to 0..65535" in each for each in caplog.messages)


def test_a_photo_is_turned_as_its_camera_says(root: Path) -> None:
    values = np.zeros((4, 4), np.uint8)
    values[0] = 200  # a bright top, which the camera held to the right
    exif = Image.Exif()
    exif[images.ORIENTATION] = 6  # turn by 90 degrees clockwise
    Image.fromarray(values).save(root / "train" / "cat" / "0.png", exif=exif)
    data = image_folder(root=str(root), channels=1, standardise=False)
    assert data.train_images[0, 0, :, 3].tolist() == [200] * 4
    assert not data.train_images[0, 0, :, :3].any()


def test_frames_beyond_the_first_are_told(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    pages = [Image.new("RGB", (4, 4), (page, page, page)) for page in (9, 5)]
    for name in ("cat", "dog"):
        pages[0].save(root / "train" / name / "1.tif", save_all=True, append_images=pages[1:])
    images._tell_of_frames.cache_clear()
    data = image_folder(root=str(root), standardise=False)
    assert (data.train_images == 9).all()
    assert caplog.messages == ["images (TIFF) have several frames, of which only the first is read"]


def test_files_of_other_endings_are_counted(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("1.svg", "2.svg", "3.avif", ".4.svg"):
        (root / "train" / "cat" / name).write_bytes(b"")
    image_folder(root=str(root), standardise=False)
    (told,) = caplog.messages
    assert f"{root} has files that are not read: 2 .svg, 1 .avif; convert those" in told


def _empty_class(root: Path) -> None:
    (root / "train" / "cat" / "0.png").unlink()


def _other_files(root: Path) -> None:
    (root / "train" / "cat" / "0.png").rename(root / "train" / "cat" / "notes.txt")


def _damaged(root: Path) -> None:
    (root / "test" / "dog" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")


def _cut(root: Path) -> None:
    draw = np.random.default_rng(0)
    path = root / "test" / "dog" / "0.png"
    Image.fromarray(draw.integers(0, 255, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000])


def _another_size(root: Path) -> None:
    for number in range(1, 3):
        _picture(root / "train" / "cat" / f"{number}.png")
    _picture(root / "train" / "dog" / "wide.png", 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_empty_class, r"must contain images .* got no file in .*train.cat; put images there or"),
        (_other_files, r"got 1 other files in .*train.cat"),
        (_damaged, r"test.dog.0.png must be an image that can be read, got .*replace or remove"),
        (_cut, r"test.dog.0.png must be an image that can be read, got OSError: .*truncated"),
        (_another_size, r"mostly 4x4 with 3 channels, got 4x5 .* in .*wide.png; give data\.size"),
    ],
)
def test_an_error_names_the_file_or_folder(root: Path, change, message: str) -> None:
    change(root)
    with pytest.raises(DataError, match=message):
        image_folder(root=str(root))


def test_images_of_several_channels_name_the_setting(root: Path) -> None:
    _another_size(root)
    Image.new("L", (4, 4)).save(root / "train" / "dog" / "wide.png")
    with pytest.raises(DataError, match=r"got 4x4 with 1 channels .*; give data\.channels=1 or 3"):
        image_folder(root=str(root), channels=None)


@pytest.mark.parametrize("limit", ["ours", "of the library"])
def test_an_oversized_image_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "ours":
        monkeypatch.setattr(images, "MOST_PIXELS", 15)
    else:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 7)
    with pytest.raises(DataError, match=r"cat.0.png must have at most .* pixels, got .*make it sm"):
        image_folder(root=str(root))


def test_a_channel_with_one_value_is_not_scaled() -> None:
    opaque = np.full((4, 2, 3, 3), 255, np.uint8)
    opaque[::2, 0] = 0
    mean, deviation = moments(opaque)
    np.testing.assert_allclose(mean, [0.5, 1.0])
    np.testing.assert_allclose(deviation, [0.5, 1.0])  # 1e-6 would make a 254 an input of -3922
