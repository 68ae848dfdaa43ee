"""The folder of the run that is under way on a connection is found, or it is said what to type."""

import socket
from pathlib import Path

import pytest

from fl_app.engines import flower, under_way
from fl_app.engines.flower import Connection
from fl_app.records import run_state
from fl_app.records.run_state import RunState


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A federation's Flower home with two connections; run 7 is under way, 6 has ended."""
    found = tmp_path / "deployment" / "home"
    found.mkdir(parents=True)
    (found / "config.toml").write_text(
        '[superlink]\ndefault = "a"\n[superlink.a]\naddress = "127.0.0.1:1"\n[superlink.b]\n'
    )
    monkeypatch.setenv("FLWR_HOME", str(found))
    monkeypatch.chdir(tmp_path)

    def command(connection: Connection, *words: str) -> dict[str, object]:
        assert words == ("ls", "a")
        runs = [(6, "finished:completed"), (7, "running")]
        return {"runs": [{"run-id": str(number), "status": status} for number, status in runs]}

    monkeypatch.setattr(flower, "command", command)
    return found


def test_connections_are_those_of_flowers_configuration(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(under_way.connections()) == ["a", "b"]
    (home / "config.toml").write_text("[")
    with pytest.raises(ValueError, match=r"config\.toml must be a TOML file"):
        under_way.connections()
    monkeypatch.delenv("FLWR_HOME")
    monkeypatch.setenv("HOME", str(home))
    assert under_way.configuration() == home / ".flwr" / "config.toml"
    assert under_way.connections() == {}


@pytest.mark.parametrize("place", ["outputs/demo/now", "deployment/runs/0123"])
def test_the_folder_is_the_one_that_names_the_run(home: Path, tmp_path: Path, place: str) -> None:
    for number in (5, 6):
        run_state.write(tmp_path / "outputs" / f"run{number}", RunState(number, "", 5))
    (tmp_path / place).mkdir(parents=True)
    run_state.write(tmp_path / place, RunState(7, "", 5))
    assert under_way.folder_of("a") == tmp_path / place


def test_what_cannot_be_found_is_said(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"folder of run 7 of a, got none; .* flwr log 7 a"):
        under_way.folder_of("a")
    for name in ("one", "two"):
        run_state.write(tmp_path / "outputs" / name, RunState(7, "", 5))
    with pytest.raises(ValueError, match=r"got 2; type fl-app watch with one of .*one, .*two"):
        under_way.folder_of("a")
    monkeypatch.setattr(flower, "command", lambda connection, *words: {"runs": []})
    with pytest.raises(ValueError, match="must be under way on the connection a, got none"):
        under_way.folder_of("a")


def test_a_look_starts_no_superlink(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config.toml").write_text('[superlink.local]\naddress = ":local:"\n')
    monkeypatch.setattr(flower, "command", None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens
        monkeypatch.setenv("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", str(free.getsockname()[1]))
        with pytest.raises(ValueError, match="a run must be under way on the connection local"):
            under_way.folder_of("local")


def test_a_superlink_of_flower_that_runs_is_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config.toml").write_text('[superlink.local]\naddress = ":local:"\n')
    monkeypatch.setattr(
        flower, "command", lambda *_: {"runs": [{"run-id": "9", "status": "running"}]}
    )
    with socket.create_server(("127.0.0.1", 0)) as there:
        monkeypatch.setenv("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", str(there.getsockname()[1]))
        with pytest.raises(ValueError, match="folder of run 9 of local"):
            under_way.folder_of("local")
