"""The cells and the methods of the benchmark, as overrides of `experiment=benchmark`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

from fl_app.composition import choices
from fl_app.one_run import override

DATA = ("mnist", "fashion_mnist", "cifar10", "table")
SHIFTS = ("label_skew", "label_swap", "rotation", "quantity_skew")
PARTICIPATION = {"full": 1.0, "partial": 0.3}
CHANGES = ("static", "newcomers", "drift")
GROUPS, UNSEEN, JOIN = 4, 4, 4
TABLE, IMAGES = "table", "cifar10-images"
"""Folders that the benchmark writes: a synthetic table, and the images of an archive."""
BUDGET = 3
"""Settings that are tried for each method, the same number for all; the first is the usual one."""
POPULATIONS = {
    "label_skew": ("population=dirichlet", "population.alpha=0.3", f"population.groups={GROUPS}"),
    "label_swap": ("population=label_swap", f"population.groups={GROUPS}"),
    "rotation": ("population=rotation", f"population.groups={GROUPS}"),
    "quantity_skew": ("population=quantity_skew", "population.alpha=0.5"),
}
Words = tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """How large each federation is; `clients` are those that are there from the start."""

    name: str
    clients: int
    rounds: int
    train_samples: int
    test_samples: int


NIGHT = Scale("night", 20, 20, 100, 50)
QUICK = Scale("quick", 8, 6, 60, 30)


@dataclass(frozen=True, order=True)
class Cell:
    """One situation in which all methods are compared."""

    data: str
    shift: str
    participation: str
    change: str

    @property
    def name(self) -> str:
        """The four parts, separated by slashes."""
        return f"{self.data}/{self.shift}/{self.participation}/{self.change}"


def cell_named(name: str) -> Cell:
    """Return a cell by its name."""
    return Cell(*name.split("/"))


def cells(patterns: Sequence[str] = ("*",)) -> list[Cell]:
    """Return the cells whose name fits a pattern; a table has no images to rotate.

    Raises ValueError for a pattern that fits none.
    """
    every = [
        Cell(*parts)
        for parts in product(DATA, SHIFTS, PARTICIPATION, CHANGES)
        if parts[:2] != ("table", "rotation")
    ]
    empty = [p for p in patterns if not any(fnmatch(each.name, p) for each in every)]
    if empty:
        raise ValueError(
            f"--cells must fit <data>/<shift>/<participation>/<change>, got {empty[0]}; use for "
            f"example 'mnist/*/full/static' of {', '.join(DATA)}; {', '.join(SHIFTS)}; "
            f"{', '.join(PARTICIPATION)}; {', '.join(CHANGES)}"
        )
    return [each for each in every if any(fnmatch(each.name, p) for p in patterns)]


@dataclass(frozen=True)
class Method:
    """A method by its overrides, and the settings that are tried for it."""

    words: Words
    tried: tuple[Words, ...]
    origin: str
    """Which of them are those of the paper or of its authors' code, and which ours."""
    mixture: bool = False
    places: bool = True
    """Whether a client that was never there can get a model."""


def _tried(setting: str, *values: object) -> tuple[Words, ...]:
    return tuple((f"{setting}={value}",) for value in values)


OURS = "ours"
RATES = _tried("client.learning_rate", 0.1, 0.05, 0.2)
CLUSTERED = _tried("strategy.cluster_round", "{rounds_3}", "{rounds_6}", "{rounds_2}")
"""After a third, a sixth and half of the rounds."""
STANDARD = "1.0 standard modularity, as in the paper's library; 0.9 and 1.1 ours"
RESOLUTIONS = _tried("graph.resolution", 1.0, 0.9, 1.1)
LISTED = {
    "fedavg": Method(("strategy=fedavg",), RATES, OURS),
    "local": Method(
        ("strategy=fedavg", "personal=ditto", "personal.proximal=0.0"), RATES, OURS, places=False
    ),
    "ditto": Method(
        ("strategy=fedavg", "personal=ditto"), _tried("personal.proximal", 1.0, 0.1, 0.5),
        "1.0 and 0.1 the paper's, 0.5 ours",
    ),
    "personal_head": Method(
        ("strategy=fedavg",),
        (
            ("personal=fedper",),
            ("personal=fedrep", "personal.head_epochs=10"),
            ("personal=fedrep", "personal.head_epochs=1"),
        ),
        "FedPer, FedRep with the ten epochs of the head of its paper, and with one, ours",
        places=False,
    ),
    "flic": Method(
        ("strategy=flic",), CLUSTERED, "ours; the paper clusters once the graph is stable"
    ),
    "flic_contrast": Method(("strategy=flic", "graph.contrast=true"), CLUSTERED, OURS),
    "late": Method(("strategy=late",), CLUSTERED, OURS),
    "hierarchical": Method(
        ("strategy=hierarchical", "strategy.cluster_round={rounds_3}"),
        _tried("strategy.threshold", 0.9, 0.7, 1.0),
        OURS,
    ),
    "communities": Method(("strategy=communities",), RESOLUTIONS, STANDARD),
    "communities_1nn": Method(("strategy=communities_1nn",), RESOLUTIONS, STANDARD),
    "communities_wnn": Method(
        ("strategy=communities_wnn",), _tried("strategy.beta", 1.0, 0.1, 10.0), OURS
    ),
    "ifca": Method(
        ("strategy=ifca",), _tried("strategy.communities", 4, 2, 6),
        "4 the number of groups, which the paper gives it too; 2 and 6 ours",
    ),
    "fedem": Method(
        ("strategy=fedem",), _tried("network.components", 3, 2, 4),
        "3 and 4 the authors' code, 2 ours", mixture=True,
    ),
    "fedrc": Method(
        ("strategy=fedrc",), _tried("network.components", 3, 2, 4),
        "3 the authors' code, 2 and 4 ours", mixture=True,
    ),
    "pacfl": Method(
        ("strategy=pacfl",),
        (
            ("strategy.threshold=10",),
            ("strategy.signature=classes", "strategy.threshold=15"),
            ("strategy.signature=classes", "strategy.threshold=25"),
        ),
        "vectors of classes the authors' code; thresholds ours, since they depend on the data",
    ),
    "flux": Method(
        ("strategy=flux", "strategy.cluster_round={rounds_6}"),
        _tried("strategy.radius_scale", 1.25, 1.0, 1.5),
        "1.0 the authors' code, 1.25 and 1.5 ours",
    ),
    "fedgwc": Method(
        ("strategy=fedgwc",), _tried("strategy.split_below", 0.2, 0.5, 1.0),
        "1.0 the paper's, 0.2 and 0.5 ours",
    ),
    "feddrift": Method(
        ("strategy=feddrift",),
        (
            ("strategy.delta=1.0",),
            ("strategy.delta=0.5", "strategy.merge_below=0.5"),
            ("strategy.start=own",),
        ),
        "one limit for both is the paper's; its values ours",
    ),
    "cfl_clusters": Method(
        ("strategy=cfl_clusters",), _tried("strategy.alpha_threshold", 0.1, 0.02, 0.3), OURS
    ),
    "dcfl": Method(("strategy=dcfl",), _tried("strategy.damping", 0.5, 0.7, 0.9), OURS),
}  # fmt: skip
"""Methods whose settings are worth more than rates of learning, and those to compare with."""
OTHERS = {
    "bulyan", "fedavg", "fedmedian", "geometric_median", "krum", "multi_krum", "robust",
    "trimmed_mean",  # one model for all
    "central_kmeans", "kfed", "kmeans",  # groups of points
    "cfl",  # trains one of its clusters only
    "secure_flic",  # its server learns no accuracy of one client
}  # fmt: skip
"""Options of conf/strategy that the benchmark does not have, or only under another name."""


