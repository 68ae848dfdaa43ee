"""The small examples on the pages of methods: runs them, and writes their tables into docs/methods.

    .venv/bin/python benchmarks/method_examples.py [page ...]

Without a name, all pages that have examples are written. Each row is a run of its own, with the
settings of the command that the page shows.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs import run
from summaries import summary_of
from table import REPO, arguments, header, row

from fl_app.client_app import app

PAGES = REPO / "docs" / "methods"
MARK = "<!-- The table is written by benchmarks/method_examples.py. -->"
Summary = Mapping[str, Any]


def _spread(found: Summary) -> str:
    return f"{found['accuracy']['mean']:.3f} ± {found['accuracy']['std']:.3f}"


def _communities(found: Summary, name: str, form: str) -> str:
    """Return a value of the communities; empty for a method with one model for all."""
    value = (found["communities"] or {}).get(name)
    return "" if value is None else format(value, form)


def _sizes(found: Summary) -> str:
    return ", ".join(map(str, (found["communities"] or {}).get("sizes") or ()))


COLUMNS: dict[str, Callable[[Summary], str]] = {
    "accuracy": lambda found: f"{found['accuracy']['mean']:.3f}",
    "accuracy ± deviation": _spread,
    "communities": lambda found: _communities(found, "count", "d"),
    "sizes of the communities": _sizes,
    "models in use": lambda found: _communities(found, "count", "d") or "1",
    "ARI": lambda found: _communities(found, "ari", ".2f"),
}


@dataclass(frozen=True)
class Example:
    """A table: the names of its first columns, then measures; rows of first cells and settings."""

    names: tuple[str, ...]
    measures: tuple[str, ...]
    settings: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    def lines(self) -> list[str]:
        """Return the table, a run for each row."""
        found = header(*self.names, *self.measures)
        for cells, words in self.rows:
            told = summary([*self.settings, *words])
            found.append(row(*cells, *(COLUMNS[name](told) for name in self.measures)))
            print(found[-1], flush=True)
        return found


def summary(words: Sequence[str]) -> Summary:
    """Run a configuration and return its summary."""
    with tempfile.TemporaryDirectory() as folder:
        run([*AS_TYPED, *words], Path(folder) / "run", app)
        return summary_of(Path(folder) / "run")


FEW = ("population.train_samples=100", "population.test_samples=25", "data=digits",
       "client.learning_rate=0.1")  # fmt: skip
SWAPS = ("population=label_swap", "population.clients=12", *FEW)
TURNED = ("population=rotation", "population.clients=12", *FEW)
MIXED = "network=mixture"
AS_TYPED = ("fallback=auto", "graph.contrast=auto")
"""The defaults, which the commands on the pages have, unlike other benchmarks."""
KINDS = ("none", "ditto", "fedper", "fedrep")
CLASSES = ("strategy.signature=classes", "strategy.threshold=20")
EXAMPLES = {
    "personal": Example(
        ("strategy", "`personal`"), ("accuracy ± deviation", "communities", "ARI"),
        ("population.clients=9", "rounds=12"),
        (
            *((("`fedavg`", f"`{kind}`"), ("strategy=fedavg", f"personal={kind}"))
              for kind in KINDS),
            *((("`flic`, clusters after round 6", f"`{kind}`"),
               ("strategy=flic", "strategy.cluster_round=6", f"personal={kind}"))
              for kind in KINDS),
        ),
    ),
    "fedem": Example(
        ("groups", "rounds", "method"), ("accuracy", "sizes of the communities", "ARI"), (),
        (
            (("3 label swaps", "40", "`fedavg`"),
             (*SWAPS, "strategy=fedavg", "network=mlp", "rounds=40")),
            (("3 label swaps", "40", "`fedem`"), (*SWAPS, "strategy=fedem", MIXED, "rounds=40")),
            (("3 label swaps", "40", "`fedrc`"), (*SWAPS, "strategy=fedrc", MIXED, "rounds=40")),
            (("4 rotations", "15", "`fedavg`"),
             (*TURNED, "strategy=fedavg", "network=mlp", "rounds=15")),
            (("4 rotations", "15", "`fedem`"), (*TURNED, "strategy=fedem", MIXED, "rounds=15")),
            (("4 rotations", "15", "`fedrc`"), (*TURNED, "strategy=fedrc", MIXED, "rounds=15")),
            (("4 rotations", "40", "`fedem`"), (*TURNED, "strategy=fedem", MIXED, "rounds=40")),
        ),
    ),
    "feddrift": Example(
        ("method",), ("accuracy", "models in use"),
        ("population=iid", "population.clients=8", "population.train_samples=100",
         "population.test_samples=30", "network=mlp", "client.epochs=2",
         "client.learning_rate=0.1", "strategy.participation=1.0", "rounds=24",
         "population.dynamics.drift=labels", "population.dynamics.drifters=5",
         "population.dynamics.drift_rounds=[9,17]"),
        tuple(((f"`{name}`",), (f"strategy={name}",)) for name in ("fedavg", "ifca", "feddrift")),
    ),
    "fedgwc": Example(
        ("method",), ("accuracy", "communities", "ARI"),
        ("population=noise", "population.clients=15", "network=mlp", "client.epochs=1",
         "rounds=40"),
        tuple(((f"`{name}`",), (f"strategy={name}",)) for name in ("fedavg", "ifca", "fedgwc")),
    ),
    "pacfl": Example(
        ("groups", "method"), ("accuracy", "communities", "ARI"), ("network=mlp", "rounds=15"),
        tuple(
            ((groups, name), (*population, *words))
            for groups, population in (("4 rotations", TURNED), ("3 label swaps", SWAPS))
            for name, words in (
                ("`fedavg`", ("strategy=fedavg",)), ("`ifca`", ("strategy=ifca",)),
                ("`pacfl`", ("strategy=pacfl",)),
                ("`pacfl`, classes, threshold 20", ("strategy=pacfl", *CLASSES)),
            )
        ),
    ),
}  # fmt: skip


def put(page: Path, lines: Sequence[str]) -> None:
    """Put a table into a page in place of the one below MARK; raises ValueError without MARK."""
    before, mark, after = page.read_text().partition(f"{MARK}\n\n")
    if not mark:
        raise ValueError(f"{page} must have the line {MARK!r} above a table")
    _, _, rest = after.partition("\n\n")
    page.write_text("".join([before, mark, "\n".join(lines), "\n\n", rest]))


def main() -> None:
    """Run the examples and write their tables."""
    parser = arguments(__doc__)
    parser.add_argument("pages", nargs="*", default=[*EXAMPLES])
    for name in parser.parse_args().pages:
        put(PAGES / f"{name}.md", EXAMPLES[name].lines())


if __name__ == "__main__":
    main()
