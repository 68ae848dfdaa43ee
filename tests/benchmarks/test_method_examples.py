"""Tables of examples that are written into the pages of methods."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from method_examples import EXAMPLES, PAGES, put


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_table_replaces_the_one_of_its_page_and_nothing_else(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shutil.copy(PAGES / f"{name}.md", page)
    whole = page.read_text().splitlines()
    put(page, ["| a |", "| --- |", "| 1 |"])
    left = page.read_text().splitlines()
    table = [line for line in whole if line not in left]
    assert len(table) == 2 + len(EXAMPLES[name].rows)
    put(page, table)
    assert page.read_text().splitlines() == whole


def test_a_page_without_a_place_for_a_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# Page\n")
    with pytest.raises(ValueError, match=r"page\.md must have the line"):
        put(tmp_path / "page.md", [])
