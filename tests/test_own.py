"""A folder of the user's own: its options are found, its modules are copied and travel."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fl_app import one_run, own
from fl_app.composition import CONF, choices
from fl_app.config import ConfigError, load
from fl_app.engines.bundle import app_folder
from fl_app.one_run import run

QUICK = ["population.clients=3", "population.train_samples=40", "population.test_samples=20",
         "rounds=1", "client.epochs=1", "strategy=fedavg", "records.figures=false",
         "records.report=false", "tracking=none"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a network of two modules, one package, and an option; it is the current one."""
    monkeypatch.setattr(own, "searched", [])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf" / "network").mkdir(parents=True)
    (tmp_path / "conf" / "network" / "mine.yaml").write_text(
        "_target_: own_network.made\nwidth: 0.25\n"
    )
    (tmp_path / "own_network.py").write_text(
        "import own_parts\nfrom own_package.deep import scaled\n"
        "LATER = 'own_named.there'\n"
        "def made(shape, classes, *, width: float):\n"
        "    return own_parts.small_cnn(shape, classes, width=scaled(width))\n"
    )
    (tmp_path / "own_parts.py").write_text("from fl_app.client.networks import small_cnn\n")
    (tmp_path / "own_named.py").write_text("there = 1\n")
    (tmp_path / "own_stranger.py").write_text("unused = 1\n")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "deep.py").write_text("def scaled(width): return 2 * width\n")
    (tmp_path / "own_package" / "words.json").write_text("[]")
    (tmp_path / "own_package" / "raw.bin").write_text("is left")
    yield tmp_path
    _forget("own_")


def _forget(start: str) -> None:
    for name in [each for each in sys.modules if each.startswith(start)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("arguments", "folders", "rest"),
    [
        (["rounds=3"], [], ["rounds=3"]),
        (["--config-dir", "/a", "rounds=3"], ["/a"], ["rounds=3"]),
        (["--config-dir=/a", "-m"], ["/a"], ["-m"]),
        (["-cd", "/a"], ["/a"], []),
        (["hydra.searchpath=[file:///a,'/b c']", "rounds=3"], ["/a", "/b c"], ["rounds=3"]),
    ],
)
def test_folders_are_named_in_the_words_of_hydra(
    arguments: list[str], folders: list[str], rest: list[str]
) -> None:
    assert own.taken_from(arguments) == ([Path(each) for each in folders], rest)


def test_a_package_on_the_search_path_is_its_folder() -> None:
    found, _ = own.taken_from(["hydra.searchpath=[pkg://fl_app.client]"])
    assert found == [Path(own.__file__).parent / "client"]


