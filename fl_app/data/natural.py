"""Natural partitions: the clients that the data themselves name."""

from collections.abc import Iterable, Sequence
from urllib.parse import unquote

import numpy as np

from fl_app.data.checks import DataError
from fl_app.data.clients import Population
from fl_app.data.datasets import Dataset
from fl_app.data.frame import shortened
from fl_app.data.split import Owners
from fl_app.rng import generator
from fl_app.types import Count


def by_column(
    dataset: Dataset,
    *,
    seed: int,
    clients: Count,
    min_samples: Count,
    train_samples: Count | None,
    test_samples: Count | None,
    names: list[str] | None,
) -> Population:
    """Return the clients that the data name, in the order of their names; no groups are known.

    If the data name more than `clients`, these are drawn with the seed. A client needs at least
    `min_samples` training samples, and one for test if there are any at all. `train_samples` and
    `test_samples` are the most that a client has. The clients `names`, as `encoded` returns them,
    come first and in this order: a resumed run keeps its ids if the data name new clients. Raises
    DataError for fewer clients.
    """
    owners = dataset.owners
    if owners is None:
        raise DataError(
            f"population=by_column needs data that name the client of each row, got "
            f"{dataset.name}; give data.client=<column>, data.clients=<file> with data=arrays, or "
            "use data=client_files, client_texts, client_arrays, client_images or femnist"
        )
    chosen = _chosen(owners, clients, min_samples, seed, [*map(unquote, names or ())])
    train = _parts(owners.train, chosen, train_samples, seed, "train split")
    test = _parts(owners.test, chosen, test_samples, seed, "test split")
    found = tuple(owners.names[place] for place in chosen.tolist())
    return Population(dataset, train, test, np.full(clients, -1), names=found)


def encoded(names: Iterable[str]) -> list[str]:
    """Return names with `$` and `%` percent-encoded: a setting with `${` would be interpolated."""
    return [name.replace("%", "%25").replace("$", "%24") for name in names]


def _chosen(
    owners: Owners, clients: int, min_samples: int, seed: int, first: Sequence[str]
) -> np.ndarray:
    """Return the places of the clients in `owners.names`: those `first`, then others in order."""
    count = len(owners.names)
    enough = np.bincount(owners.train, minlength=count) >= min_samples
    if len(owners.test):
        enough &= np.bincount(owners.test, minlength=count) > 0
    able = np.flatnonzero(enough)
    if clients > len(able):
        names = shortened([owners.names[i] for i in able]) or "none"
        raise DataError(
            f"population.clients must be at most {len(able)}, the clients of {owners.source} with "
            f"at least {min_samples} training samples and one for test ({names}), got {clients}; "
            "lower it"
        )
    places = {owners.names[place]: place for place in able.tolist()}
    if lost := [name for name in first[:clients] if name not in places]:
        raise DataError(
            f"{owners.source} must still have at least {min_samples} training samples of each "
            f"client of the run, and one for test, got none of {shortened(lost)}; restore its data"
        )
    known = np.array([places[name] for name in first[:clients]], int)
    others, wanted = np.setdiff1d(able, known), clients - len(known)
    draw = generator(seed, purpose="natural clients")
    if wanted < len(others):
        others = np.sort(draw.choice(others, wanted, replace=False))
    return np.concatenate([known, others])


def _parts(
    member: np.ndarray, chosen: np.ndarray, most: int | None, seed: int, purpose: str
) -> list[np.ndarray]:
    """Return the samples of each chosen client, at most `most` drawn ones."""
    order = np.argsort(member, kind="stable")
    starts = np.searchsorted(member[order], [chosen, chosen + 1])
    parts = []
    for client, (start, end) in enumerate(starts.T.tolist()):
        draw = generator(seed, purpose=purpose, client=client)
        parts.append(np.sort(draw.permutation(order[start:end])[:most]))
    return parts
