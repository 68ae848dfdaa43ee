"""The documentation builds without a warning and fetches nothing when it is read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FETCHED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?https?://[^\s>]*""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert FETCHED.findall(page.read_text()) == [], page


def test_generated_parts_are_filled_in(site: Path) -> None:
    flic = (site / "methods" / "flic.html").read_text()
    assert "strategy.stability_tolerance" in flic
    assert 'href="../results/flic_mnist.html"' in flic
    assert "data:image/png;base64," in (site / "notebooks" / "a_run.html").read_text()
    assert (
        "fl_app.graph.similarity.trusted_distance"
        in (site / "reference" / "numerics.html").read_text()
    )
    assert "<!-- settings" not in "".join(page.read_text() for page in site.rglob("*.html"))


def test_the_search_works_in_pages_that_are_read_from_the_disk(site: Path) -> None:
    assert "__index" in (site / "search" / "search_index.js").read_text()[:200]
    assert (site / "iframe-worker.js").exists()
    for page in ("index.html", "methods/flic.html"):
        (source,) = re.findall(r'src="([^"]*iframe-worker.js)"', (site / page).read_text())
        assert (site / page).parent.joinpath(source).resolve() == (site / "iframe-worker.js")
