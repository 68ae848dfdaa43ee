"""The remedy for an absent extra can be typed as it stands."""

import shlex
import sys
from importlib.metadata import PackageNotFoundError

import pytest

from fl_app import extras
from fl_app.extras import installation


def test_the_command_installs_the_packages_of_the_extra() -> None:
    words, _, command = installation("mlflow").partition(": ")
    assert words == "install the extra mlflow of fl-app"
    python, *rest = shlex.split(command)
    assert python == sys.executable
    assert rest[:3] == ["-m", "pip", "install"]
    assert {each.partition(">=")[0] for each in rest[3:]} == {"mlflow", "pandas"}


def test_code_without_an_installation_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", absent)
    assert installation("hub") == "install the extra hub of fl-app"
