"""The command that registers keys: what it says of wrong files, and of a SuperLink that refuses."""

import socket
from pathlib import Path

import pytest

from fl_app.engines import registrar
from fl_app.engines.flower_commands import FlowerError
from fl_app.engines.node_ids import FILE, read, remember


def _words(folder: Path, key: str) -> list[str]:
    for name in ("ca.crt", "one.pub"):
        (folder / name).touch()
    certificate = str(folder / "ca.crt")
    return ["--address", "x:1", "--root-certificates", certificate, str(folder / key)]


def test_a_key_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        registrar.main(_words(tmp_path, "two.pub"))
    assert "must be files that are there, got " in capsys.readouterr().err


def test_a_key_that_is_refused_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> str:
        raise FlowerError("no elliptic curve")

    monkeypatch.setattr(registrar, "register", refuses)
    with pytest.raises(SystemExit, match=r"^one.pub could not be registered: no elliptic curve$"):
        registrar.main(_words(tmp_path, "one.pub"))


def test_a_superlink_that_is_starting_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def answers(*_: object) -> str:
        assert begun, "asked before it listened"
        return "44"

    monkeypatch.setattr(registrar, "register", answers)
    with socket.socket() as superlink:
        superlink.bind(("127.0.0.1", 0))  # connections are refused until it listens
        address = f"127.0.0.1:{superlink.getsockname()[1]}"

        def listens(_: float) -> None:
            begun.append(True)
            superlink.listen()

        monkeypatch.setattr(registrar.time, "sleep", listens)
        words = _words(tmp_path, "one.pub")
        words[1] = address
        registrar.main([*words, "--wait", "60"])
    assert begun == [True]


def test_the_client_of_each_node_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    ids = {"node4.pub": "44", "node7.pub": None}
    monkeypatch.setattr(registrar, "register", lambda _, key: ids[key.name])
    for name in ids:
        (tmp_path / name).touch()
    words = [*_words(tmp_path, "node4.pub"), str(tmp_path / "node7.pub")]
    registrar.main([*words, "--node-ids", str(tmp_path)])
    assert read(tmp_path / FILE) == {4: "44"}
    assert "node of node7.pub, which was registered before, is not in" in capsys.readouterr().out
    remember(tmp_path, 7, "77")
    registrar.main([*words, "--node-ids", str(tmp_path)])
    assert "registered before" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        registrar.main([*_words(tmp_path, "one.pub"), "--node-ids", str(tmp_path)])
    assert "must be named as node4.pub, got one.pub" in capsys.readouterr().err
