"""Disk space of an installation for clients only, compared with the complete one.

    .venv/bin/python benchmarks/client_install.py [--cpu <python>]

Counts the files of the installed packages that each needs. `--cpu` is the interpreter of an
environment that was created from requirements-client.txt with torch without CUDA.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from table import REPO, arguments, header, row, write_section

CLIENT = REPO / "requirements-client.txt"


def packages(requirements: Iterable[str]) -> set[str]:
    """Return the names of the installed packages that the requirements need, at any depth."""
    found: set[str] = set()
    todo = [(Requirement(each), "") for each in requirements]
    seen: set[tuple[str, str]] = set()
    while todo:
        wanted, asked_for = todo.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": asked_for}):
            continue
        name = canonicalize_name(wanted.name)
        for extra in ("", *wanted.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found.add(name)
            todo += [(Requirement(each), extra) for each in distribution(name).requires or ()]
    return found


def megabytes(names: Iterable[str]) -> float:
    """Return the size of the files of installed packages."""
    files = {Path(str(file.locate())) for name in names for file in distribution(name).files or ()}
    return sum(file.stat().st_size for file in files if file.is_file()) / 2**20


def measure(requirements: list[str]) -> tuple[int, float, str]:
    """Return number and megabytes of the packages needed here, and the version of torch."""
    names = packages(requirements)
    return len(names), megabytes(names), distribution("torch").version


def elsewhere(python: str, requirements: list[str]) -> tuple[int, float, str]:
    """Return what another interpreter measures."""
    words = [python, __file__, "--measure", json.dumps(requirements)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    count, size, torch = json.loads(done.stdout)
    return count, size, torch


def main() -> None:
    """Measure the installations and write the section."""
    parser = arguments(__doc__)
    parser.add_argument("--cpu", help="interpreter of a client's environment without CUDA")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(json.loads(options.measure))))
        return
    lines = CLIENT.read_text().splitlines()
    client = [line for line in lines if line and not line.startswith("#")]
    whole = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["dependencies"]
    found = {"whole": measure(whole), "client": measure(client)}
    if options.cpu:
        found["client, torch without CUDA"] = elsewhere(options.cpu, client)
    table = header("installation", "packages", "MB", "torch")
    table += [row(k, count, f"{size:,.0f}", torch) for k, (count, size, torch) in found.items()]
    command = "benchmarks/client_install.py" + (" --cpu <python>" if options.cpu else "")
    write_section("Installing a client", command, table)


if __name__ == "__main__":
    try:
        main()
    except PackageNotFoundError as error:
        sys.exit(f"{error}; run in an environment with the whole project, after scripts/setup")
