"""Reads tables: CSV, NumPy arrays and Parquet."""

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from logging import getLogger
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.endings import COMPRESSED, ending
from fl_app.data.frame import MISSING, Frame, Source, is_number, shortened
from fl_app.extras import installation

log = getLogger(__name__)
TEXTS = (".csv", ".tsv", ".txt")
ENDINGS = (*TEXTS, *(f"{text}{COMPRESSED}" for text in TEXTS), ".npy", ".parquet")
DELIMITERS = ",;\t"
EXACT = 2**53
"""Whole numbers beyond it are texts in a frame, because float64 would make some of them equal."""
FEW = 3
"""Columns up to which a row of data could be 0, 1, ... by chance."""
LONGEST = 2**31 - 1
"""Limit for the characters of a cell; that of Python, 131,072, is less than a long text has."""
QUOTED = re.compile(r'"[^"]*"')
INDEX = re.compile(r"__index_level_\d+__")
"""A column in which pandas writes an index without a name."""


def read_table(path: Path) -> Frame:
    """Return a table; raises DataError for a file that is absent or has another form.

    Text is UTF-8 with commas, semicolons or tabs, whichever its first line has most of; the first
    line has the names of the columns, also 0, 1, ... of pandas, or other numbers if they have none.
    """
    (whole,) = table_parts(path, None)
    return whole


def table_parts(path: Path, rows: int | None) -> Iterator[Frame]:
    """Yield a table in parts of at most `rows` rows; None: one part. Raises DataError as above.

    A text is read part by part, so that it can be larger than the memory.
    """
    kind = ending(path)
    if kind not in ENDINGS:
        raise DataError(f"a table must end in {', '.join(ENDINGS)}, got {path}; convert it")
    if path.is_dir() and kind != ".parquet":  # which can be a folder of parts
        raise DataError(
            f"a table must be a file, got the folder {path}; point data.root and data.file at a "
            "file, or give data=client_files (client_texts) if each file has the rows of a client"
        )
    if not path.exists():
        raise DataError(
            f"no table at {path}; put the file there, or point data.root and data.file at it"
        )
    try:
        if kind == ".npy":
            yield _array(path)
        elif kind == ".parquet":
            yield _parquet(path)
        else:
            yield from _text(path, rows)
    except DataError:
        raise
    except UnicodeDecodeError as error:
        found = f"{error.object[error.start]:#x} at byte {error.start}"
        raise DataError(f"{path} must be a text in UTF-8, got {found}; save it as UTF-8") from error
    except Exception as error:  # damaged files fail in different ways
        raise DataError(
            f"{path} must be a {kind} file that can be read, got "
            f"{type(error).__name__}: {error}; write it again"
        ) from error


