"""The page on when `auto` clusters."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import auto_cluster_round as page


def test_without_the_runs_on_mnist_the_page_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--mnist", str(tmp_path), "--out", str(tmp_path)])
    monkeypatch.setattr(page, "digits", lambda *_: pytest.fail("a run was started"))
    before = page.TABLE.read_text()
    with pytest.raises(SystemExit, match=r"flic_mnist.py, got .* without a run; the page stays"):
        page.main()
    assert page.TABLE.read_text() == before
