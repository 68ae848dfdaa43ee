"""Each process of a federation is disturbed, and the page has what was seen."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import disturbed
import faults

PARTS = [*disturbed.PARTS, "keeper", "submitting command"]
SEVERAL = {"strangers"}
"""Scenes whose lines have other names."""


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_killed_and_stopped(part: str) -> None:
    scenes = list(faults.scenes([]))
    for what in ("killed (kill -9)", "stopped for 60 s"):
        assert any(scene.startswith(f"{part} {what}") for scene in scenes)


def test_the_page_has_a_line_of_each_scene() -> None:
    page = faults.TABLE.read_text()
    missing = [each for each in faults.scenes([]) if f"\n| {each} | " not in page]
    assert set(missing) == SEVERAL
