"""scripts/setup takes the Pythons that pyproject.toml allows, and no pin refuses one of them."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

REPO = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
ALLOWED = SpecifierSet(PROJECT["requires-python"])
(LOWEST,) = (each.version for each in ALLOWED if each.operator == ">=")
(BEYOND,) = (each.version for each in ALLOWED if each.operator == "<")
MINORS = range(int(LOWEST.split(".")[1]), int(BEYOND.split(".")[1]))
NAMES = [f"python3.{minor}" for minor in MINORS] + ["python3"]

# says its version, makes an environment of itself, and writes down what pip was asked for
FAKE = """#!/usr/bin/env bash
case "$1 $2" in
    "-c "*) echo "{version}" ;;
    "--version "*) echo "Python {version}" ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip") echo "{version}: ${{@:3}}" >>"{log}" ;;
    "-m uv") printf '%s\n' "${{@:3}}" >"{log}.uv" ;;
esac
"""


class Machine:
    """A checkout's scripts/setup on a machine that has the given Pythons."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.programs = folder / "repo", folder / "bin"
        self.log = folder / "pip.log"
        (self.repo / "scripts").mkdir(parents=True)
        self.programs.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "scripts/setup"):
            shutil.copy(REPO / name, self.repo / name)
        for name in NAMES:  # hides the Pythons of the machine that runs the test
            self._write(self.programs / name, "#!/usr/bin/env bash\nexit 127\n")

    def python(self, name: str, version: str) -> Path:
        path = self.programs / name
        self._write(path, FAKE.format(version=version, log=self.log))
        return path

    def setup(self, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.programs}{os.pathsep}{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if k != "FL_APP_PYTHON"}
        return subprocess.run(
            [self.repo / "scripts" / "setup"],
            env=inherited | {"PATH": path} | environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def installed(self) -> list[str]:
        """Return, for every call of pip, the version of its Python."""
        if not self.log.exists():
            return []
        return [line.split(":")[0] for line in self.log.read_text().splitlines()]

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def before(version: str) -> str:
    major, minor, patch = map(int, version.split("."))
    assert patch > 0, "the bound is a first release: take the one before the minor version"
    return f"{major}.{minor}.{patch - 1}"


def test_an_older_python_is_refused_with_bound_and_remedy(machine: Machine) -> None:
    machine.python("python3", before(LOWEST))
    done = machine.setup()
    assert done.returncode == 1
    assert f"from {LOWEST} on and below {BEYOND}" in done.stderr
    assert f"python3 is {before(LOWEST)}" in done.stderr
    assert "FL_APP_PYTHON" in done.stderr
    assert not (machine.repo / ".venv").exists()


@pytest.mark.parametrize("version", [f"{BEYOND}.0", "3.9.18", "2.7.18"])
def test_no_other_python_is_taken(machine: Machine, version: str) -> None:
    machine.python("python3", version)
    assert machine.setup().returncode == 1
    assert machine.installed() == []


@pytest.mark.parametrize("version", [LOWEST, *(f"3.{minor}.9" for minor in MINORS)])
def test_every_allowed_python_is_taken(machine: Machine, version: str) -> None:
    machine.python("python3", version)
    assert machine.setup().returncode == 0
    assert machine.installed() == [version]


def test_a_usable_python_is_found_behind_one_that_is_too_old(machine: Machine) -> None:
    machine.python(f"python3.{MINORS[0]}", before(LOWEST))
    machine.python("python3", LOWEST)
    assert machine.setup().returncode == 0
    assert machine.installed() == [LOWEST]


def test_without_any_python_the_message_says_so(machine: Machine) -> None:
    done = machine.setup()
    assert done.returncode == 1
    assert "none was found" in done.stderr


def test_a_python_that_was_named_is_the_only_one_asked(machine: Machine, tmp_path: Path) -> None:
    machine.python("python3", LOWEST)
    old = machine.python("old", before(LOWEST))
    done = machine.setup(FL_APP_PYTHON=str(old))
    assert done.returncode == 1
    assert f"{old} is {before(LOWEST)}" in done.stderr
    assert machine.installed() == []


def test_an_environment_of_a_refused_python_is_made_anew(machine: Machine) -> None:
    environment = machine.repo / ".venv" / "bin"
    environment.mkdir(parents=True)
    shutil.copy(machine.python("old", before(LOWEST)), environment / "python")
    machine.python("python3", LOWEST)
    assert machine.setup().returncode == 0
    assert machine.installed() == [LOWEST]


def test_nothing_is_built_twice_until_a_pin_changes(machine: Machine) -> None:
    machine.python("python3", LOWEST)
    machine.setup()
    machine.setup()
    assert len(machine.installed()) == 1
    with (machine.repo / "constraints.txt").open("a") as constraints:
        constraints.write("one-more==1.0\n")
    machine.setup()
    assert len(machine.installed()) == 2
    activate = machine.repo / ".venv" / "bin" / "activate"
    assert activate.read_text().splitlines() == [
        "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1",
        'export RAY_worker_niceness="${RAY_worker_niceness:-0}"',
    ]


def test_a_folder_with_a_space_has_uv_too_and_other_commands_of_flower(tmp_path: Path) -> None:
    """Uv splits the name of a constraints file at spaces; Flower and Ray split their own paths."""
    machine = Machine(tmp_path / "my work")
    machine.python("python3", LOWEST)
    done = machine.setup()
    assert done.returncode == 0
    asked = machine.log.with_name("pip.log.uv").read_text().splitlines()
    assert asked
    assert not [each for each in asked if " " in each]
    assert len(machine.installed()) == 1
    activate = machine.repo / ".venv" / "bin" / "activate"
    path = f'export PATH="{LOWEST}:$PATH"'  # what the stand-in for Python answers
    assert activate.read_text().splitlines()[2:] == [path]


def test_no_pin_refuses_the_lowest_python() -> None:
    refusing = []
    for line in (REPO / "constraints.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line)
        try:
            found = distribution(pin.name)
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        wanted = SpecifierSet(found.metadata.get("Requires-Python") or "")
        if found.version in pin.specifier and LOWEST not in wanted:
            refusing.append(f"{line} wants Python {wanted}")
    assert refusing == []


def test_a_client_alone_needs_versions_that_the_project_needs() -> None:
    lines = (REPO / "requirements-client.txt").read_text().splitlines()
    needed = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}
    alone = [Requirement(line) for line in lines if not line.startswith("#")]
    assert {each.name: each.specifier for each in alone}.items() <= needed.items()
    assert {"flwr", "torch"} < {each.name for each in alone}


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md"])
def test_the_pages_name_the_same_pythons(page: str) -> None:
    text = " ".join((REPO / page).read_text().split())
    assert re.search(rf"Python {re.escape(LOWEST)} to 3\.{MINORS[-1]}\b", text)


def test_the_classifiers_name_the_same_pythons() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [int(each.removeprefix(prefix)) for each in PROJECT["classifiers"] if prefix in each]
    assert named == list(MINORS)
