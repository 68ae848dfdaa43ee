"""Shapes and types that all modules share.

Axis letters: n clients, d parameters, k communities, r rounds, c classes, q numbers in a sketch;
m is a second length, for example of a part of the clients.
"""

from typing import Annotated, Literal, get_args

import numpy as np
from jaxtyping import Float, Float32, Int, UInt32
from pydantic import AfterValidator, Field

Vector = Float32[np.ndarray, " d"]
Vectors = Float32[np.ndarray, "n d"]
SomeVectors = Float32[np.ndarray, "m d"]
Between = Float[np.ndarray, "n m"]
Weights = Float[np.ndarray, " n"]
Matrix = Float[np.ndarray, "n n"]
Labels = Int[np.ndarray, " n"]
Some = Int[np.ndarray, " m"]
"""Labels or rows of m of the n clients."""
SomeMatrix = Float[np.ndarray, "m m"]
Members = Int[np.ndarray, " _"]
"""Rows of any number of the n clients."""
Integers = UInt32[np.ndarray, " l"]
"""A vector under masks, modulo 2^32; l is the length of such a vector, or of a part of it."""
Slots = UInt32[np.ndarray, " s"]
"""The slots of all models in one such vector, s = m l."""
Reals = Float[np.ndarray, " l"]
Sums = Float[np.ndarray, "m l"]
"""Sums over clients, one row for each of m models."""
Sketch = Float32[np.ndarray, " q"]
Sketches = Float32[np.ndarray, "n q"]
Means = Float[np.ndarray, "k q"]
"""The mean sketches of the communities."""

LARGEST = 2**31 - 1
"""Largest integer of a setting, the limit of array sizes and thread counts."""
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(gt=0, le=10_000_000)]
"""A number of clients, samples, groups or rounds."""
Seed = Annotated[int, Field(ge=0)]

Store = Literal["auto", "exact", "disk", "sketch"]
"""How vectors are stored: see `graph.vector_backends.choose`."""
Backend = Literal["python-louvain", "fast", "leiden"]
"""By which code communities are found: see `graph.communities.louvain`."""
EngineName = Literal["inprocess", "simulation", "deployment"]
"""What runs the clients: threads of one process, Ray, or processes that communicate over gRPC."""
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
"""All engines; tests and benchmarks compare the others with the first one."""
ChangeKind = Literal["joined", "left", "drifted"]
"""A change of clients by a schedule, also as the kind of an event."""
Fallback = Literal["auto"] | bool
"""Whether splits are judged; auto: unless a privacy hides what clients send, or it costs rounds."""
CatchUp = Literal["auto"] | bool
"""Whether last models of absent clients follow their communities; auto: where splits are judged."""
Contrast = Literal["auto", "both"] | bool
"""Whether a graph has contrast; both: where it shows communities, else the method's own graph.

auto: both for methods that gain by it, see `strategies.graph_settings.GraphUse`.
"""
Benign = Literal["largest", "root"]
"""How the server tells which communities are loyal: see `graph.benign` in conf."""
ClusterRound = PositiveInt | Literal["auto"]
"""The round after which clients are clustered; auto: once the training loss is stable."""
Described = Literal["data", "classes"]
"""What a client describes to the server: all of its samples, or those of each class."""
Randomness = Literal["seed", "system"]
"""Where noise comes from: the run's seed, which the server knows, or the system's entropy."""

LONGEST_NAME = 255
"""Largest number of bytes in the name of a file or folder."""


def _writable(text: str) -> str:
    try:
        longest = max(len(part.encode()) for part in text.split("/"))
    except UnicodeEncodeError:  # an incomplete character
        longest = LONGEST_NAME + 1
    if longest > LONGEST_NAME or "\0" in text or len(text) > 10 * LONGEST_NAME:
        raise ValueError(
            f"text that can name a file: at most {LONGEST_NAME} bytes between slashes, no null "
            "character"
        )
    return text


Text = Annotated[str, AfterValidator(_writable)]

Participation = Annotated[float, Field(gt=0, le=1)]
"""Share of the clients that is sampled each round, in (0, 1]."""