def with_unlisted(listed: Mapping[str, Method], options: Iterable[str]) -> dict[str, Method]:
    """Return the methods, and each option of conf/strategy that none of them names, by rates."""
    known = {word for each in listed.values() for word in each.words}
    new = [name for name in options if f"strategy={name}" not in known and name not in OTHERS]
    return {**listed, **{name: Method((f"strategy={name}",), RATES, OURS) for name in new}}


METHODS = with_unlisted(LISTED, choices("strategy"))
"""All methods of the product that find communities of clients, and those to compare with."""


def words(
    cell: Cell, method: str, tried: int, seed: int, *, scale: Scale, data: Path, out: Path
) -> list[str]:
    """Return the overrides of one run."""
    chosen = METHODS[method]
    found = ["experiment=benchmark", *_data(cell, data, out), *POPULATIONS[cell.shift]]
    found += [*_network(cell, mixture=chosen.mixture), *_schedule(cell, scale), *chosen.words]
    found += [f"strategy.participation={PARTICIPATION[cell.participation]}", *chosen.tried[tried]]
    return [*sized(found, scale), f"seed={seed}"]


def sized(given: Sequence[str], scale: Scale) -> list[str]:
    """Return words in which parts of the rounds, such as {rounds_3} for a third, are numbers."""
    found = list(given)
    for n in (2, 3, 6):
        part = f"{{rounds_{n}}}"
        found = [word.replace(part, str(scale.rounds // n)) for word in found]
    return found


def _data(cell: Cell, data: Path, out: Path) -> Words:
    if cell.data == "table":
        return (
            "data=table", override("data.root", str(out / TABLE)), "data.file=points.csv",
            "data.label=class", "data.standardise=true",
        )  # fmt: skip
    if cell.data == "cifar10" and (out / IMAGES).exists():
        return "data=image_folder", override("data.root", str(out / IMAGES / "cifar10"))
    return f"data={cell.data}", override("data.root", str(data))


def _network(cell: Cell, *, mixture: bool) -> Words:
    """Return the network: in a mixture, each component is the network of the other methods."""
    path = "fl_app.client.networks."
    if cell.data == "table":
        one: Words = (f"network.of={path}mlp", "network.settings.hidden=[32]")
        return ("network=mixture", *one) if mixture else ("network=mlp", "network.hidden=[32]")
    if not mixture:
        return "network=small_cnn", "network.width=0.5"
    return ("network=mixture", f"network.of={path}small_cnn", "~network.settings.hidden",
            "+network.settings.width=0.5")  # fmt: skip


def _schedule(cell: Cell, scale: Scale) -> Words:
    """Return sizes and changes: the last clients never come, and others join or drift half-way."""
    half, after = scale.rounds // 2 + 1, scale.rounds + 1
    joins = [half, after] if cell.change == "newcomers" else [after]
    clients = scale.clients + UNSEEN + JOIN * (len(joins) - 1)
    found = [
        f"rounds={scale.rounds}", f"population.clients={clients}",
        f"population.train_samples={scale.train_samples}",
        f"population.test_samples={scale.test_samples}",
        f"population.dynamics.join_rounds={joins}".replace(" ", ""),
    ]  # fmt: skip
    if cell.change == "drift":
        kind = "labels" if cell.shift == "quantity_skew" else "group"
        drifters = max(1, scale.clients // 5)
        found += [f"population.dynamics.drifters={drifters}",
                  f"population.dynamics.drift_rounds=[{half}]",
                  f"population.dynamics.drift={kind}"]  # fmt: skip
    return tuple(found)
