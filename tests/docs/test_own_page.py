"""docs/own.md, typed as it stands: from an empty folder to a report."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))
import door

from fl_app.records.models import read_models

pytestmark = pytest.mark.waits

PAGE = Path(__file__).parents[2] / "docs" / "own.md"
BLOCK = re.compile(r'```(bash|python|yaml)(?: title="([^"]+)")?\n(.*?)```', re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a user who has done what the page says."""
    here = tmp_path_factory.mktemp("own")
    for kind, title, text in BLOCK.findall(PAGE.read_text("utf-8")):
        if kind != "bash":
            (here / title).parent.mkdir(parents=True, exist_ok=True)
            (here / title).write_text(text)
            continue
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("cd "):
                here = here / line.removeprefix("cd ")
            else:
                _type(line, here)
    return here


def _type(line: str, here: Path) -> None:
    """Run a line of the page in a folder."""
    if line.startswith("fl-app "):
        done = door.run(*shlex.split(line)[1:], cwd=here)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}
        words = ["bash", "-euc", line]
        done = subprocess.run(
            words, cwd=here, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def _accuracy(folder: Path) -> float:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"]["f1"]["mean"] == pytest.approx(summary["accuracy"]["mean"], abs=0.1)
    return float(summary["accuracy"]["mean"])


def test_the_clustered_wards_are_right_and_one_model_guesses(folder: Path) -> None:
    assert _accuracy(folder / "runs" / "flic") > 0.85
    assert _accuracy(folder / "runs" / "fedavg") < 0.65
    assert (folder / "runs" / "flic" / "report.html").stat().st_size > 10_000


def test_the_simulation_gives_the_same_models(folder: Path) -> None:
    ours, theirs = (read_models(folder / "runs" / name) for name in ("flic", "simulation"))
    assert len(ours) == len(theirs) == 2
    for one, other in zip(ours, theirs, strict=True):
        for name in one:
            np.testing.assert_allclose(one[name], other[name], atol=1e-5)
