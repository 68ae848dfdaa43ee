"""What functions of a run's modules import when they run is the run's too."""

import copy
import json
import pickle
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from fl_app.own_sources import imports_late
from fl_app.records.models import FILE as MODELS
from fl_app.use import commands
from fl_app.use.export import samples
from fl_app.use.run import FinishedRun, load_run
from fl_app.use.run_modules import RunModules

NETWORK = """
from dataclasses import dataclass
import numpy as np
from torch import nn
from fl_app.data.preparation import Preparation

class Late(nn.Module):
    def forward(self, x):
        from late_tools import factor
        return factor * x

def build(shape, classes):
    return Late()

@dataclass(frozen=True)
class Prepared(Preparation):
    reads = "arrays"
    def arrays(self, given):
        from late_tools import factor
        return (factor * given).astype(np.float32)
"""


def run_with(digits_run: Path, folder: Path, factor: int) -> FinishedRun:
    """Return a run whose network and preparation multiply by a factor of another module."""
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "late_net.py").write_text(NETWORK)
    (folder / "project" / "late_tools.py").write_text(f"factor = {factor}\n")
    parts = {"network": "late_net.build", "preprocess": "late_net.Prepared"}
    changed = {name: {"_target_": target} for name, target in parts.items()}
    content = json.loads((digits_run / "serving.json").read_text()) | changed
    (folder / "serving.json").write_text(json.dumps(content))
    shutil.copy(digits_run / MODELS, folder)
    return load_run(folder)


@pytest.fixture
def runs(digits_run: Path, tmp_path: Path) -> Iterator[list[FinishedRun]]:
    """Return two runs whose modules have the same names and other contents."""
    yield [run_with(digits_run, tmp_path / str(factor), factor) for factor in (2, 3)]
    for name in ("late_net", "late_tools"):
        sys.modules.pop(name, None)


def test_a_network_computes_with_the_modules_of_its_run(
    runs: list[FinishedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = ModuleType("late_tools")
    stranger.factor = 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "late_tools", stranger)
    path, networks = list(sys.path), [run.network() for run in runs]
    for _ in range(2):
        assert [float(each(torch.ones(1))) for each in networks] == [2, 3]
        assert [float(run.preprocess(np.ones(1))) for run in runs] == [2, 3]
    assert sys.modules["late_tools"] is stranger
    assert sys.path == path
    assert float(copy.deepcopy(networks[0])(torch.ones(1))) == 2


def test_the_network_of_a_run_can_be_stored_and_exported(runs: list[FinishedRun]) -> None:
    run = runs[0]
    network, inputs = run.network(), samples(run, 3)
    assert torch.equal(pickle.loads(pickle.dumps(network))(inputs), 2 * inputs)
    held = torch.export.export(network, (inputs,)).module()
    assert torch.equal(held(inputs), 2 * inputs)


def test_a_command_finds_the_modules_of_the_run_before_others(
    runs: list[FinishedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "late_tools.py").write_text("factor = 7\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    commands._loaded(runs[1].folder)
    from late_tools import factor  # type: ignore[import-not-found]

    assert factor == 3


@pytest.mark.parametrize(
    ("code", "late"),
    [
        ("import tools", False),
        ("def call():\n    import tools.deep", True),
        ("class Net:\n    def forward(self, x):\n        from tools import deep", True),
        ("def call():\n    from . import tools", True),
        ("def call():\n    importlib.import_module('tools')", True),
        ("def call():\n    import numpy", False),
    ],
)
def test_imports_inside_of_functions_are_found(tmp_path: Path, code: str, late: bool) -> None:
    (tmp_path / "one.py").write_text(code)
    assert imports_late(tmp_path / "one.py", ["tools"]) is late


def test_a_network_whose_functions_import_nothing_is_as_its_class_made_it(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("import os\n")
    network = nn.Linear(1, 1)
    RunModules(tmp_path).bind(network, "forward")
    assert "forward" not in vars(network)
