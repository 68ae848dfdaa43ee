"""The previous checkpoint is taken where the last is not whole; no kill leaves neither."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
from kept import KEPT, same

from fl_app.records import checkpoint
from fl_app.records.checkpoint import (
    DAMAGED,
    FILE,
    FORMER,
    PREVIOUS,
    Checkpoint,
    CheckpointError,
    find,
    read,
    retire,
    set_aside,
    write,
)
from fl_app.records.tensors import BLOCK


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with the checkpoints of rounds 7 and 8."""
    write(tmp_path, KEPT)
    write(tmp_path, Checkpoint(8, {"models": np.ones((2, 2), np.float32)}, {"losses": []}))
    return tmp_path


def test_the_newest_is_taken_and_the_one_before_is_kept_beside_it(two: Path) -> None:
    found = find(two)
    assert str(found) == "resuming after round 8 from checkpoint.safetensors"
    os.replace(two / PREVIOUS, two / FILE)
    assert same(read(two), KEPT)


def _missing(whole: bytes) -> None:
    return None


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (_missing, "is missing"),
        (lambda whole: b"", r"is not a checkpoint of fl-app \(.*\)"),
        (lambda whole: whole[: len(whole) // 2], r"is truncated or damaged \(.*\)"),
        (lambda whole: whole[:-1] + b"?", r"is damaged \(.* its SHA-256 digest\)"),
        (lambda whole: whole + b"more", r"is truncated or damaged \(.*\)"),
        (lambda whole: bytes(len(whole)), r"is not a checkpoint of fl-app \(.*\)"),
    ],
)
def test_where_the_newest_is_not_whole_the_one_before_is_taken_and_said(
    two: Path, damage: Callable[[bytes], bytes | None], fault: str
) -> None:
    content = damage((two / FILE).read_bytes())
    (two / FILE).unlink()
    if content is not None:
        (two / FILE).write_bytes(content)
    found = find(two)
    assert same(found.checkpoint, KEPT)
    said = f"checkpoint.safetensors {fault}: resuming after round 7 from {PREVIOUS}"
    assert re.fullmatch(said, str(found))


def test_a_file_that_the_disk_cannot_read_is_passed_over(two: Path) -> None:
    (two / FILE).unlink()
    (two / FILE).mkdir()  # opening it raises an OSError for root too
    found = find(two)
    assert same(found.checkpoint, KEPT)
    assert "cannot be read" in str(found)


def test_no_flipped_bit_is_ever_taken_for_the_newest(two: Path) -> None:
    whole = (two / FILE).read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        (two / FILE).write_bytes(damaged)
        try:
            assert same(read(two), KEPT)
        except CheckpointError as error:  # the bit turned the version's digit into another
            assert "has version" in str(error)  # noqa: PT017


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=200))
def test_whatever_stands_in_its_place_the_one_before_is_taken(two: Path, content: bytes) -> None:
    (two / FILE).write_bytes(content)
    assert find(two).file == PREVIOUS


def test_both_damaged_is_refused_with_both_reasons(two: Path) -> None:
    (two / FILE).write_bytes(b"no checkpoint")
    (two / PREVIOUS).write_bytes((two / PREVIOUS).read_bytes()[:-1])
    both = r"checkpoint.safetensors is not a .*, .*previous.safetensors is truncated .* copy"
    with pytest.raises(CheckpointError, match=both):
        read(two)
    (two / PREVIOUS).unlink()
    with pytest.raises(CheckpointError, match=r"is not a .*, checkpoint.previous.* is missing; "):
        read(two)


def test_an_older_one_is_not_taken_in_place_of_one_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, KEPT)
    monkeypatch.setattr(checkpoint, "VERSION", checkpoint.VERSION + 1)
    monkeypatch.setattr(checkpoint, "_verify", lambda path: None)
    write(tmp_path, Checkpoint(8, {}))
    monkeypatch.undo()
    other = f"has version {checkpoint.VERSION + 1}"
    with pytest.raises(CheckpointError, match=other):
        read(tmp_path)
    os.replace(tmp_path / FILE, tmp_path / PREVIOUS)
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=rf"is not a .*, .*previous.* has version {checkpoint.VERSION + 1}"
    ):
        read(tmp_path)