def test_options_are_found_in_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "searched", [])
    folder = tmp_path / "it's, a \\ b"
    (folder / "experiment").mkdir(parents=True)
    (folder / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 7\n")
    own.search(folder)
    assert load(["experiment=mine"]).seed == 7


def test_an_option_of_the_user_is_one_of_the_choices(folder: Path) -> None:
    own.search(folder / "conf")
    assert "mine" in choices("network")
    assert "small_cnn" in choices("network")
    assert load(["network=mine"]).network.options == {"width": 0.25}
    with pytest.raises(ConfigError, match=r"network must be one of .*\bmine\b.*, got yours"):
        load(["network=yours"])


def test_an_option_that_is_changed_or_added_is_read_anew(folder: Path) -> None:
    own.use(folder)
    words, file = [*QUICK, "network=mine"], folder / "conf" / "network" / "mine.yaml"
    assert load(words).network.options == {"width": 0.25}
    file.write_text("_target_: own_network.made\nwidth: 0.5\n")
    assert load(words).network.options == {"width": 0.5}
    with pytest.raises(ConfigError, match="population must be one of"):
        load([*words, "population=wards"])
    (folder / "conf" / "population").mkdir()
    (folder / "conf" / "population" / "wards.yaml").write_text(
        (CONF / "population" / "iid.yaml").read_text()
    )
    assert load([*words, "population=wards"]).population.path.endswith("iid")
    file.unlink()
    with pytest.raises(ConfigError, match="network must be one of"):
        load(words)


def test_an_option_that_is_no_yaml_is_told_with_its_line(folder: Path) -> None:
    own.use(folder)
    file = folder / "conf" / "network" / "mine.yaml"
    file.write_text("_target_: own_network.made\nwidth: [\n")
    with pytest.raises(ConfigError) as caught:
        load([*QUICK, "network=mine"])
    (problem,) = caught.value.problems
    assert str(file) in problem
    assert "must be YAML, got " in problem
    assert "in line 3; correct it" in problem


def test_what_a_module_imports_or_names_comes_with_it(folder: Path) -> None:
    found = own.modules({"network": {"_target_": "own_network.made"}, "data": {"root": "a.b"}})
    assert set(found) == {"own_network", "own_parts", "own_package", "own_named"}


@pytest.mark.parametrize(
    "text", ["fl_app.client.networks.small_cnn", "torch.nn.Linear", "json.loads", "0.5", "none.at"]
)
def test_what_is_installed_is_not_the_users(folder: Path, text: str) -> None:
    assert own.modules({"x": [text]}) == {}


def test_an_experiment_without_its_first_line_is_told(folder: Path) -> None:
    (folder / "conf" / "experiment").mkdir()
    (folder / "conf" / "experiment" / "trial.yaml").write_text("rounds: 3\n")
    own.search(folder / "conf")
    with pytest.raises(ConfigError, match="must begin with the line # @package _global_; add it"):
        load(["experiment=trial"])


def test_a_run_keeps_a_copy_that_is_enough_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.search(folder / "conf")
    run(["network=mine", *QUICK], folder / "run")
    kept = {
        path.relative_to(folder / "run" / "project").as_posix()
        for path in (folder / "run" / "project").rglob("*")
        if path.is_file()
    }
    assert kept == {
        "own_network.py", "own_parts.py", "own_named.py", "own_package/__init__.py",
        "own_package/deep.py", "own_package/words.json", "conf/network/mine.yaml",
    }  # fmt: skip
    _forget("own_")
    monkeypatch.setattr(own, "searched", [])
    for name in ("own_network.py", "conf/network/mine.yaml"):
        (folder / name).unlink()
    one_run.resume(folder / "run", ["rounds=2"])
    assert json.loads((folder / "run" / "summary.json").read_text())["rounds"] == 2


def test_files_that_the_copy_lacks_are_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("words.txt", "weights.pt", "unnamed.txt"):
        (folder / name).write_text("3")
    with (folder / "own_named.py").open("a") as file:
        file.write("from pathlib import Path\nWIDTH = Path(__file__).with_name('words.txt')\n")
        file.write(f"GREETING = {150 * '语'!r}  # 450 bytes, too long for the name of a file\n")
    own.keep({"x": ["own_network.made", "own_named.there"]}, folder / "kept")
    (told,) = caplog.messages
    named = f"{folder / 'own_package' / 'raw.bin'}, {folder / 'words.txt'}"
    assert f"the run keeps no copy of {named}: resuming" in told


def test_a_file_that_a_module_does_not_find_is_named(folder: Path) -> None:
    (folder / "own_reads.py").write_text("WIDTH = int(open('absent.txt').read())\n")
    with pytest.raises(
        ConfigError, match=r"got 'own_reads.made': .*'absent.txt'; put the file there"
    ):
        load(["network._target_=own_reads.made"])


def test_a_run_without_a_module_of_the_user_keeps_none(folder: Path) -> None:
    run(QUICK, folder / "run")
    assert not (folder / "run" / "project").exists()


def test_the_bundle_has_the_project_and_says_so(folder: Path) -> None:
    own.search(folder / "conf")
    own.keep({"x": "own_network.made"}, folder / "kept")
    with app_folder(CONF, folder / "kept") as app:
        form = (app / "pyproject.toml").read_text()
        assert (app / "project" / "own_network.py").exists()
        assert (app / "fl_app" / "own.py").exists()
        assert '"project/conf/network/mine.yaml"' in form
        assert '"project/own_package/deep.py"' in form


def test_the_bundle_has_nothing_of_what_lies_beside_the_app(tmp_path: Path) -> None:
    with app_folder(CONF, tmp_path / "absent") as app:
        assert {entry.name for entry in app.iterdir()} == {"conf", "fl_app", "pyproject.toml"}
        assert (app / "conf" / "config.yaml").exists()


def test_a_missing_module_is_told_with_what_to_do(folder: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(["network._target_=nowhere_at_all.made"])
    assert "there is no module nowhere_at_all; start fl-app in the folder of" in str(raised.value)


def test_a_project_is_found_from_its_parent_folder_and_told_once(folder: Path) -> None:
    package = folder / "own_wards" / "own_wards"  # as `fl-app new own_wards` writes it
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (folder / "own_wards" / "conf").mkdir()
    own.search(folder / "own_wards" / "conf")
    with pytest.raises(ConfigError) as raised:
        load(["network._target_=own_wards.network.made", "data._target_=own_wards.data.read"])
    (told,) = (line for line in str(raised.value).splitlines() if "own_wards" in line)
    assert "data._target_=own_wards.data.read and network._target_=own_wards.network.made" in told
    assert f"there is no module own_wards; start fl-app in {folder / 'own_wards'} or set" in told


def test_a_folder_of_modules_without_the_one_named_is_no_module(folder: Path) -> None:
    (folder / "own_loose").mkdir()
    (folder / "own_loose" / "parts.py").write_text("")
    assert own.unfound("own_loose.parts.made") is None
    assert "no module own_loose.other; start fl-app in the folder of own_loose/other.py" in str(
        own.unfound("own_loose.other.made")
    )


def test_a_module_that_is_a_script_is_told(folder: Path) -> None:
    (folder / "own_script.py").write_text("import sys\ndef made(shape, classes): ...\nsys.exit(2)")
    with pytest.raises(ConfigError, match=r"ends the program when it is imported.*__main__"):
        load(["network._target_=own_script.made"])


@pytest.mark.parametrize("name", ["json", "pydantic", "time", "fl_app"])
def test_a_module_that_another_one_hides_is_told(name: str, folder: Path) -> None:
    (folder / f"{name}.py").write_text("def made(shape, classes): ...")
    with pytest.raises(ConfigError, match=f"is found before .*{name}.py; rename {name}.py"):
        load([f"network._target_={name}.made"])


def test_an_option_must_not_hide_one_of_the_app_nor_a_folder_be_missing(folder: Path) -> None:
    (folder / "conf" / "network" / "small_cnn.yaml").write_text("_target_: own_network.made\n")
    own.search(folder / "conf")
    own.search(folder / "absent")
    with pytest.raises(ConfigError) as raised:
        load([])
    assert "small_cnn.yaml must not be named like an option of the app" in str(raised.value)
    assert f"must be a folder with options, got {folder / 'absent'}" in str(raised.value)


def test_a_null_setting_that_the_users_class_does_not_take_is_left_out(folder: Path) -> None:
    (folder / "own_attack.py").write_text(
        "from dataclasses import dataclass\n"
        "from fl_app.client.attacks import Attack\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(Attack):\n"
        "    pass\n"
    )
    given = ["attack=label_flip", "attack._target_=own_attack.Mine", "~attack.target"]
    assert "source" not in load(given).attack.options
    assert "clients" in load(given).attack.options


@pytest.mark.parametrize(
    ("head", "width"),
    [
        ("", "width"),
        ("from __future__ import annotations\n", "width: float"),
        (
            "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from nowhere import Width\n",
            "width: Width",
        ),
    ],
)
def test_settings_have_the_types_that_a_user_gave_them_or_any(
    folder: Path, head: str, width: str
) -> None:
    (folder / "own_typed.py").write_text(
        f"{head}from fl_app.client.networks import small_cnn\n"
        f"def made(shape, classes, *, {width}):\n"
        "    return small_cnn(shape, classes, width=width)\n"
    )
    given = ["network=small_cnn", "network._target_=own_typed.made", "network.width=0.25"]
    assert load(given).network.options == {"width": 0.25}
    if "float" in width:
        with pytest.raises(ConfigError, match=r"network.width must be .*number"):
            load([*given, "network.width=wide"])


def test_files_that_are_no_python_are_no_obstacle(folder: Path) -> None:
    (folder / "own_package" / "old.py").write_text("print 'Python 2'\n")
    (folder / "own_package" / "nul.py").write_bytes(b"\x00\x00")
    assert "own_parts" in own.modules("own_network.made")


def test_packages_of_another_environment_are_installed_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("site-packages", "dist-packages"):
        place = folder / "lib" / name
        place.mkdir(parents=True)
        (place / f"own_{name[:4]}.py").write_text("")
        monkeypatch.syspath_prepend(place)
        assert own.modules(f"own_{name[:4]}.thing") == {}
