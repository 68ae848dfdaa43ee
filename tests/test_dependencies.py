"""What fl_app imports stands in pyproject.toml, and is no gift of another package."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
EXTRAS = {
    "flwr-datasets": "hub",
    "mlflow": "mlflow",
    "onnxruntime": "onnx",
    "pandas": "mlflow",  # the served model has the form of MLflow
    "pyarrow": "parquet",
    "pytest": "dev",  # of the contract tests
}
"""Packages that only some users need, each with the extra that installs it."""

IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import\b|import (\w+))", re.M)
"""A line that imports, and the top-level module that it imports from, in one of two groups."""


def _imported() -> set[str]:
    """Return the top-level modules that the package imports anywhere, without the template's."""
    found = set()
    for file in (REPO / "fl_app").rglob("*.py"):
        if (REPO / "fl_app" / "template") in file.parents:
            continue
        for pair in IMPORT.findall(file.read_text("utf-8")):
            found |= {*pair} - {""}
    return found - set(sys.stdlib_module_names) - {"fl_app"}


def _declared(lines: list[str]) -> set[str]:
    """Return the names of requirements, and of what the extras in their brackets install."""
    found = set()
    for each in map(Requirement, lines):
        found.add(canonicalize_name(each.name))
        inside = [Requirement(line) for line in requires(each.name) or ()] if each.extras else []
        for extra in each.extras:
            found |= {
                canonicalize_name(one.name)
                for one in inside
                if one.marker is not None and f'extra == "{extra}"' in str(one.marker)
            }
    return found


def test_each_imported_package_is_a_dependency_or_in_its_extra() -> None:
    known, always = packages_distributions(), _declared(PROJECT["dependencies"])
    missing = {}
    for module in _imported():
        names = {canonicalize_name(each) for each in known.get(module, [module])}
        if not names & always:
            missing[module] = names
    extras = PROJECT["optional-dependencies"]
    undeclared = {
        module: names
        for module, names in missing.items()
        if not any(name in _declared(extras[EXTRAS[name]]) for name in names & set(EXTRAS))
    }
    assert undeclared == {}
    assert set(EXTRAS) <= set().union(*missing.values())  # none is listed in vain


def test_the_tested_versions_are_in_the_declared_ranges() -> None:
    lines = [each for each in (REPO / "constraints.txt").read_text().splitlines() if "==" in each]
    pins = {canonicalize_name(pin.name): pin.specifier for pin in map(Requirement, lines)}
    declared = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    wrong = [
        line
        for line in sorted({line for lines in declared for line in lines})
        for pin in pins.get(canonicalize_name(Requirement(line).name), ())
        if pin.version not in Requirement(line).specifier
    ]
    assert wrong == []
