"""Images of any size in folders, one folder per class."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from logging import getLogger
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fl_app.data.checks import DataError
from fl_app.data.client_folder import read_clients
from fl_app.data.datasets import Dataset, moments
from fl_app.data.fitted import Fitted, check_same, read_fitted
from fl_app.data.frame import shortened
from fl_app.data.preparation import Moments
from fl_app.data.preparation import Pixels as Prepared
from fl_app.data.split import TestShare
from fl_app.data.unread import tell_of_unread
from fl_app.types import Text

log = getLogger(__name__)
Pixels = Annotated[int, Field(gt=0, le=10_000)]
Size = Pixels | Annotated[list[Pixels], Field(min_length=2, max_length=2)] | None
"""A side in pixels, or height and width; None: as it is."""
Channels = Literal[1, 3, 4]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
           ".gif")  # fmt: skip
ORIENTATION = 0x0112
"""The EXIF tag of how a picture is to be turned."""
SIXTEEN_BITS = ("PPM", "PNG")
"""Formats without more bits, of which the library reads some as 32."""
MOST_PIXELS = 2**26
"""Limit for one image; beyond it, a small file could need all of the memory."""


def image_folder(
    *, root: Text, size: Size, channels: Channels, standardise: bool, fitted: Fitted, seed: int
) -> Dataset:
    """Load `root`/{train,test}/<class>/<image>, resized to `size` if given.

    The classes are the names of the folders, in their order. `fitted` is the form of the data of a
    run, whose classes and scale they keep; None: they are found in the data. Raises DataError for a
    folder of another form, for an image that cannot be read, and for several sizes without `size`.
    """
    classes = _classes(Path(root), "train")
    if (others := _classes(Path(root), "test")) != classes:
        raise DataError(
            f"the classes of {root}/test must be those of train, {classes}, got {others}; give "
            "both the same folders"
        )
    form = _form(fitted, classes, standardise=standardise)
    parts: list[np.ndarray] = []
    shown: list[Path] = []
    for split in ("train", "test"):
        folders = [Path(root) / split / name for name in classes]
        inside = {folder: shown_files(folder) for folder in folders}
        shown += [path for found in inside.values() for path in found]
        files = [_images(*each) for each in inside.items()]
        numbers = [form.classes.index(name) for name in classes]
        labels = [number for number, each in zip(numbers, files, strict=True) for _ in each]
        paths = [path for each in files for path in each]
        parts += [stacked([(str(p), read(p, size, channels)) for p in paths]), np.array(labels)]
    tell_of_unread(Path(root), shown, ENDINGS)
    train, train_labels, test, test_labels = parts
    return Dataset(
        Path(root).name, len(form.classes), train, train_labels, test, test_labels,
        form.scale(train), class_names=tuple(form.classes),
    )  # fmt: skip


def client_images(
    *, root: Text, size: Size, channels: Channels, standardise: bool, test_share: TestShare,
    fitted: Fitted, seed: int,
) -> Dataset:  # fmt: skip
    """Load a folder with `root`/<client>/<class>/<image>; settings as for `image_folder`.

    The classes are those of all clients, of which a client can lack some. `test_share` of each
    client's images are for test. `population=by_column` makes them clients.
    """
    folder = Path(root)
    _check_place(folder)
    found = read_clients(folder, _of_client, (), folders="<class>/<image>")
    files = [each for part in found for each in part]
    tell_of_unread(folder, shown_files(folder), ENDINGS)
    classes = sorted({name for name, _ in files})
    form = _form(fitted, classes, standardise=standardise)
    images = stacked([(str(path), read(path, size, channels)) for _, path in files])
    labels = np.array([form.classes.index(name) for name, _ in files])
    train, test, owners = found.split(test_share, seed)
    return Dataset(
        folder.name, len(form.classes), images[train], labels[train], images[test], labels[test],
        form.scale(images[train]), class_names=tuple(form.classes), owners=owners,
    )  # fmt: skip


@dataclass(frozen=True)
class _Form:
    """The classes and the scale of images; `former` has those of a run."""

    classes: Sequence[str]
    former: Prepared | None
    standardise: bool

    def scale(self, train: np.ndarray) -> Moments | None:
        """Return mean and deviation of the images for training, or those of the run."""
        if self.former is not None:
            check_same("the shape of images", [*self.former.shape], [*train.shape[1:]])
            return self.former.scale
        return moments(train) if self.standardise else None


def _form(fitted: Fitted, found: Sequence[str], *, standardise: bool) -> _Form:
    """Return the form of images with the classes `found`, or that of a run that knows them."""
    read = read_fitted(fitted, Prepared)
    if read is None:
        return _Form(found, None, standardise)
    former, classes = read
    check_same("data.standardise", former.scale is not None, standardise)
    if unknown := [name for name in found if name not in classes]:
        raise DataError(
            f"the folders of classes must be named as in the run, {shortened(classes)}, got "
            f"{shortened(unknown)}; rename or remove them, or start a new run"
        )
    return _Form(classes, former, standardise)


def _of_client(folder: Path) -> list[tuple[str, Path]]:
    """Return the class and the file of each image of a client."""
    classes = _class_folders(folder)
    if not classes or set(classes) <= {"train", "test"}:
        raise DataError(
            f"the folder of a client must contain <class>/<image>, got "
            f"{shortened(classes) or 'no folder'} in {folder}; put its images into one folder per "
            "class, from which data.test_share takes those for test"
        )
    inside = {name: shown_files(folder / name) for name in classes}
    return [(n, path) for n, each in inside.items() if each for path in _images(folder / n, each)]


def _classes(root: Path, split: str) -> list[str]:
    """Return the names of the folders in `root`/`split` that are not hidden."""
    found = _class_folders(root / split)
    if not found:
        raise DataError(
            f"no image folder at {root}: expected {root}/{split}/<class>/<image>; put the images "
            "there or point data.root elsewhere"
        )
    return found


def _class_folders(folder: Path) -> list[str]:
    """Return the names of the folders in one that are not hidden; raises DataError for images."""
    _check_place(folder)
    inside = folder.iterdir() if folder.is_dir() else ()
    return sorted(e.name for e in inside if e.is_dir() and not e.name.startswith("."))


def _check_place(folder: Path) -> None:
    """Raise DataError for an image that is beside the folders for images."""
    lost = sorted(e for e in folder.glob("[!.]*") if e.suffix.lower() in ENDINGS and e.is_file())
    if lost:
        raise DataError(
            f"an image must be in the folder of a class, got {len(lost)} beside these folders, "
            f"such as {lost[0]}; move them to <class>/<image>"
        )


def shown_files(folder: Path) -> list[Path]:
    """Return the files in a folder and below it that are not hidden; a link to a parent is none."""
    files = [Path(place) / name for place, names in sorted(_walked(folder)) for name in names]
    return [p for p in files if not any(e.startswith(".") for e in p.relative_to(folder).parts)]


def _walked(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder and the sorted names of its files; links are followed, but not upwards."""
    above = {str(folder): frozenset(map(str, Path(os.path.realpath(folder)).parents))}
    for place, below, names in os.walk(folder, followlinks=True):
        line = above.pop(place) | {os.path.realpath(place)}
        inside = {name: os.path.join(place, name) for name in below}
        below[:] = [name for name in below if os.path.realpath(inside[name]) not in line]
        above |= {inside[name]: line for name in below}
        yield place, sorted(names)


