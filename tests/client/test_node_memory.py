"""A node finds what it has of a run, and of no other run, wherever the run's folder is."""

import json
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest

from fl_app.client.local_state import FolderMemory
from fl_app.client.node_memory import RUN, NodeMemory


def _node(root: Path, folder: str = "/outputs/run", run: str | None = "a") -> NodeMemory:
    return NodeMemory(root=root, client_id=3, part="", folder=folder, run=run, every=1)


def _write(memory: FolderMemory, value: float) -> None:
    memory.write({"weight": np.array([value], np.float32)}, 1)


def _value(memory: FolderMemory) -> float | None:
    found = memory.read(1)
    return float(found["weight"][0]) if found else None


@pytest.mark.parametrize("run", ["a", None])
def test_another_run_in_the_folder_begins_anew(tmp_path: Path, run: str | None) -> None:
    node = _node(tmp_path, run=run)
    _write(node.begin(7, goes_on=False), 1)
    assert _value(node.begin(7, goes_on=False)) == 1  # the next message of the same submission
    assert _value(node.begin(8, goes_on=True)) == 1
    assert _value(node.begin(7, goes_on=False)) == 1  # a late message of the one that was lost
    other = _node(tmp_path, folder="/outputs/other", run="o")
    _write(other.begin(9, goes_on=False), 2)
    new = _node(tmp_path, run="b")
    assert _value(new.begin(10, goes_on=False)) is None
    assert len(list(tmp_path.rglob(RUN))) == 2  # the former run of the folder is removed
    assert _value(other.begin(9, goes_on=False)) == 2


def test_a_folder_that_was_moved_or_copied_takes_along_what_clients_keep(tmp_path: Path) -> None:
    before = _node(tmp_path)
    _write(before.begin(7, goes_on=False), 1)
    copied = _node(tmp_path, folder="/outputs/copy").begin(8, goes_on=True)
    assert _value(copied) == 1
    _write(copied, 2)
    assert _value(before.begin(9, goes_on=True)) == 1


def test_a_copy_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    _write(_node(tmp_path).begin(7, goes_on=False), 1)
    moved = _node(tmp_path, folder="/outputs/moved")
    memory = moved.begin(8, goes_on=True)
    for path in memory.folder.iterdir():
        path.unlink()
    assert _value(moved.begin(8, goes_on=True)) == 1


def test_a_client_that_finds_nothing_says_so_and_takes_nothing_of_another_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(_node(tmp_path, run="a").begin(7, goes_on=False), 1)
    lost = _node(tmp_path, run="b")  # its first submission was lost before it reached this node
    assert _value(lost.begin(9, goes_on=True)) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("client 3 has nothing of the run in /outputs/run, which ")


def test_what_an_earlier_version_stored_is_found(tmp_path: Path) -> None:
    name = blake2b(b"/outputs/run", digest_size=8).hexdigest()
    place = tmp_path / name / "3"
    _write(FolderMemory(place, 1), 1)
    (place / RUN).write_text("7")
    node = _node(tmp_path, run=None)
    assert _value(node.begin(8, goes_on=True)) == 1
    assert json.loads((place / RUN).read_text())["submissions"] == ["7", "8"]
    assert _value(replace(node, run="b").begin(9, goes_on=False)) is None
    assert not place.exists()
