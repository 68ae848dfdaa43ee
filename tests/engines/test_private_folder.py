"""A federation's folder is entered by its owner only, and no other folder is changed."""

from pathlib import Path

import pytest

from fl_app import deploy
from fl_app.engines import private_folder
from fl_app.engines.federation import Federation


def _mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


@pytest.mark.parametrize("inside", [None, "keys", "federation.pid"])
def test_an_empty_folder_and_that_of_a_federation_become_private(
    tmp_path: Path, inside: str | None
) -> None:
    folder = tmp_path / "federation"
    private_folder.make(folder)
    assert _mode(folder) == 0o700
    folder.chmod(0o755)
    if inside is not None:
        (folder / inside).touch()
    private_folder.make(folder)
    assert _mode(folder) == 0o700


def test_another_folder_that_others_can_enter_is_refused_and_stays(tmp_path: Path, capsys) -> None:
    (tmp_path / "my-letter").touch()
    tmp_path.chmod(0o750)
    for action in ("up", "keep"):
        assert deploy.main([action, "--folder", str(tmp_path)]) == 1
        assert f"got {tmp_path} with mode 750; give a new folder" in capsys.readouterr().out
    with (
        pytest.raises(private_folder.ExposedFolderError),
        Federation(tmp_path, nodes=1, warm=False),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["my-letter"]
    assert _mode(tmp_path) == 0o750
    tmp_path.chmod(0o700)
    private_folder.make(tmp_path)


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o770)
    monkeypatch.setattr(private_folder.os, "getuid", lambda: -1)
    with pytest.raises(private_folder.ExposedFolderError, match="must be yours with mode 700"):
        private_folder.make(tmp_path)
