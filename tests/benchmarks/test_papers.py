"""The page that sets our results beside the figures of papers."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import papers as page
from method_cells import METHODS, cell_named, cells
from method_guide import Entry

PAPERS = json.loads(page.PAPERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "paper", PAPERS, ids=[f"{p['method']} {p['setting'][:20]}" for p in PAPERS]
)
def test_each_paper_has_a_source_and_methods_of_ours(paper: dict[str, object]) -> None:
    named = {*(paper["figures"] or paper["against"]), paper["method"]}  # type: ignore[misc]
    assert named <= ({*page.PERSONAL} if paper["cells"] is None else {*METHODS})
    assert named & {"fedavg", "ifca"}
    assert paper["source"]
    assert paper["differs"]
    assert paper["cells"] is None or cells([str(paper["cells"])])


def test_each_method_from_another_paper_is_on_the_page() -> None:
    named = {each["method"] for each in PAPERS} | {n for p in PAPERS for n in p["figures"] or ()}
    assert {"flux", "fedem", "fedrc", "feddrift", "pacfl", "fedgwc", "ditto", "fedper",
            "fedrep"} <= named  # fmt: skip


def test_pairs_in_the_same_order_are_counted() -> None:
    paper = {"a": 3.0, "b": 2.0, "c": 1.0}
    assert page.same_order(paper, {"a": 9.0, "b": 8.0, "c": 7.0}) == (3, 3)
    assert page.same_order(paper, {"a": 8.0, "b": 9.0, "c": 7.0}) == (2, 3)
    assert page.same_order(paper, {"b": 1.0, "c": 2.0}) == (0, 1)


def test_our_figures_are_means_over_cells_in_which_a_method_has_values() -> None:
    first, second = (cell_named(f"mnist/{s}/full/static") for s in ("rotation", "label_swap"))
    every = {
        (first, "flux"): Entry({"accuracy": [0.5, 0.7]}),
        (second, "flux"): Entry({"accuracy": [0.8]}),
        (first, "ifca"): Entry({"accuracy": [0.9]}),
    }
    found = page.in_cells(every, "mnist/*/full/static", "accuracy")
    assert found == {"flux": pytest.approx(70.0)}
    assert page.gain("flux", {"fedavg": 60.0, "flux": 70.0}) == "+10.0"
    assert page.gain("flux", {"ifca": 75.0, "flux": 70.0}) == "-5.0"
