"""Data sets of the Hugging Face hub through flwr-datasets: images, tables and texts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fl_app.data.checks import DataError, TableTarget
from fl_app.data.columns import Categories, Missing
from fl_app.data.datasets import Dataset, moments
from fl_app.data.frame import Frame, Source, shortened
from fl_app.data.images import Channels, Size, pixels, stacked
from fl_app.data.split import TestShare
from fl_app.data.table import Form, LabelColumn, Rows, build, shared_rows, two_tables
from fl_app.data.table_files import as_column, without_index
from fl_app.data.targets import Classes, classes_of
from fl_app.data.text import TextForm
from fl_app.data.text import build as build_text
from fl_app.data.vocabulary import Tokens, VocabularySize
from fl_app.extras import installation
from fl_app.rng import generator
from fl_app.types import Count, Text


def images(
    *, name: Text, subset: Text | None, split: Text, test_split: Text | None,
    test_share: TestShare, samples: Count | None, image: Text, label: Text, client: Text | None,
    size: Size, channels: Channels | None, standardise: bool, seed: int,
) -> Dataset:  # fmt: skip
    """Load images by name, as pictures or as arrays of bytes, resized and converted if asked for.

    `image`, `label` and `client` are names of columns. `samples` of `split` are drawn with the
    seed; those of `test_split`, or without it `test_share` of them, are for test. FEMNIST (Caldas
    et al., 2018) has 62 classes of 28x28 images, and the writers as clients. Raises DataError
    without the package, the network or the columns.
    """
    columns = [label] if client is None else [label, client]
    parts = _loaded(name, subset, split, test_split, samples, seed, [image, *columns])
    rows = _rows([_frame(part, columns, name) for part in parts], test_share, client, seed)
    named = [
        (f"row {number} of {name}", pixels(_picture(row[image]), size, channels, name))
        for part in parts
        for number, row in enumerate(part)
    ]
    found = stacked(named)
    labels, names = classes_of(rows.frame, label, _class_names(parts[0], label))
    train, test = rows.train, rows.test
    scale = moments(found[train]) if standardise else None
    return Dataset(
        name, len(names), found[train], labels[train], found[test], labels[test], scale,
        class_names=tuple(names), owners=rows.owners(),
    )  # fmt: skip


def table(
    *, name: Text, subset: Text | None, split: Text, test_split: Text | None,
    test_share: TestShare, samples: Count | None, label: LabelColumn, target: TableTarget,
    classes: Classes, categories: Categories, exclude: list[Text | int], missing: Missing,
    standardise: bool, client: Text | None, seed: int,
) -> Dataset:  # fmt: skip
    """Load a table by name; its splits are as for `images`, its columns as for `table.table`."""
    parts = _loaded(name, subset, split, test_split, samples, seed, [])
    frames = [_frame(part, without_index(part.column_names), name) for part in parts]
    rows = _rows(frames, test_share, client, seed)
    if isinstance(label, str) and target == "classification" and classes is None:
        classes = _class_names(parts[0], label)
    form = Form(label, target, classes, categories, exclude, missing, standardise, None)
    return replace(build(name, rows, form), inferred=())  # all nodes load the same rows


def text(
    *, name: Text, subset: Text | None, split: Text, test_split: Text | None,
    test_share: TestShare, samples: Count | None, column: Text, label: Text, client: Text | None,
    tokens: Tokens, length: Count, vocabulary: VocabularySize, seed: int,
) -> Dataset:  # fmt: skip
    """Load texts by name; its splits are as for `images`, its tokens as for `text.text`."""
    columns = [column, label] if client is None else [column, label, client]
    parts = _loaded(name, subset, split, test_split, samples, seed, columns)
    rows = _rows([_frame(part, columns, name) for part in parts], test_share, client, seed)
    classes = _class_names(parts[0], label)
    return build_text(
        name,
        rows,
        TextForm(label, "classification", classes, column, tokens, length, vocabulary, None, None),
    )


def _loaded(
    name: str, subset: str | None, split: str, test_split: str | None, samples: int | None,
    seed: int, columns: Sequence[str],
) -> list[Any]:  # fmt: skip
    """Return the split for training, and the one for test if given."""
    try:
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise DataError(
            f"data from the hub need the package flwr-datasets ({error}); {installation('hub')}"
        ) from error
    try:
        source = FederatedDataset(
            dataset=name, subset=subset or "default", partitioners={}, shuffle=False
        )
        parts = [source.load_split(each) for each in (split, test_split) if each is not None]
    except Exception as error:  # the hub fails in different ways: no network, unknown name
        raise DataError(
            f"{name} could not be loaded from the hub; check data.name, data.subset and "
            "data.split, or download it once with a network and set HF_HOME to that cache "
            f"({error})"
        ) from error
    if absent := [each for each in columns if each not in parts[0].column_names]:
        raise DataError(
            f"data must have the columns {shortened(columns)}, but {name} has no {absent[0]!r}; "
            f"it has {shortened(parts[0].column_names)}; name others"
        )
    if samples is not None:
        order = generator(seed, purpose="hub split").permutation(len(parts[0]))[:samples]
        parts[0] = parts[0].select(order)
    return parts


def _frame(part: Any, columns: Sequence[str], name: str) -> Frame:
    """Return some columns of a split; numbers of named classes become their names."""
    found = {}
    for column in columns:
        cells, names = list(part[column]), _class_names(part, column)
        # -1 stands for an unknown class
        found[column] = as_column(
            cells if names is None else [names[cell] if cell >= 0 else None for cell in cells],
            f"column {column!r} of {name}",
        )
    return Frame(found, (Source(name, "row", np.arange(len(part))),))


def _class_names(part: Any, column: str) -> list[str | int] | None:
    """Return the names of the classes of a column, if the data set has them."""
    names = getattr(part.features.get(column), "names", None)
    return None if names is None else list(names)


def _rows(frames: list[Frame], test_share: float, client: str | None, seed: int) -> Rows:
    if len(frames) == 1:
        return shared_rows(frames[0], test_share, client, seed)
    return two_tables(frames[0], frames[1], client)


def _picture(image: Any) -> Any:
    """Return an image, a picture or an array of bytes, as a picture."""
    from PIL import Image

    return image if hasattr(image, "mode") else Image.fromarray(np.asarray(image, np.uint8))