def _images(folder: Path, files: list[Path]) -> list[Path]:
    """Return the images among the files of a class; raises DataError without one."""
    found = [path for path in files if path.suffix.lower() in ENDINGS]
    if not found:
        others = f"{len(files)} other files" if files else "no file"
        raise DataError(
            f"the folder of a class must contain images ({', '.join(ENDINGS)}), got {others} in "
            f"{folder}; put images there or remove the folder from train and test"
        )
    return found


def read(path: Path, size: Size, channels: Channels) -> np.ndarray:
    """Return an image as bytes (C, H, W); raises DataError for one that cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.width * image.height > MOST_PIXELS:
                raise Image.DecompressionBombError(f"{image.width}x{image.height} pixels")
            return pixels(image, size, channels, str(path))
    except Image.DecompressionBombError as error:
        raise DataError(
            f"{path} must have at most {MOST_PIXELS:,} pixels, got {error}; make it smaller"
        ) from error
    except DataError:
        raise
    except Exception as error:  # formats fail in different ways: OSError, SyntaxError, struct.error
        raise DataError(
            f"{path} must be an image that can be read, got {type(error).__name__}: {error}; "
            "replace or remove it"
        ) from error


def pixels(image: Any, size: Size, channels: Channels | None, name: str) -> np.ndarray:
    """Return a picture as bytes (C, H, W), resized and converted if asked for.

    It is turned as its EXIF data say, which cameras write instead of turning the pixels. Of several
    frames, such as pages, it is the first.
    """
    if image.getexif().get(ORIENTATION, 1) != 1:
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":  # a photo and its previews
        _tell_of_frames(str(image.format))
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN_BITS):
        image = _eight_bits(np.asarray(image))
    elif image.mode in ("I", "F"):
        raise DataError(
            f"{name} must have 8 or 16 bits per channel, got 32; save it with 8 bits per channel"
        )
    if channels is not None or image.mode not in MODES.values():  # such as numbers of a palette
        image = image.convert(MODES[channels or 3])
    if size is not None:
        height, width = size if isinstance(size, list) else (size, size)
        image = image.resize((width, height))
    array = np.asarray(image, np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _eight_bits(values: np.ndarray) -> Any:
    """Return values of 16 bits as a picture of 8; a conversion would cut all above 255."""
    from PIL import Image

    if 0 < int(values.max()) < 2**12:
        _tell_of_dark()
    return Image.fromarray((values >> 8).astype(np.uint8))


@cache
def _tell_of_frames(form: str) -> None:
    """Log it once for each format, not for each file."""
    log.warning("images (%s) have several frames, of which only the first is read", form)


@cache
def _tell_of_dark() -> None:
    """Log it once, not for each file."""
    log.warning(
        "an image of 16 bits has no value above 4095 and keeps 16 grey levels or fewer; if its "
        "scanner has 12 bits, scale the images to 0..65535"
    )


def stacked(images: list[tuple[str, np.ndarray]]) -> np.ndarray:
    """Return named images as one array (N, C, H, W); raises DataError for several sizes."""
    often = Counter(image.shape for _, image in images).most_common()
    if len(often) > 1:
        usual, other = often[0][0], often[-1][0]
        name = next(name for name, image in images if image.shape == other)
        remedy = "data.size=<pixels> to resize all"
        if usual[1:] == other[1:]:
            remedy = "data.channels=1 or 3 to convert all"
        raise DataError(
            f"images must have the same size, mostly {_told(usual)}, got {_told(other)} in "
            f"{name}; give {remedy}"
        )
    return np.stack([image for _, image in images])


def _told(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{height}x{width} with {channels} channels"
