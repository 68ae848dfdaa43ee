"""The app in one file of a bundle: what is in it, and that a node unpacks it once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.cli.install import install_from_fab
from flwr.supercore.object_ref import validate

from fl_app.composition import CONF
from fl_app.engines import unpack
from fl_app.engines.bundle import packed_folder


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle of two files as Flower installs it; `project` is what a user brings."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder = tmp_path / "bundle"
    folder.mkdir()
    texts = {"an_app/__init__.py": "", "an_app/näme.py": "x = 'é'\n"}
    (folder / unpack.PACKED).write_text(json.dumps(texts), "utf-8")
    return folder


def test_flower_installs_few_files_from_which_the_app_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fl_app.records.environment.git_commit", lambda: "2ab4-dirty")
    (tmp_path / "project" / "conf").mkdir(parents=True)
    (tmp_path / "project" / "unpack.py").write_text("made = 1\n")
    (tmp_path / "project" / "conf" / "mine.yaml").write_text("a: 1\n")
    with packed_folder(CONF, tmp_path / "project") as app:
        built = build_fab_from_disk(app)
    installed = install_from_fab(built, install_dir=tmp_path / "home", skip_prompt=True)
    assert {each.name for each in installed.iterdir()} == {
        "app.json", "pyproject.toml", "fl_app_start_client_app.py", "fl_app_start_server_app.py",
    }  # fmt: skip
    for each in ("client", "server"):
        assert validate(f"fl_app_start_{each}_app:app", project_dir=installed) == (True, None)
    code = "import fl_app_start_client_app as c, fl_app.config as f, unpack; "
    code += "from fl_app.records import git_commit; "
    code += "print(c.app, git_commit(), unpack.made, f.CONF)"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(installed)!r}); {code}"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "ClientApp object" in told
    assert told.split()[-3] == "2ab4-dirty"
    assert told.split()[-2] == "1"  # the user's module, not one of the bundle
    assert told.split()[-1] == str(installed / "unpacked" / "conf")
    unpacked = installed / unpack.UNPACKED
    assert (unpacked / "project" / "conf" / "mine.yaml").read_text() == "a: 1\n"
    for path in (CONF / "config.yaml", Path(unpack.__file__)):
        copy = unpacked / path.relative_to(CONF.parent)
        assert copy.read_bytes() == path.read_bytes()


def test_an_app_is_unpacked_once(bundle: Path) -> None:
    unpack.use(bundle)
    unpacked = bundle / unpack.UNPACKED
    (unpacked / "an_app" / "__init__.py").write_text("kept = True\n")
    unpack.use(bundle)
    assert sys.path.count(str(unpacked)) == 1
    assert (unpacked / "an_app" / "__init__.py").read_text() == "kept = True\n"
    assert (unpacked / "an_app" / "näme.py").read_text("utf-8") == "x = 'é'\n"


def test_of_two_processes_that_unpack_at_once_one_wins(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = Path.rename

    def late(made: Path, folder: Path) -> Path:
        (folder / "an_app").mkdir(parents=True)
        return renamed(made, folder)

    monkeypatch.setattr(Path, "rename", late)
    unpack.use(bundle)
    assert {each.name for each in bundle.iterdir()} == {unpack.PACKED, unpack.UNPACKED}


def test_an_app_that_cannot_be_unpacked_leaves_nothing(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(made: Path, folder: Path) -> Path:
        raise OSError("no room")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="no room"):
        unpack.use(bundle)
    assert {each.name for each in bundle.iterdir()} == {unpack.PACKED}
