"""Snapshots come back as they were seen, in the order of the rounds."""

from pathlib import Path

import numpy as np
import pytest

from fl_app.records.snapshot import read_snapshots, write_snapshot

SIMILARITY = np.array([[0.0, 1.25], [1.25, 0.0]])


def test_snapshots_are_read_in_order_of_rounds(tmp_path: Path) -> None:
    for round in (100, 20, 100_000):
        ids, labels, groups = np.array([4, 9]), np.array([0, 0]), np.array([-1, round])
        write_snapshot(
            tmp_path, round=round, ids=ids, similarity=SIMILARITY, labels=labels, groups=groups
        )
    found = read_snapshots(tmp_path)
    assert [snapshot.round for snapshot in found] == [20, 100, 100_000]
    assert found[0].ids.tolist() == [4, 9]
    assert found[0].similarity.dtype == np.float32
    assert found[0].similarity.tolist() == SIMILARITY.tolist()
    assert found[0].labels.tolist() == [0, 0]
    assert found[1].groups.tolist() == [-1, 100]


def test_a_run_without_snapshots_has_none(tmp_path: Path) -> None:
    assert read_snapshots(tmp_path) == []


def test_the_temporary_of_a_killed_write_is_no_snapshot(tmp_path: Path) -> None:
    two = np.array([0, 1])
    path = write_snapshot(tmp_path, round=3, ids=two, similarity=SIMILARITY, labels=two, groups=two)
    path.rename(path.with_name(f"{path.name}.tmp"))
    assert read_snapshots(tmp_path) == []


def test_arrays_of_different_clients_are_refused(tmp_path: Path) -> None:
    two = np.array([0, 1])
    with pytest.raises(ValueError, match="must have shapes"):
        write_snapshot(
            tmp_path, round=3, ids=two, similarity=SIMILARITY, labels=np.array([0]), groups=two
        )
    assert read_snapshots(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"not a snapshot at all"])
def test_a_damaged_snapshot_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "round_00003.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"round_00003.* must be a snapshot"):
        read_snapshots(tmp_path)
