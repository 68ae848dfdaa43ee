"""What README and the pages say agrees with the results that they link."""

import re
from pathlib import Path

import pytest
import yaml

from fl_app import former_run
from fl_app.composition import CONF
from fl_app.records.audit import FILE as AUDIT
from fl_app.records.names import OVERRIDES
from fl_app.records.run_state import FILE as RUN_STATE

REPO = Path(__file__).parents[2]
LINK = re.compile(r"\]\((docs/[^)#]+\.md)")
FIGURE = re.compile(r"(?<![\w.])\d\.\d+")
PLAIN = re.compile(r"(?<![\w.=])\d+\.\d+(?![\d.])")
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
INNER = re.compile(r"\]\(([^)#]+\.md)")
CELLS = [
    cell
    for cell in re.findall(r"[^|\n]+", (REPO / "README.md").read_text())
    if LINK.search(cell) and FIGURE.search(LINK.sub("", cell))
]
JUDGED = sorted(
    path.stem
    for path in (CONF / "strategy").glob("*.yaml")
    if "fallback" in yaml.safe_load(path.read_text())
)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.strip()[:40])
def test_a_figure_is_one_of_the_linked_pages_rounded(cell: str) -> None:
    linked = " ".join((REPO / page).read_text() for page in LINK.findall(cell))
    known = [float(figure) for figure in FIGURE.findall(linked)]
    for figure in FIGURE.findall(LINK.sub("", cell)):
        digits = len(figure.partition(".")[2])
        assert figure in {f"{each:.{digits}f}" for each in known}


def test_figures_are_checked() -> None:
    assert len(CELLS) > 8


UNMEASURED = {"deployment.md": {"10.1", "13.2"}, "index.md": {"0.11"}}
"""Versions of packages, and what no page of results has a row for."""


def test_a_figure_beside_a_link_to_results_is_one_of_them() -> None:
    wrong, seen = [], 0
    for page in [*(REPO / "docs").glob("*.md"), *(REPO / "docs" / "methods").glob("*.md")]:
        for part in re.split(r"\n\s*\n|\n- |\n\d+\. ", page.read_text()):
            links = [link for link in INNER.findall(part) if "results/" in link]
            links = [link for link in links if (page.parent / link).exists()]  # index.md is built
            linked = " ".join((page.parent / link).read_text() for link in links)
            known = [float(each) for each in NUMBER.findall(linked.replace(",", ""))]
            told = set(PLAIN.findall(re.sub(r"\]\([^)]*\)", "", part))) if links else set()
            for figure in told - UNMEASURED.get(page.name, set()):
                half = 0.501 * 10.0 ** -len(figure.partition(".")[2])
                seen += 1
                if all(abs(float(figure) - each) > half for each in known):
                    wrong.append((page.name, figure, links))
    assert not wrong
    assert seen > 20


@pytest.mark.parametrize("strategy", JUDGED)
def test_the_page_of_a_method_tells_that_it_is_judged(strategy: str) -> None:
    pages = [page.read_text() for page in (REPO / "docs" / "methods").glob("*.md")]
    (page,) = [page for page in pages if f"<!-- settings: strategy={strategy} -->" in page or
               (strategy == "fedrc" and "<!-- settings: strategy=fedem -->" in page)]  # fmt: skip
    assert "`fallback=auto`" in page or "`fallback=true`" in page


def test_the_tour_names_every_file_of_an_output_folder() -> None:
    tour = (REPO / "docs" / "tour.md").read_text()
    rows = [row for row in tour.splitlines() if row.startswith("| `")]
    told = {name.strip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)}
    others = {OVERRIDES, RUN_STATE, AUDIT, "run.log", "flower.log"}
    assert {*former_run.REPLACED, *others} <= told
