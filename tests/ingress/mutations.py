"""Bytes that are nearly a model, or claim to be one, drawn from a `random.Random`."""

import io
import pickle
import struct
from collections.abc import Callable
from random import Random

import numpy as np

MAGIC = b"\x93NUMPY"
SHAPES = ("(-5,)", "(1000000000000,)", "()", "(0,)", "(2, 3)", "(6, 1)", "(6.0,)", "(True,)",
          "6", "(6,), 'a': 1", "((6,),)", "(nan,)", "(__import__('os'),)", "[6]", "(6)", "(06,)",
          "(99999999999999999999999999,)", "(6,", "\\", "'''", "(1_0,)", "(\t6,)")  # fmt: skip
TYPES = ("'>f4'", "'<f8'", "'<i4'", "'|O'", "'<f2'", "'|S4'", "'<U1'", "'|V4'", "'<M8[s]'", "f4",
         "[('a', '<f4')]", "'<f4,<f4'", "None", "''", "'float32'", "' <f4'")  # fmt: skip


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    """Return an array as NumPy writes it; objects are pickled."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=True)
    return stream.getvalue()


def _header(text: str, length: int, version: int) -> bytes:
    """Return a header with this text, padded to `length` bytes where that is longer."""
    form = "<H" if version == 1 else "<I"
    start = len(MAGIC) + 2 + struct.calcsize(form)
    body = text.encode("latin1").ljust(max(0, length - start - 1)) + b"\n"
    return MAGIC + bytes([version, 0]) + struct.pack(form, len(body)) + body


def flipped(draw: Random, data: bytes) -> bytes:
    """Flip some bits, often within the header."""
    found = bytearray(data)
    end = draw.choice((128, len(data)))
    for _ in range(draw.choice((1, 1, 2, 8))):
        found[draw.randrange(min(end, len(data)))] ^= 1 << draw.randrange(8)
    return bytes(found)


def truncated(draw: Random, data: bytes) -> bytes:
    """Leave out bytes at the end, or at the start."""
    cut = draw.randrange(1, len(data) + 1)
    return data[:-cut] if draw.random() < 0.8 else data[cut:]


def extended(draw: Random, data: bytes) -> bytes:
    """Add bytes at the end, or at the start."""
    more = draw.randbytes(draw.choice((1, 3, 4, 8, 128)))
    return data + more if draw.random() < 0.8 else more + data


def edited(draw: Random, data: bytes) -> bytes:
    """Announce another shape, type, order or version, mostly in as many bytes as before."""
    size = (len(data) - 128) // 4
    shape, kind, order = f"({size},)", "'<f4'", "False"
    what = draw.randrange(4)
    if what == 0:
        shape = draw.choice(SHAPES)
    elif what == 1:
        kind = draw.choice(TYPES)
    elif what == 2:
        order = draw.choice(("True", "0", "None", "'False'"))
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if what == 3:
        text = draw.choice(("", "{}", "{" * 50, "(" * 60, "1" * 90, "{'shape': (6,)}", "\x00" * 9,
                            text + " #", "lambda: 0", text.replace("descr", "shape")))  # fmt: skip
    version = draw.choice((1, 1, 1, 2, 3, 9))
    return _header(text, draw.choice((128, 128, 0)), version) + data[128:]


def other(draw: Random, data: bytes) -> bytes:
    """Return another whole array."""
    size = max(0, (len(data) - 128) // 4)
    zeros = np.zeros(size, np.float32)
    arrays: tuple[Callable[[], bytes], ...] = (
        lambda: npy(zeros, (2, 0)),
        lambda: npy(zeros, (3, 0)),
        lambda: npy(zeros.astype(">f4")),
        lambda: npy(zeros.astype(np.float64)),
        lambda: npy(zeros.astype(np.int32)),
        lambda: npy(zeros.astype(object)),
        lambda: npy(np.array([print, None], object)),
        lambda: npy(zeros[None, :]),
        lambda: npy(np.zeros((2, size), np.float32, order="F")),
        lambda: npy(np.float32(1.0)[None][:0]),
        lambda: npy(np.zeros(size + draw.choice((1, 2, 1000)), np.float32)),
        lambda: pickle.dumps(zeros),
        zeros.tobytes,
        lambda: draw.randbytes(len(data)),
        lambda: b"PK\x03\x04" + data[4:],
        lambda: data * 2,
    )
    return draw.choice(arrays)()


MUTATIONS: dict[str, Callable[[Random, bytes], bytes]] = {
    "bit flips": flipped,
    "cut bytes": truncated,
    "further bytes": extended,
    "edited header": edited,
    "another array": other,
}


def mutated(draw: Random, data: bytes) -> tuple[str, bytes]:
    """Return the kind of a mutation of `data`, and its result."""
    kind = draw.choice(tuple(MUTATIONS))
    return kind, MUTATIONS[kind](draw, data)
