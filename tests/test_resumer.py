"""The service that submits lost runs again: what it says of wrong words and of a silent server."""

import os
import signal
import threading
from pathlib import Path

import pytest

from fl_app import resumer
from fl_app.engines import flower
from fl_app.engines.flower_commands import FlowerError


def _words(folder: Path, *others: str) -> list[str]:
    (folder / "ca.crt").touch()
    certificate = str(folder / "ca.crt")
    return ["--address", "x:1", "--root-certificates", certificate, *others, str(folder)]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SuperLink that does not answer."""

    def refuses(_: object) -> list[int]:
        raise FlowerError("certificate verify failed")

    monkeypatch.setattr(flower, "under_way", refuses)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (["--every", "-1"], "must be a positive number of seconds, got -1"),
        (["--every", "nan"], "must be a positive number of seconds, got nan"),
        (["absent"], "a folder of runs must be there, got absent"),
    ],
)
def test_wrong_words_end_in_a_sentence(
    others: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        resumer.main(_words(tmp_path, *others))
    assert told in capsys.readouterr().err


def test_a_certificate_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = _words(tmp_path)
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(SystemExit):
        resumer.main(words)
    assert "--root-certificates must be a file, got " in capsys.readouterr().err


def test_a_superlink_that_does_not_answer_is_told_though_no_run_is_lost(
    silent: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resumer.main(_words(tmp_path, "--once")) == 1
    told = "the SuperLink at x:1 does not answer: certificate verify failed"
    assert told in capsys.readouterr().out


def test_a_stopped_resumer_leaves_no_folder(
    silent: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(made))
    stop = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    former = signal.getsignal(signal.SIGTERM)
    stop.start()
    try:
        with pytest.raises(SystemExit) as ended:
            resumer.main(_words(tmp_path))
    finally:
        signal.signal(signal.SIGTERM, former)
    assert ended.value.code == 128 + signal.SIGTERM
    assert not list(made.iterdir())
