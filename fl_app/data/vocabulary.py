"""Texts as sequences of tokens: integers of one length, padded."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fl_app.data.checks import DataError
from fl_app.data.frame import Frame

PADDING, UNKNOWN, FIRST = 0, 1, 2
"""The token of padding, of a word outside the vocabulary, and of the first word in it."""
MOST_TOKENS = 2**28
"""Limit for the tokens of a data set: 1 GiB."""
Tokens = Literal["words", "characters", "spaces"]
"""Lower-case words and punctuation; characters; or what white space separates, such as numbers."""
VocabularySize = Annotated[int, Field(ge=FIRST + 1, le=10_000_000)]
WORD = re.compile(r"\w+|[^\w\s]")


def pieces(frame: Frame, column: str, tokens: Tokens) -> list[list[str]]:
    """Return the pieces of each row's text or list; raises DataError for a row without any."""
    found = []
    for row, cell in enumerate(frame.texts(column).tolist()):
        parts = _split(cell, tokens)
        if not parts:
            raise frame.error(row, column, "a text with at least one token", "remove the row")
        found.append(parts)
    return found


def _split(cell: Any, tokens: Tokens) -> list[str]:
    if isinstance(cell, list):
        return [str(each) for each in cell]
    if not isinstance(cell, str):
        return []
    if tokens == "words":
        return WORD.findall(cell.lower())
    return list(cell) if tokens == "characters" else cell.split()


def most_frequent(texts: Iterable[Sequence[str]], size: int) -> list[str]:
    """Return the `size - FIRST` most frequent pieces, in alphabetical order among equals."""
    often = Counter(piece for text in texts for piece in text)
    order = sorted(often, key=lambda piece: (-often[piece], piece))
    return order[: size - FIRST]


def read_vocabulary(path: Path, size: int) -> list[str]:
    """Return the pieces in a file, one per line; raises DataError for none, twice, or too many."""
    try:
        words = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise DataError(
            f"no vocabulary at {path}: expected one token per line in UTF-8; put it there or set "
            f"data.vocabulary_file ({error})"
        ) from error
    words = words[:-1] if words[-1] == "" else words
    often = Counter(words).most_common(1)
    if not words or often[0][1] > 1 or len(words) + FIRST > size:
        got = f"{len(words)}, {often[0][0]!r} {often[0][1]} times" if words else "none"
        raise DataError(
            f"{path} must have at most {size - FIRST} different tokens, one per line, got {got}; "
            "correct it or raise data.vocabulary"
        )
    return words


def encoded(texts: Sequence[Sequence[str]], words: Sequence[str], length: int) -> np.ndarray:
    """Return texts as tokens (N, `length`) int32: cut at the end, or padded there."""
    if len(texts) * length > MOST_TOKENS:
        raise DataError(
            f"data.length times the {len(texts):,} texts must be at most {MOST_TOKENS:,}, got "
            f"data.length={length}; lower it"
        )
    place = {word: FIRST + number for number, word in enumerate(words)}
    tokens = np.full((len(texts), length), PADDING, np.int32)
    for row, text in enumerate(texts):
        found = [place.get(piece, UNKNOWN) for piece in text[:length]]
        tokens[row, : len(found)] = found
    return tokens
