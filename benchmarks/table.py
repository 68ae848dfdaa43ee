"""The page into which each benchmark writes its own section, and its command line."""

import argparse
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import torch

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Each section is written by the command that it names:
[how to run them](../benchmarks/README.md).
"""
MACHINE = re.compile(r"\d+ \w+ cores, torch [\w.+]*\w(?:, NVIDIA [\w -]*\w)?")
"""What `machine` returns."""


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help has the lines of `about` as they are, with the commands in it."""
    return argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def write_section(title: str, command: str, lines: Sequence[str], *, on: str | None = None) -> None:
    """Put the section `title` into the page, in place of what an earlier run wrote there.

    `on` is what it was measured on; None: this machine.
    """
    whole = PAGE.read_text() if PAGE.exists() else HEAD
    body = "\n".join([f"## {title}", "", f"`{command}`, on {on or machine()}.", "", *lines, ""])
    sections = re.split(r"(?m)^(?=## )", whole)
    kept = [part for part in sections if not part.startswith(f"## {title}\n")]
    place = next((i for i, p in enumerate(sections) if p.startswith(f"## {title}\n")), len(kept))
    kept.insert(place, body)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(part.rstrip("\n") + "\n" for part in kept))
    print(body)


def machine() -> str:
    """Say what was measured on, without naming the machine."""
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{os.cpu_count()} {platform.machine()} cores, torch {torch.__version__}{device}"


def as_measured(text: str, page: Path) -> str:
    """Return the text of a page of results that were there, with the machine that it named before.

    Without such a page the text is as given.
    """
    former = MACHINE.search(page.read_text(encoding="utf-8")) if page.exists() else None
    return text.replace(machine(), former[0]) if former else text


def row(*cells: object) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def header(*names: str) -> list[str]:
    """Return the two first rows of a table."""
    return [row(*names), row(*["---"] * len(names))]


def put_rows(
    page: Path, rows: Sequence[str], head: Sequence[str] | None = None, *, key: int = 1
) -> None:
    """Put rows into the table that ends a page, each in place of that with its `key` first cells.

    `head` is what the page has above its rows from now on. Raises ValueError if the page was
    written on another machine or with another version of torch.
    """
    lines = page.read_text().splitlines()
    if f"on {machine()}" not in page.read_text():
        raise ValueError(f"{page} must be of {machine()}; measure all of its rows again")
    first = next(at for at, line in enumerate(lines) if line.startswith("| --- |")) + 1
    found = {tuple(line.split(" | ")[:key]): line for line in (*lines[first:], *rows)}
    page.write_text("\n".join([*(head or lines[:first]), *found.values()]) + "\n")
