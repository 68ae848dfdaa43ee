"""What README says of a method agrees with the pages that it links."""

import re
from pathlib import Path

import pytest
import yaml

from fl_app.config import CONF

REPO = Path(__file__).parents[2]
LINK = re.compile(r"\]\((docs/[^)#]+\.md)")
FIGURE = re.compile(r"(?<![\w.])\d\.\d+")
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


@pytest.mark.parametrize("strategy", JUDGED)
def test_the_page_of_a_method_tells_that_it_is_judged(strategy: str) -> None:
    pages = [page.read_text() for page in (REPO / "docs" / "methods").glob("*.md")]
    (page,) = [page for page in pages if f"<!-- settings: strategy={strategy} -->" in page or
               (strategy == "fedrc" and "<!-- settings: strategy=fedem -->" in page)]  # fmt: skip
    assert "`fallback=auto`" in page
