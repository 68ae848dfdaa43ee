"""The page on the use of models is run as it stands there, in its order."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fl_app import main, one_run
from fl_app.use.commands import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "use.md").read_text()
BLOCKS = re.findall(r"```(python|bash)[^\n]*\n(.*?)```", PAGE, re.DOTALL)
QUICK = ["client.threads=1", "records.figures=false", "records.report=false", "tracking=none"]


def _commands(block: str) -> list[list[str]]:
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] != "fl-app":
        subprocess.run(words, check=True)
        return
    trains = words[1] not in main.COMMANDS
    given = [*words[1:], *(QUICK if trains else [])]
    if trains and not words[1].startswith("resume="):
        folder = next(each for each in given if each.startswith("hydra.run.dir="))
        given.remove(folder)
        one_run.run(given, Path(folder.partition("=")[2]))
        return
    monkeypatch.setattr(sys, "argv", ["fl-app", *given])
    main.main()


def test_the_page_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "use.md", "exec"), {"__name__": "__main__"})
        else:
            for words in _commands(block):
                _run(words, monkeypatch)
    said = capsys.readouterr().out
    assert "largest difference from round 6 as recorded: 0.0e+00" in said
    assert "60 predictions in predictions.csv" in said
    assert "differs from PyTorch by at most" in said
    assert (tmp_path / "exported" / "model_card.md").exists()
    assert (tmp_path / "models" / "community_1" / "1" / "model.onnx").exists()
    assert (tmp_path / "personal" / "models.safetensors").exists()


def test_every_command_on_a_run_is_on_the_page() -> None:
    assert all(f"fl-app {command} " in PAGE for command in COMMANDS)
