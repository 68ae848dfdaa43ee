"""Results of a benchmark, a line of JSON each beside its page, so that a later run continues it."""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from table import REPO, arguments, as_measured

Found = dict[str, Any]
Case = tuple[Any, ...]
Measure = Callable[..., Found]


def read(log: Path) -> list[Found]:
    """Return the results of a file; the last line may be incomplete, after a power cut."""
    found = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(log: Path, result: Found) -> None:
    """Append a result; it begins a new line, whatever the last one is."""
    log.parent.mkdir(parents=True, exist_ok=True)
    torn = log.exists() and not log.read_bytes().endswith(b"\n") and log.stat().st_size > 0
    with log.open("a", encoding="utf-8") as file:
        file.write("\n" * torn + json.dumps(result) + "\n")


def by_case(found: Iterable[Found]) -> dict[Case, Found]:
    """Return the results by their cases."""
    return {tuple(each["case"]): each for each in found}


def must_be_there(log: Path, option: str) -> None:
    """Exit if a page would be written of no results, in place of those that it has."""
    if not log.exists():
        sys.exit(f"{option} needs results in {log}, which is not there; the page stays as it is")


def measure_missing(
    cases: Iterable[Case], measure: Callable[[Case], Found], log: Path, minutes: float = math.inf
) -> None:
    """Measure the cases that have no line in `log`; none is started after so many minutes."""
    until, known = time.monotonic() + 60 * minutes, by_case(read(log))
    for case in cases:
        if time.monotonic() > until:
            return
        if case not in known:
            result = {"case": list(case), **measure(case)}
            append(log, result)
            print(json.dumps(result)[:300], flush=True)


def write_page(
    about: str,
    page: Path,
    cases: Callable[[], Iterable[Case]],
    measure: Measure,
    lines: Callable[[list[Found]], Sequence[str]],
    *,
    data: bool = False,
) -> None:
    """Measure what is missing as the command line says, and write the page of all results.

    `measure(*case, out=<folder>)` returns the result of a case; with `data` the command line names
    a folder with data sets, which is passed on as `data`.
    """
    given = _parser(about, page.stem, data=data).parse_args()
    log = page.with_suffix(".jsonl")
    former = len(read(log))
    if given.measured:
        must_be_there(log, "--measured")
    if not given.measured:
        places = {"out": given.out.resolve()} | ({"data": given.data.resolve()} if data else {})
        given.out.mkdir(parents=True, exist_ok=True)
        measure_missing(cases(), lambda case: measure(*case, **places), log, given.minutes)
    found = read(log)
    text = "\n".join(lines(found)).rstrip("\n") + "\n"
    page.write_text(text if len(found) > former else as_measured(text, page), encoding="utf-8")
    print(page)


def _parser(about: str, name: str, *, data: bool) -> argparse.ArgumentParser:
    parser = arguments(about)
    either = parser.add_mutually_exclusive_group(required=data)
    if data:
        either.add_argument("--data", type=Path, help="folder with the data sets")
    either.add_argument("--measured", action="store_true", help="write what there is, run nothing")
    parser.add_argument("--out", type=Path, default=REPO / "outputs" / name, help="for the runs")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="after these no run is started"
    )
    return parser
