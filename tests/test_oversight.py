"""The page of a run under way, and what a run leaves for an audit."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from fl_app import main, oversight
from fl_app.engines import under_way
from fl_app.engines.flower_commands import FlowerError
from fl_app.printed_errors import errors_printed
from fl_app.records.audit import FILE, check, digest_of


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run with a rejected and a removed client, in this process."""
    from fl_app.one_run import run as fl_app_run

    folder = tmp_path_factory.mktemp("watched") / "run"
    wanted = ["population.clients=4", "population.groups=2", "population.train_samples=20"]
    wanted += ["rounds=2", "strategy=fedavg", "strategy.participation=1.0", "client.epochs=1"]
    wanted += ["records.figures=false", "records.report=false", "records.checkpoint_every=1"]
    wanted += ["network.width=0.25", "tracking=none", "logging=json", "records.evaluate_every=1"]
    fl_app_run(wanted, folder)
    return folder


def shown(folder: Path, *, width: int = 140) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(oversight.page(folder))
    return console.export_text()


def test_the_page_tells_state_accuracy_rounds_and_events(run: Path) -> None:
    page = shown(run)
    assert "run: completed, 2 rounds" in page
    assert "accuracy 0." in page
    last = json.loads((run / "rounds.jsonl").read_text().splitlines()[-1])
    assert f"{last['train_loss']:.3f}" in page


def test_the_page_of_a_task_without_accuracy_tells_its_metrics(run: Path, tmp_path: Path) -> None:
    lines = (run / "rounds.jsonl").read_text().splitlines()
    told = [{"mae": {"mean": mean}, "r2": {"mean": 0.5}} for mean in (8.0, 4.25)]
    records = [
        json.loads(line) | {"accuracy": None, "metrics": each}
        for line, each in zip(lines, told, strict=True)
    ]
    (tmp_path / "rounds.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    page = shown(tmp_path)
    assert "mae 4.250  █▁" in page
    assert "r2 0.500" in page
    assert "accuracy" not in page
    assert [line.count("4.250") for line in page.splitlines() if "│ 2 " in line] == [1]


def test_the_page_fits_a_terminal_of_80_columns(run: Path) -> None:
    page = shown(run, width=80)
    assert "communities" in page
    assert "4 of 4" in page
    assert "\N{HORIZONTAL ELLIPSIS}" not in page


@pytest.mark.parametrize(
    ("seconds", "text"), [(119.0, "119 s"), (120.0, "2 min"), (7200.0, "2 h"), (172800.0, "2 days")]
)
def test_a_time_span_is_told_in_a_unit_that_suits_it(seconds: float, text: str) -> None:
    assert oversight._ago(seconds) == text


def test_a_run_before_its_first_round_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("")
    assert "under way, 0 rounds" in shown(tmp_path)


def test_a_run_whose_server_has_not_begun_is_shown_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.log").touch()
    oversight.watch(["--once", str(tmp_path)])
    assert "starts, its nodes connect, 0 rounds" in capsys.readouterr().out


def test_a_connection_shows_its_run_or_why_it_cannot(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    (tmp_path / "config.toml").write_text('[superlink.here]\naddress = "127.0.0.1:1"\n')
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr(under_way, "folder_of", lambda name: run)
    oversight.watch(["here"])
    assert "completed" in capsys.readouterr().out

    def silent(name: str) -> Path:
        raise FlowerError("no answer")

    monkeypatch.setattr(under_way, "folder_of", silent)
    with pytest.raises(ValueError, match="the SuperLink of here must answer: no answer"):
        oversight.watch(["here"])
    with pytest.raises(ValueError, match=r"there must be the output folder .* connections: here"):
        oversight.watch(["there"])


def test_watch_needs_the_folder_of_a_run(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    told = "must be the output folder of a run, .* got neither; its connections: none"
    with pytest.raises(ValueError, match=told):
        oversight.watch([str(tmp_path)])
    oversight.watch([str(run)])  # it has ended, so the page is shown once
    assert "completed" in capsys.readouterr().out


def test_the_curve_goes_from_the_least_to_the_largest() -> None:
    assert oversight.curve([0.1, 0.5, 0.9]) == "▁▅█"
    assert oversight.curve([0.5, 0.5]) == "▁▁"


def test_a_run_leaves_who_started_it_who_joined_and_what_was_written(run: Path) -> None:
    assert check(run / FILE).problems == ()
    entries = [json.loads(line) for line in (run / FILE).read_text().splitlines()]
    events = [entry["event"] for entry in entries]
    assert events == ["started", "joined", "checkpoint written", "checkpoint written",
                      "models written", "ended"]  # fmt: skip
    started, joined, *_, models, ended = entries
    assert started["strategy"] == "fedavg"
    assert "@" in started["by"]
    assert joined["clients"] == {str(client): f"node {client + 1}" for client in range(4)}
    assert models["sha256"] == digest_of(run / "models.safetensors")
    assert ended["status"] == "completed"


def test_the_log_of_a_run_is_json_if_asked(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "run.log").read_text().splitlines()]
    rounds = [line for line in lines if "asked" in line]
    assert [line["round"] for line in rounds] == [1, 2]
    assert rounds[0]["answered"] == 4


@pytest.mark.parametrize("command", ["watch", "audit"])
def test_a_folder_without_a_run_is_an_error_of_its_user(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, errors_printed():
        main.COMMANDS[command]([str(tmp_path)])
    assert ended.value.code == main.USAGE_ERROR
    assert "must be" in capsys.readouterr().err
