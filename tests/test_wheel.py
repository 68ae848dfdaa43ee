"""The wheel, installed where nothing of the checkout is."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent


def _run(*command: str | Path, cwd: Path) -> str:
    quiet = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd, env=quiet, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    _run(*pip, "--wheel-dir", folder, REPO, cwd=folder)
    (found,) = folder.glob("fl_app-*.whl")
    return found


def test_it_puts_one_package_into_an_environment(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"fl_app", f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info"}
    wanted = {path.relative_to(REPO).as_posix() for path in (REPO / "conf").rglob("*.yaml")}
    assert {f"fl_app/{name}" for name in wanted} <= set(names)


def test_a_fresh_environment_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    _run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel,
         cwd=tmp_path)  # fmt: skip
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # what the wheel needs comes from here: gigabytes that need no second copy
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"))
    found = _run(python, "-c", "import fl_app.config as c; print(c.CONF)", cwd=empty)
    assert Path(found.strip()) == packages / "fl_app" / "conf"
    small = ["rounds=2", "population.clients=4", "population.groups=2", "network.width=4"]
    small += ["strategy=fedavg", "records.figures=false", f"hydra.run.dir={tmp_path / 'run'}"]
    told = _run(environment / "bin" / "fl-app", *small, cwd=empty)
    assert "completed: fedavg on inprocess, 2 rounds" in told
    assert (tmp_path / "run" / "report.html").exists()
    assert list(empty.iterdir()) == []
