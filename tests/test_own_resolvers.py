"""Resolvers of OmegaConf in a file beside the options, which all processes of a run know."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "end_to_end"))
import door

from fl_app import own
from fl_app.config import ConfigError, load
from fl_app.run_config import carried


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an option whose width is computed by a resolver, which needs a module."""
    monkeypatch.setattr(own, "searched", [])
    monkeypatch.setattr(own, "_wrong", [])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conf" / "network").mkdir(parents=True)
    (tmp_path / "conf" / "network" / "wide.yaml").write_text(
        "_target_: fl_app.client.networks.small_cnn\nwidth: ${wards.width:0.5}\n"
    )
    (tmp_path / "conf" / "resolvers.py").write_text(
        "from omegaconf import OmegaConf\nimport ward_widths\n"
        "OmegaConf.register_new_resolver('wards.width', ward_widths.of, replace=True)\n"
    )
    (tmp_path / "ward_widths.py").write_text("def of(share): return float(share) / 2\n")
    yield tmp_path
    sys.modules.pop("ward_widths", None)


def test_a_resolver_computes_a_setting(folder: Path) -> None:
    own.search(folder / "conf")
    assert load(["network=wide"]).network.options["width"] == 0.25


def test_the_copy_of_a_run_has_the_resolver_and_its_module_for_other_processes(
    folder: Path, tmp_path: Path
) -> None:
    own.search(folder / "conf")
    composed = carried("network=wide")
    own.keep(load(["network=wide"]).resolved, folder / "project")
    assert (folder / "project" / "ward_widths.py").exists()
    script = (
        "from pathlib import Path; from fl_app import own; own.use(Path('project'))\n"
        "from fl_app.run_config import load_text\n"
        f"for composed in ('', {composed!r}):\n"
        "    print(load_text('network=wide', composed, on_client=True).network.options)\n"
    )
    (folder / "elsewhere").mkdir()
    (folder / "project").rename(folder / "elsewhere" / "project")
    done = door.run(door.SCRIPT, script, cwd=folder / "elsewhere")
    assert done.stdout == 2 * "{'width': 0.25}\n", done.stderr
    assert json.loads(composed)["tree"]["network"]["width"] == "${wards.width:0.5}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "resolvers.py must register resolvers of OmegaConf, got ZeroDivisionError: div"),
        ("", r"network.width must have a value .*Unsupported interpolation type wards.width"),
    ],
)
def test_a_resolver_that_is_not_there_is_one_sentence(folder: Path, text: str, said: str) -> None:
    from omegaconf import OmegaConf

    OmegaConf.clear_resolver("wards.width")
    (folder / "conf" / "resolvers.py").write_text(text)
    own.search(folder / "conf")
    with pytest.raises(ConfigError, match=said):
        load(["network=wide"])


def test_the_example_of_the_documentation_computes_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "searched", [])
    page = Path(__file__).parents[1] / "docs" / "extend" / "index.md"
    shown = re.findall(r'```\w+ title="(conf/\S+)"\n(.*?)```', page.read_text(), re.DOTALL)
    for name, text in shown:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    own.search(tmp_path / "conf")
    assert load(["network=narrow"]).network.options == {"hidden": [32]}