def test_a_damaged_one_set_aside_never_becomes_the_one_before(two: Path) -> None:
    (two / FILE).write_bytes(b"damaged")
    set_aside(two)
    assert sorted(os.listdir(two)) == [DAMAGED, PREVIOUS]
    write(two, Checkpoint(9, {}))
    assert read(two).round == 9
    (two / FILE).unlink()
    assert same(read(two), KEPT)
    set_aside(two)
    assert (two / DAMAGED).read_bytes() == b"damaged"


def test_a_new_run_never_goes_on_from_the_checkpoint_of_another(two: Path) -> None:
    retire(two)
    assert os.listdir(two) == [FORMER]
    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        find(two)
    write(two, Checkpoint(1, {}))
    assert os.listdir(two) == [FILE]
    os.replace(two / FILE, two / PREVIOUS)
    retire(two)
    retire(two)
    assert os.listdir(two) == [FORMER]


@pytest.mark.parametrize("spoil", [lambda data: data[:-9], lambda data: data[:-1] + b"?"])
def test_what_the_disk_gives_back_otherwise_replaces_nothing(
    two: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes]
) -> None:
    def lie(path: Path) -> None:
        path.write_bytes(spoil(path.read_bytes()))

    before = {path.name: path.read_bytes() for path in two.iterdir()}
    monkeypatch.setattr(checkpoint, "flush", lie)
    with pytest.raises(CheckpointError, match=r"tmp is .*damaged .*; check the disk"):
        write(two, Checkpoint(9, {"w": np.ones(5)}))
    assert {path.name: path.read_bytes() for path in two.iterdir()} == before


def test_the_check_takes_no_memory_for_the_arrays(tmp_path: Path) -> None:
    kept = Checkpoint(1, {"w": np.ones((8, BLOCK), np.float32)})  # 32 MiB
    tracemalloc.start()
    write(tmp_path, kept)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20


KILLED_AT = """
import os, signal, sys
from pathlib import Path
import numpy as np
from fl_app.records.checkpoint import Checkpoint, write

left = int(sys.argv[2])
def die(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

new = Checkpoint(9, {"w": np.ones(5)})
sys.addaudithook(die)
write(Path(sys.argv[1]), new)
"""


def test_a_kill_before_any_file_operation_leaves_a_whole_checkpoint(
    two: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kills, taken = 0, []
    while True:
        folder = tmp_path_factory.mktemp("killed") / "checkpoint"
        shutil.copytree(two, folder)
        command = [sys.executable, "-c", KILLED_AT, str(folder), str(kills)]
        died = subprocess.run(command, check=False, timeout=60)
        taken.append(read(folder).round)
        write(folder, Checkpoint(10, {}))
        assert read(folder).round == 10
        if died.returncode == 0:
            break
        assert died.returncode == -signal.SIGKILL
        kills += 1
    assert kills >= 6
    assert set(taken) == {8, 9}
    assert taken == sorted(taken)


WRITING = """
import sys
from pathlib import Path
import numpy as np
from fl_app.records.checkpoint import Checkpoint, write

for number in range(10**6):
    write(Path(sys.argv[1]), Checkpoint(number, {"w": np.full(300_000, number, np.float32)}))
    print(number, flush=True)
"""


@pytest.mark.parametrize("wait", range(8))
def test_a_kill_at_any_moment_loses_no_checkpoint_that_was_written(
    tmp_path: Path, wait: int
) -> None:
    delay = float(np.random.default_rng(wait).uniform(0, 0.1))
    command = [sys.executable, "-c", WRITING, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.kill()
    rest = process.communicate()[0].split()
    kept = read(tmp_path)
    assert kept.round >= int(rest[-1] if rest else 0)
    assert (kept.arrays["w"] == kept.round).all()
