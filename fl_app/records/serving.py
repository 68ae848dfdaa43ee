"""Which model each client uses at the end of a run, and what is needed to use it elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from pathlib import Path
from typing import Any

from fl_app.params import COMMUNITY
from fl_app.records.atomic import replacing
from fl_app.records.names import DATA_FORM
from fl_app.records.plain import dumps
from fl_app.records.reading import json_object, readable
from fl_app.types import Vector

log = getLogger(__name__)
FILE = "serving.json"
NEAR = 0.05
"""Above guessing; scores of a hundred samples vary by so much."""
GLOBAL_MODEL = "global"
"""The name of the model of all clients, beside those of the communities."""
REFERENCE = "reference"
"""The name of the model that extracts descriptors of a client's data."""
FORM = ("classes", "class_names", "preprocess")
"""What describes the form of the data, see `Dataset.form`."""
VERSION = 2
READABLE = (1, VERSION)
"""Version 1 has every mixture as a model."""
NEEDED = ("round", "models", "seed", "network", "input_shape", "input_type", "answers", "classes",
          "class_names", "preprocess", "local")  # fmt: skip
"""What the use of the models needs of any version, beside the clients."""


def community_name(row: int) -> str:
    """Return the name of a community's model."""
    return f"{COMMUNITY}{row}"


@dataclass(frozen=True)
class Descriptors:
    """How a client without labels is placed by a descriptor of its inputs.

    `reference` (d,) is the model that extracts it; `low` and `high` are the values of each block of
    it that are scaled to 0 and 1; `means` has that of each community, scaled.
    """

    reference: Vector
    low: Sequence[float]
    high: Sequence[float]
    means: Sequence[Sequence[float]]

    def content(self) -> dict[str, Any]:
        """Return the JSON values, without the model."""
        return {"low": self.low, "high": self.high, "means": self.means}


@dataclass(frozen=True)
class Served:
    """The model of each client by name, and the models that are no community's (d,) by name.

    A client with several names chooses among them on its data, and its choice is not known.
    `mixtures` are means of the communities' models: by name, the weight of each community by name.
    """

    clients: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    models: Mapping[str, Vector] = field(default_factory=dict)
    mixtures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    descriptors: Descriptors | None = None


def write_serving(
    folder: Path, served: Served, names: Sequence[str], description: Mapping[str, Any], round: int
) -> None:
    """Write the names of the stored models, those that each client uses, and how to use them."""
    content = {
        "version": VERSION,
        "round": round,
        "models": [*names, *served.mixtures],
        "mixtures": served.mixtures,
        "descriptors": served.descriptors and served.descriptors.content(),
        "clients": {
            str(client): given[0] if len(given) == 1 else list(given)
            for client, given in sorted(served.clients.items())
        },
        **description,
    }
    with replacing(folder / FILE) as temporary:
        temporary.write_text(dumps(content, indent=1), encoding="utf-8")


def no_better_than_chance(folder: Path, accuracy: float) -> str | None:
    """Return sentences on an accuracy within `NEAR` of guessing one of the classes, else None.

    One model cannot learn labels that contradict each other, however long it is trained.
    """
    served = read_serving(folder)
    if served is None or served.get("answers") != "classification" or served["classes"] < 2:
        return None
    chance = 1 / served["classes"]
    if accuracy > chance + NEAR:
        return None
    one_model = len(served.get("models", ())) == 1
    grouping = (
        " If labels of some clients contradict those of others, one model cannot learn them all, "
        "but communities can."
    )
    return (
        f"This is no better than chance, {chance:.3f} with {served['classes']} classes: the models "
        "have not learnt. More rounds, another learning rate or more samples can help; under "
        f"privacy, also a larger epsilon or fewer parameters.{grouping if one_model else ''}"
    )


def read_form(folder: Path) -> dict[str, Any] | None:
    """Return the form of the data of a run, see `Dataset.form`; None if none can be read.

    Older runs have it with their models.
    """
    for path in (folder / DATA_FORM, folder / FILE):
        if not path.exists():
            continue
        try:
            found = json_object(path)
            with readable(path, "a form of data"):
                return {name: found[name] for name in FORM}
        except ValueError as error:  # a resumed run writes it again
            log.warning("the form of the data of the run is not known: %s", error)
    return None


def read_serving(folder: Path) -> dict[str, Any] | None:
    """Return the content of the file, with clients by number and names as tuples; None: no file.

    Raises ValueError for a file of another version, or a damaged one.
    """
    path = folder / FILE
    if not path.exists():
        return None
    content = json_object(path)
    with readable(path, "the description of the models of a run"):
        version, clients = content["version"], content["clients"].items()
    if version not in READABLE:
        raise ValueError(
            f"{path} must have version {VERSION} or below, got {version!r}; use the fl-app that "
            "wrote it"
        )
    named = {int(c): (given,) if isinstance(given, str) else tuple(given) for c, given in clients}
    return {"mixtures": {}, "constants": [], "descriptors": None, **content, "clients": named}