def _text(path: Path, rows: int | None) -> Iterator[Frame]:
    unpack = gzip.open if ending(path).endswith(COMPRESSED) else open
    with unpack(path, "rt", encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(DELIMITERS, key=QUOTED.sub("", first).count)
        lines = _lines(path, file, delimiter)
        head = next(lines, None)
        if head is None:
            raise DataError(
                f"{path} must have at least a line of names, got an empty file; fill it"
            )
        names = _names(head[1], path)
        lines = lines if names is head[1] else chain([head], lines)
        part = list(islice(lines, rows))
        while True:
            yield _frame(path, names, part, delimiter)
            if not (part := list(islice(lines, rows))):
                return


def _lines(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the last line and the cells of each row that is not empty; raises DataError."""
    csv.field_size_limit(LONGEST)
    reader, last = csv.reader(file, delimiter=delimiter, strict=True), 0
    try:
        for row in reader:
            last = reader.line_num
            if row:
                yield last, [cell.strip() for cell in row]
    except csv.Error as error:
        raise DataError(
            f"line {last + 1} of {path} must begin a row of a {ending(path)} file that can be "
            f"read, got {error}; close its quotes, and double those within a cell"
        ) from error


def _frame(
    path: Path, names: list[str], rows: list[tuple[int, list[str]]], delimiter: str
) -> Frame:
    for line, row in rows:
        if len(row) != len(names):
            remedy = f"quote cells that contain {delimiter!r}"
            if len(row) < len(names):
                remedy = "leave the cells of missing values empty"
            if names[0].startswith("#") or len(names) == 1:
                remedy = f"remove lines before that of the names, such as {names[0]!r}"
                remedy += ", and separate cells by commas, semicolons or tabs"
            raise DataError(
                f"line {line} of {path} must have {len(names)} cells like the first line, got "
                f"{len(row)}; {remedy}"
            )
    columns, originals = {}, {}
    for place, name in enumerate(names):
        given = [row[place] for _, row in rows]
        cells = [None if len(cell) < 5 and cell.lower() in MISSING else cell for cell in given]
        columns[name] = objects(cells)
        if any(text for text, cell in zip(given, cells, strict=True) if cell is None):
            originals[name] = objects([text or None for text in given])
    source = Source(str(path), "line", np.array([line for line, _ in rows], int))
    return Frame(columns, (source,), originals=originals)


def _names(first: list[str], path: Path) -> list[str]:
    """Return the first line if it has names, or else the numbers of the columns."""
    given = [cell for cell in first if cell.lower() not in MISSING]
    numbers = [cell for cell in given if is_number(cell)]
    if _counted(first):  # by pandas, which numbers columns without names
        if len(first) <= FEW:
            log.warning(
                "line 1 of %s, %s, is read as the names of its columns, as pandas writes them; put "
                "a line of names before it if it is a row", path, ",".join(first),
            )  # fmt: skip
        return first
    if len(numbers) == len(given) and not (first[0] == "" and _counted(first[1:])):
        return [str(i) for i in range(len(first))]
    if len(numbers) < len(given) and numbers:
        word = next(cell for cell in given if not is_number(cell))
        raise DataError(
            f"line 1 of {path} must be the names of the columns or a row of numbers, got "
            f"{word!r} beside {numbers[0]}; add a line of names that are no numbers"
        )
    if "" in first:
        raise DataError(
            f"line 1 of {path} must name every column, got no name for column "
            f"{first.index('') + 1}; name it, write a table of pandas with index=False, or remove "
            "a line before that of the names"
        )
    twice = [name for name in first if first.count(name) > 1]
    if twice:
        raise DataError(
            f"the names in line 1 of {path} must differ, got {twice[0]!r} {first.count(twice[0])} "
            "times; name each column"
        )
    return first


def _counted(cells: Sequence[str]) -> bool:
    """Whether cells are 0, 1, ... in order; one alone is rather a number."""
    return len(cells) > 1 and list(cells) == [str(i) for i in range(len(cells))]


def _array(path: Path) -> Frame:
    values = np.load(path, allow_pickle=False)
    if values.ndim != 2 or values.dtype.kind not in "buif":
        raise DataError(
            f"{path} must contain numbers in rows and columns, got {values.dtype} of shape "
            f"{values.shape}; save an array (rows, columns), or use data=arrays"
        )
    numbers = values.astype(np.float64)
    large = (np.abs(numbers) >= EXACT).any(axis=0) & (values.dtype.kind in "iu")
    columns = {
        str(i): as_column(values[:, i].tolist()) if large[i] else numbers[:, i]
        for i in range(values.shape[1])
    }
    return Frame(columns, (Source(str(path), "row", np.arange(len(values))),))


def _parquet(path: Path) -> Frame:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"{path} needs the package pyarrow ({error}); save the table as CSV, or "
            f"{installation('parquet')}"
        ) from error
    table = parquet.read_table(path)
    columns = {
        name: as_column(table[name].to_pylist(), f"column {name!r} of {path}")
        for name in without_index(table.column_names)
    }
    return Frame(columns, (Source(str(path), "row", np.arange(table.num_rows)),))


def as_column(cells: Sequence[Any], told: str = "a column") -> np.ndarray:
    """Return cells of any type as a column, `told` in an error: numbers, or texts and lists.

    None, NaN, and the NA and NaT of pandas are missing. Numbers are texts if one is beyond `EXACT`.
    """
    cells = [None if _absent(cell) else cell for cell in cells]
    if all(cell is None or isinstance(cell, int | float | np.number) for cell in cells):
        if any(isinstance(cell, int | np.integer) and abs(int(cell)) > EXACT for cell in cells):
            return objects([None if cell is None else str(cell) for cell in cells])
        return np.array([np.nan if cell is None else cell for cell in cells], np.float64)
    kinds = {type(cell).__name__ for cell in cells if not isinstance(cell, str | list | None)}
    texts = [cell if isinstance(cell, str | list | None) else str(cell) for cell in cells]
    if {"dict", "bytes"} & kinds:
        raise DataError(
            f"{told} must contain numbers, texts or lists, got {shortened(sorted(kinds))}; "
            "write the table without it"
        )
    return objects(texts)


def without_index(names: Sequence[str]) -> list[str]:
    """Return the names of columns without the index that pandas writes among them."""
    return [name for name in names if not INDEX.fullmatch(name)]


def _absent(cell: Any) -> bool:
    """Whether a cell is missing, as pandas has it in columns of any type."""
    if isinstance(cell, float | np.floating):
        return bool(np.isnan(cell))
    return type(cell).__name__ in ("NAType", "NaTType")


def objects(cells: Sequence[Any]) -> np.ndarray:
    """Return an array of objects (N,), also of lists of equal lengths."""
    column = np.empty(len(cells), object)
    for row, cell in enumerate(cells):
        column[row] = cell
    return column
