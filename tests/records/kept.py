"""A checkpoint, and whether two are the same bit for bit."""

import numpy as np

from fl_app.records.checkpoint import Checkpoint

KEPT = Checkpoint(
    7,
    {"models": np.array([[1.5, -2.0]], np.float32), "store.ids": np.array([3, 8])},
    {"members": {"3": 0}, "losses": [0.1, 2.0]},
)


def same(a: Checkpoint, b: Checkpoint) -> bool:
    return (
        (a.round, a.state, a.arrays.keys()) == (b.round, b.state, b.arrays.keys())
        and all(a.arrays[k].tobytes() == b.arrays[k].tobytes() for k in a.arrays)
        and all(a.arrays[k].dtype == b.arrays[k].dtype for k in a.arrays)
        and all(a.arrays[k].shape == b.arrays[k].shape for k in a.arrays)
    )
