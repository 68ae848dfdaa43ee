"""The command line itself: its help, and words that it does not know."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from fl_app import main, own
from fl_app.printed_errors import errors_printed
from fl_app.records.history import History
from fl_app.schema import ConfigError


@pytest.mark.parametrize("command", main.COMMANDS)
def test_every_command_has_a_help_that_does_nothing_else(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main.COMMANDS[command](["--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: fl-app {command} ")
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fl-app", "--help"])
    monkeypatch.setattr(main, "_hydra_main", lambda: None)
    main.main()
    shown = capsys.readouterr().out
    assert [command for command in main.COMMANDS if f"fl-app {command} <" not in shown] == []


def test_a_word_that_is_no_setting_and_no_command_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fl-app", "reprot", "outputs", "rounds=2"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == main.USAGE_ERROR
    shown = capsys.readouterr().err
    assert "see fl-app --help; got reprot outputs; did you mean fl-app report?\n" in shown
    assert "override" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rounds", "=", "3"], "must have no spaces around its =, as rounds=5; got rounds = 3"),
        (["--rounds", "3"], "--rounds is no option; a setting is given without dashes, as rounds="),
        (["--batch-size=3"], "--batch-size is no option; a setting is given without dashes, as b"),
    ],
)
def test_a_setting_in_another_form_is_told_how_to_be_given(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["fl-app", *words])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == main.USAGE_ERROR
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["compare", ".", "to="], "to="),
        (["compare", ""], "an argument"),
        (["report", ""], "an argument"),
        (["new", ""], "an argument"),
        (["export", ".", "--format", "onnx", "--to", ""], "--to"),
        (["fine-tune", ".", "--to="], "--to="),
        (["predict", ".", "--data", "x.csv", "--out", ""], "--out"),
        (["resume="], "resume="),
    ],
)
def test_an_unset_variable_of_the_shell_is_not_the_current_folder(
    words: list[str],
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fl-app", *words])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == main.USAGE_ERROR
    told = f"{what} must have a value, got ''; give one; a variable of the shell may be unset"
    assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_version_is_that_of_the_app(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fl-app", "--version"])
    main.main()
    assert capsys.readouterr().out.startswith("fl-app ")


COMMAND_LINES = {
    "run": ["rounds=0", "hydra.run.dir={}/run"],
    "run with flags": ["--config-name", "config", "hydra.run.dir={}/run"],
    "sweep": ["--multirun", "seed=0,1", "hydra.sweep.dir={}"],
    "table of a sweep": ["--multirun", "seed=0,1", "hydra.callbacks.table.page={}/a.md"],
    "compare": ["compare", ".", "to={}/compared"],
    "new": ["new", "{}/my_new_project"],
}


@pytest.mark.parametrize("line", COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_folder_that_cannot_be_made_is_a_configuration_error(
    line: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fl-app", *(a.format(tmp_path / "file") for a in line)])
    with pytest.raises(SystemExit) as end:
        main.main()
    shown = capsys.readouterr().err
    assert end.value.code == main.USAGE_ERROR, shown
    assert f"files can be written, got {tmp_path / 'file'}" in shown
    assert ("rounds must be" in shown) == ("rounds=0" in line)  # all errors at once
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


WRONG_FOR_HYDRA = {
    "types": (["-m", "hydra.sweep.dir=[1]", "hydra.job.num=a", "seed=0,1"],
              ["Cannot convert 'list' to string", "Value 'a' of type 'str' could not be conv"]),
    "names": (["-m", "strateg=flic", "~nope", "seed=0,1"], ["use strategy", "nope is not a sett"]),
    "folder of a sweep": (["-m", "hydra.sweep.dir=${nothing}"], ["got Interpolation key"]),
    "folder of a job": (["-m", "hydra.sweep.subdir=${nothing}"], ["correct hydra.sweep.subdir"]),
    "folder of a run": (["--config-name=config", "hydra.run.dir=${no}"], ["correct hydra.run.dir"]),
    "a folder for two jobs": (["-m", "seed=0,1", "hydra.sweep.subdir=one"],
                              ["each run of a sweep a folder of its own, got "]),
    "an option": (["-m", "strategy=flic,nope"], ["with strategy=nope: strategy must be one of"]),
    "a setting of one option": (["-m", "strategy=flic,fedavg", "strategy.cluster_round=5"],
                                ["in the run with strategy=fedavg: strategy.cluster_round is not"]),
    "a false setting": (["-m", "strategy=krum,multi_krum", "strategy.malicious=1", "rouns=2"],
                        ["  - rouns is not a setting of this run; use rounds"]),
    "no run": (["-m", "seed=range(0)"], ["a sweep must have a run"]),
    "a sweep by intervals": (["-m", "rounds=interval(1,2)"], ["hydra can run, got"]),
    "a null of Hydra": (["-m", "+hydra.sweeper.params={seed: '0,1'}"],
                        ["+hydra.sweeper.params={seed: '0,1'} cannot be used: "]),
    "a part of such a null": (["-m", "+hydra.sweeper.params.seed='0,1'"], ["cannot be used: "]),
    "a file": (["--config-name", "nope"],
               ["'nope'. Check that it's in your config search path.; give options of your own"]),
    "one run": (["seed=range(0,2)"], ["got a sweep; give --multirun"]),
    "a measure": (["-m", "seed=0,1", "hydra.callbacks.table.measures=[acuracy,accuracy]"],
                  ["or metric.<name of a metric>, got acuracy; correct or remove it"]),
    "the folder": (["records.folder=/tmp/x"], ["records.folder must be left to fl-app, which"]),
    "the command's own": (["-m", "++records.folder=/x", "records.resume=true", "seed=0,1"],
                          ["records.folder must be left", "give that"]),
    "a resume": (["-m", "resume=x", "seed=0,1"],
                 ["resume continues one run; start a sweep without it"]),
    "a false number": (["resume=no", "+records.restarts=2"], ["records.restarts must be left"]),
}  # fmt: skip


@pytest.mark.parametrize(("line", "told"), WRONG_FOR_HYDRA.values(), ids=WRONG_FOR_HYDRA)
def test_what_hydra_fails_on_is_a_configuration_error(
    line: list[str],
    told: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "run", lambda overrides, folder: None)
    monkeypatch.setattr(sys, "argv", ["fl-app", *line])
    with pytest.raises(SystemExit) as end:
        main.main()
    shown = capsys.readouterr().err
    assert end.value.code == main.USAGE_ERROR, shown
    assert shown.startswith(f"{len(told)} configuration error(s):\n")
    assert [each for each in told if each.lower() not in shown.lower()] == []
    assert "Traceback" not in shown
    assert "HYDRA_FULL_ERROR" not in {*os.environ}


SETTINGS_OF_SWEPT = {
    "strategy": ["strategy=krum,multi_krum", "strategy.malicious=1"],
    "data": ["data=mnist,fashion_mnist", "data.root=/x"],
    "experiment": ["experiment=mnist_methods,defences", "data.root=/x"],
}


@pytest.mark.parametrize("line", SETTINGS_OF_SWEPT.values(), ids=SETTINGS_OF_SWEPT)
def test_a_sweep_takes_settings_that_only_its_options_have(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "run", lambda overrides, folder: runs.append(overrides))
    monkeypatch.setattr(sys, "argv", ["fl-app", "-m", *line])
    main.main()
    assert len(runs) >= 2
    assert all(line[1] in each for each in runs)  # as it was typed


def test_an_output_that_nobody_reads_any_more_is_no_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(main, "_hydra_main", fails)
    monkeypatch.setattr(sys, "argv", ["fl-app", "-sc", "install=bash"])
    with (tmp_path / "out").open("w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as end:
            main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("completed", "interrupted; the run is completed, its results are in "),
        ("interrupted", "interrupted; continue with fl-app resume="),
        (None, "interrupted; continue with fl-app resume="),
    ],
)
def test_an_interrupted_command_says_what_is_left_of_the_run(
    status: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if status is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"status": status}))
    with pytest.raises(SystemExit) as end, errors_printed(tmp_path):
        raise KeyboardInterrupt
    assert end.value.code == 130
    assert capsys.readouterr().err == f"{said}{tmp_path}\n"


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_was_moved_in_a_run_is_no_bug(
    there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if there:  # then only the file is missing
        (tmp_path / "overrides.yaml").touch()
    wanted = FileNotFoundError if there else SystemExit
    with pytest.raises(wanted), errors_printed(tmp_path):
        (tmp_path / "rounds.jsonl").open()
    told = capsys.readouterr().err
    assert (f"was moved or removed: {tmp_path}; fl-app resume=<where it is now>" in told) != there


def test_a_full_disk_is_no_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end, errors_printed(tmp_path):
        raise OSError(28, "No space left on device")
    assert end.value.code == 1
    said = "no file could be written: No space left on device; make room; continue with fl-app "
    assert capsys.readouterr().err == f"{said}resume={tmp_path}\n"
    with pytest.raises(OSError, match="Broken pipe"), errors_printed(tmp_path):
        raise OSError(32, "Broken pipe")


def test_a_folder_that_became_read_only_in_a_run_is_no_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end, errors_printed(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path / "rounds.jsonl"))
    assert end.value.code == 1
    said = f"no file could be written: Read-only file system; make {tmp_path} writable; continue "
    assert capsys.readouterr().err == f"{said}with fl-app resume={tmp_path}\n"
    with pytest.raises(PermissionError), errors_printed(tmp_path / "run"):  # not of the run's files
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "data.csv"))


def test_a_bug_in_a_run_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(overrides: list[str], folder: Path) -> None:
        raise KeyError("a bug")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "run", fails)
    monkeypatch.setattr(sys, "argv", ["fl-app", "--config-name", "config"])
    with pytest.raises(KeyError, match="a bug"):
        main.main()


def test_a_sweep_of_ones_own_options_has_its_flags_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tmp_path / "own" / "experiment"
    options.mkdir(parents=True)
    (options / "swept.yaml").write_text(
        "# @package _global_\ndefaults: [override /strategy: fedavg, _self_]\nrounds: 3\n"
        "hydra: {sweeper: {params: {seed: 'range(0,2)'}}}\n"
    )
    runs = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "searched", [])
    monkeypatch.setattr(main, "run", lambda overrides, folder: runs.append(overrides))
    line = ["experiment=swept", "--config-dir", "own", "-m", "client.epochs=1"]
    for order in (line, line[1:4] + line[:1] + line[4:]):
        monkeypatch.setattr(sys, "argv", ["fl-app", *order])
        main.main()
    assert [[each for each in run if "seed" in each] for run in runs] == [
        ["seed=0"],
        ["seed=1"],
    ] * 2


def test_a_run_that_is_refused_ends_no_sweep_and_is_in_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(overrides: list[str], folder: Path) -> None:
        number = int(next(each for each in overrides if "rounds=" in each).partition("=")[2])
        if number < 2:
            raise ConfigError(["rounds must be above 1"])
        (folder / "overrides.yaml").write_text(yaml.safe_dump(overrides))
        summary = {"status": "completed", "strategy": "flic", "seed": 0, "accuracy": {"mean": 0.5}}
        found = {"communities": {"ari": None, "silhouette": None, "count": 1}}
        (folder / "summary.json").write_text(json.dumps(summary | found))
        History(folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(main, "run", run)
    line = ["-m", "seed=0", "rounds=2,1,0,3", "hydra.sweep.dir=here", "data=digits"]
    monkeypatch.setattr(sys, "argv", ["fl-app", *line])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == main.USAGE_ERROR
    told = capsys.readouterr().err
    assert told.count("rounds must be above 1") == 1
    assert told.endswith(
        "refused: seed=0 rounds=1 data=digits\nrefused: seed=0 rounds=0 data=digits\n"
    )
    assert [each.name for each in sorted(Path("here").iterdir()) if each.is_dir()] == ["0", "3"]
    table = Path("here/table.md").read_text()
    assert "Written by `fl-app -m seed=0 rounds=2,1,0,3 data=digits`." in table
    assert "\nRefused: `seed=0` `rounds=1`: rounds must be above 1.\n" in table
    assert [each for each in table.splitlines() if each.startswith(("| 2", "| 3"))]
    assert (
        "Refused: seed=0 rounds=1: rounds must be above 1." in Path("here/compare.html").read_text()
    )
