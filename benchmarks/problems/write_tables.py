"""Writes tables of eight hospitals, of eight clinics, and of docstrings, from what is embedded.

python write_tables.py <folder>
"""

import ast
import csv
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes

SITES = 8
PACKAGES = ("asyncio", "email", "importlib", "unittest")
LONGEST = 400
"""Characters of a docstring that are written."""


def write(path: Path, names: Sequence[str], rows: Iterator[Sequence[object]]) -> None:
    """Write a CSV table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def hospitals() -> Iterator[Sequence[object]]:
    """Yield rows of the breast cancer table; odd hospitals code the diagnosis the other way."""
    found = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(found.data))
    for place, row in enumerate(order):
        site = place % SITES
        outcome = found.target[row] if site % 2 == 0 else 1 - found.target[row]
        yield f"hospital {site}", *found.data[row], int(outcome)


def clinics() -> Iterator[Sequence[object]]:
    """Yield rows of the diabetes table; odd clinics count the progression from the other end."""
    found = load_diabetes()
    order = np.random.default_rng(0).permutation(len(found.data))
    scaled = (found.target - found.target.mean()) / found.target.std()
    for place, row in enumerate(order):
        site = place % SITES
        yield f"clinic {site}", *found.data[row], scaled[row] * (1 if site % 2 == 0 else -1)


def docstrings() -> Iterator[Sequence[object]]:
    """Yield the docstrings of some packages of Python's library, and the package of each."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        for file in sorted(Path(spec.origin).parent.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    text = " ".join((ast.get_docstring(node) or "").split())
                    if len(text) > 20:
                        yield text[:LONGEST], package


def main(folder: Path) -> None:
    """Write the three tables."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [each.replace(" ", "_") for each in load_breast_cancer().feature_names]
    write(folder / "hospitals.csv", ["hospital", *names, "diagnosis"], hospitals())
    names = list(load_diabetes().feature_names)
    write(folder / "clinics.csv", ["clinic", *names, "progression"], clinics())
    write(folder / "docstrings.csv", ["text", "label"], docstrings())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
