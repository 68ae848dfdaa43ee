"""The page on data of one's own is run as it stands there."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fl_app.compatibility import problems
from fl_app.config import ConfigError, load
from fl_app.one_run import run

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
COMMANDS = re.findall(r"```bash\n(scripts/run .*?)```", PAGE, re.DOTALL)
QUICK = ["client.epochs=2", "records.figures=false", "tracking=none"]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which the file of the page has been run."""
    (code,) = re.findall(r'```python title="example\.py"\n(.*?)```', PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example.py", "exec"), {"__name__": "__main__"})
    return tmp_path


def _overrides(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", " "))[1:]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.split()[1])
def test_a_command_learns_its_data(command: str, example: Path) -> None:
    run([*_overrides(command), *QUICK], example / "run")
    found = json.loads((example / "run" / "summary.json").read_text())
    assert found["status"] == "completed"
    assert found["clients"]["failed"] == found["clients"]["rejected"] == 0
    assert found["accuracy"]["mean"] > 0.6


def test_the_page_shows_each_option_for_files() -> None:
    shown = {_overrides(command)[0] for command in COMMANDS}
    assert shown == {"data=table", "data=client_files", "data=text", "data=arrays"}


def test_an_error_reads_as_the_page_shows_it(example: Path) -> None:
    path = example / "example" / "patients.csv"
    lines = path.read_text().splitlines()
    cells = lines[6].split(",")
    cells[1] = "twelve"
    lines[6] = ",".join(cells)
    path.write_text("\n".join(lines))
    (shown,) = re.findall(r"```text\n(line 7.*?)\n```", PAGE, re.DOTALL)
    with pytest.raises(ConfigError) as caught:
        load(_overrides(COMMANDS[0]), also=problems)
    said = str(caught.value).replace(f"{example}/", "")
    assert shown.replace("\n", " ") in said


def test_the_form_of_a_deployment_is_closed(example: Path) -> None:
    given = ["data.classes=[no,yes]", "+data.categories.ward=[A,B,C]", "data.exclude=[number]"]
    given += ["data=table", "data.root=example", "data.file=patients.csv", "data.label=sick"]
    given += ["data.missing=mean", "data.client=hospital", "network=mlp", "population=own"]
    load([*given, "strategy=fedavg"], also=problems)
    with pytest.raises(ConfigError, match=r"data.classes must be the same on all nodes"):
        load([*given[1:], "strategy=fedavg"], also=problems)
    shown = re.findall(r"```text\n(scripts/deploy run .*?)```", PAGE, re.DOTALL)[0]
    assert {*given[:2]} <= set(_overrides(shown.removeprefix("scripts/deploy ")))
