"""A folder for results is tried before the work, and left as it was."""

from pathlib import Path

import pytest

from fl_app.records import output_folder


def test_a_folder_that_can_be_made_is_not_left_behind(tmp_path: Path) -> None:
    assert output_folder.problem(tmp_path / "new" / "run") is None
    assert output_folder.problem(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_a_folder_is_named_with_reason_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder, reason in ((file, "File exists"), (file / "run", "Not a directory")):
        fault = output_folder.problem(folder)
        assert fault is not None
        assert f"got {folder}: {reason}; give another folder" in fault
    with pytest.raises(ValueError, match="must be one into which files can be written"):
        output_folder.require(file)


def test_a_full_disk_is_found_though_the_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_folder.tempfile, "TemporaryFile", full)
    assert "No space left on device" in (output_folder.problem(tmp_path / "run") or "")
    assert not list(tmp_path.iterdir())
