"""Rows of a result page that are measured again."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import table


def page(folder: Path, machine: str) -> Path:
    found = folder / "page.md"
    lines = ["# Page", "", f"Written on {machine}: text", "", *table.header("what", "seen")]
    found.write_text("\n".join([*lines, "| a | 1 |", "| ab | 2 |"]) + "\n")
    return found


def test_a_row_replaces_the_one_of_its_first_cell_and_others_are_appended(tmp_path: Path) -> None:
    there = page(tmp_path, table.machine())
    table.put_rows(there, ["| c | 4 |", "| a | 3 |"])
    assert there.read_text().splitlines()[-3:] == ["| a | 3 |", "| ab | 2 |", "| c | 4 |"]
    assert there.read_text().startswith("# Page\n\nWritten on ")


def test_rows_can_be_told_apart_by_two_cells(tmp_path: Path) -> None:
    there = page(tmp_path, table.machine())
    table.put_rows(there, ["| a | x | 3 |", "| a | y | 4 |"], key=2)
    table.put_rows(there, ["| a | y | 5 |"], key=2)
    assert there.read_text().splitlines()[-2:] == ["| a | x | 3 |", "| a | y | 5 |"]


def test_the_head_can_be_new(tmp_path: Path) -> None:
    there = page(tmp_path, table.machine())
    table.put_rows(there, ["| a | 3 |"], ["# New", "", *table.header("what", "seen")])
    text = "# New\n\n| what | seen |\n| --- | --- |\n| a | 3 |\n| ab | 2 |\n"
    assert there.read_text() == text


def test_a_page_of_another_machine_is_refused(tmp_path: Path) -> None:
    there = page(tmp_path, "1 other core, torch 1.0")
    with pytest.raises(ValueError, match="measure all of its rows again"):
        table.put_rows(there, ["| a | 3 |"])


def test_a_page_of_former_results_names_the_machine_on_which_they_were_measured(
    tmp_path: Path,
) -> None:
    text, page = f"Written on {table.machine()}, which other work shared.\n", tmp_path / "page.md"
    assert table.as_measured(text, page) == text
    for former in ("2 x86_64 cores, torch 1.2.3+cu1", "8 arm cores, torch 1.2, NVIDIA H200"):
        page.write_text(f"Written on {former}, which\nother work shared.\n")
        assert table.as_measured(text, page) == f"Written on {former}, which other work shared.\n"
    page.write_text("A page without a machine.\n")
    assert table.as_measured(text, page) == text


def test_the_help_of_a_benchmark_has_its_command_on_a_line_of_its_own() -> None:
    about = "Measures.\n\n    .venv/bin/python benchmarks/one.py --out <file>\n\nContinues."
    assert f"\n\n{about}\n\n" in table.arguments(about).format_help()
    own = [
        path.name
        for path in (Path(table.__file__).parent).glob("*.py")
        if "ArgumentParser(" in path.read_text() and path.name != "table.py"
    ]
    assert own == []
