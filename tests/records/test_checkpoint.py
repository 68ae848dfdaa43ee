"""A checkpoint comes back bit for bit, or is refused with the reason."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from kept import KEPT, same

from fl_app.records import checkpoint
from fl_app.records.checkpoint import (
    FILE,
    PREVIOUS,
    Checkpoint,
    CheckpointError,
    find,
    read,
    write,
)
from fl_app.records.tensors import BLOCK, CODES

DTYPES = sorted(CODES)
FINITE = {"allow_nan": False, "allow_infinity": False}
numbers = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype,
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0),
            elements=FINITE if "float" in dtype or "complex" in dtype else None,
        )
    ),
    state=st.dictionaries(st.text(), numbers),
    round=st.integers(0, 10**6),
)
def test_what_is_written_is_read(
    tmp_path: Path, array: np.ndarray, state: dict[str, object], round: int
) -> None:
    kept = Checkpoint(round, {"array": array}, state)
    write(tmp_path, kept)
    assert same(read(tmp_path), kept)


def test_strided_and_big_endian_arrays_keep_their_values(tmp_path: Path) -> None:
    grid = np.arange(12, dtype=np.float64).reshape(3, 4)
    write(tmp_path, Checkpoint(1, {"strided": grid[:, ::2], "big": grid.astype(">f8")}))
    arrays = read(tmp_path).arrays
    assert arrays["strided"].tolist() == [[0, 2], [4, 6], [8, 10]]
    assert arrays["big"].tolist() == grid.tolist()


def test_arrays_come_back_writable(tmp_path: Path) -> None:
    write(tmp_path, KEPT)
    read(tmp_path).arrays["models"][:] = 0


def test_floats_of_the_state_come_back_bit_for_bit(tmp_path: Path) -> None:
    values = [0.1 + 0.2, 1e-308, -1.7976931348623157e308]
    write(tmp_path, Checkpoint(1, {}, {"losses": values}))
    assert read(tmp_path).state["losses"] == values


def test_the_library_reads_our_file(tmp_path: Path) -> None:
    arrays = load_file(write(tmp_path, KEPT))
    assert arrays["models"].tolist() == [[1.5, -2.0]]
    assert arrays["store.ids"].tolist() == [3, 8]


def test_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .*nowhere"):
        read(tmp_path / "nowhere")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_is_refused(tmp_path: Path, share: float) -> None:
    path = write(tmp_path, Checkpoint(1, {"models": np.ones((4, 500), np.float32)}))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CheckpointError, match="truncated"):
        read(tmp_path)


def test_any_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, KEPT)
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError):
            read(tmp_path)


def test_a_flipped_bit_in_the_arrays_is_called_damage(tmp_path: Path) -> None:
    path = write(tmp_path, KEPT)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match=r"damaged.*digest"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"PK\x03\x04" * 99, bytes(64)])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="not a checkpoint of fl-app"):
        read(tmp_path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_safetensors_file_of_another_program_is_refused(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    save_file({"weight": np.ones(3)}, tmp_path / FILE, metadata)
    with pytest.raises(CheckpointError, match="not a checkpoint of fl-app"):
        read(tmp_path)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = checkpoint.VERSION
    monkeypatch.setattr(checkpoint, "VERSION", ours + 1)
    write(tmp_path, KEPT)
    monkeypatch.undo()
    reads = f"has version {ours + 1}, this program reads version {ours}"
    with pytest.raises(CheckpointError, match=reads):
        read(tmp_path)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Checkpoint(8, {"names": np.array(["a"])}), "array 'names' .* got dtype <U1"),
        (Checkpoint(8, {"things": np.array([None])}), "array 'things' .* got dtype object"),
        (Checkpoint(8, {"state.json": np.ones(1)}), "reserved"),
        (Checkpoint(8, {"__metadata__": np.ones(1)}), "reserved"),
        (Checkpoint(8, {}, {"members": {3: 0}}), "keys of the state must be strings, got 3"),
        (Checkpoint(8, {}, {"list": [({3: 0},)]}), "keys of the state must be strings, got 3"),
        (Checkpoint(8, {}, {"loss": np.ones(1)}), "the state must be JSON"),
        (Checkpoint(8, {"w": np.array([1, np.nan])}), "array 'w' must be finite, got nan"),
        (Checkpoint(8, {"w": np.float16([[1], [-np.inf]])}), "array 'w' must be finite, got -inf"),
        (Checkpoint(8, {"w": np.array(np.inf, np.float32)}), "array 'w' must be finite, got inf"),
        (Checkpoint(8, {}, {"loss": float("nan")}), "loss of the state must be finite, got nan"),
        (
            Checkpoint(8, {}, {"history": [{"accuracy": {"mean": 0.5}}, {"time": (1.0, np.inf)}]}),
            r"history\[1\].time\[1\] of the state must be finite, got inf",
        ),
    ],
)
def test_what_would_not_come_back_is_refused_and_the_former_stays(
    tmp_path: Path, bad: Checkpoint, reason: str
) -> None:
    write(tmp_path, KEPT)
    with pytest.raises(CheckpointError, match=reason):
        write(tmp_path, bad)
    assert same(read(tmp_path), KEPT)
    assert os.listdir(tmp_path) == [FILE]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    array=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(max_dims=3),
        elements=st.just(1.0),
    ),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
    data=st.data(),
)
def test_one_number_that_is_not_finite_is_found_wherever_it_stands(
    tmp_path: Path, array: np.ndarray, value: float, data: st.DataObject
) -> None:
    array.flat[data.draw(st.integers(0, array.size - 1))] = value
    with pytest.raises(CheckpointError, match="array 'w' must be finite"):
        write(tmp_path, Checkpoint(1, {"a": np.ones(3), "w": array}))
    assert not (tmp_path / FILE).exists()


def test_a_number_that_is_not_finite_is_found_behind_the_first_block(tmp_path: Path) -> None:
    array = np.zeros(BLOCK, np.float32)
    array[-1] = np.nan
    with pytest.raises(CheckpointError, match="array 'w' must be finite"):
        write(tmp_path, Checkpoint(1, {"w": array}))


def test_what_is_not_finite_is_not_read_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, KEPT)
    monkeypatch.setattr(np, "isfinite", lambda part: np.ones(part.shape, bool))
    write(tmp_path, Checkpoint(8, {"models": np.array([np.nan])}))
    monkeypatch.undo()
    found = find(tmp_path)
    assert same(found.checkpoint, KEPT)
    assert found.fault == "is damaged (array 'models' must be finite, got nan)"
    monkeypatch.setattr(checkpoint, "encode", lambda state: b'{"loss": NaN}')
    write(tmp_path, Checkpoint(9, {}))
    with pytest.raises(CheckpointError, match="a number of the state must be finite, got NaN"):
        read(tmp_path)  # and the one before it is not finite


def test_a_full_disk_leaves_the_former(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    write(tmp_path, KEPT)
    monkeypatch.setattr(checkpoint, "save", refuse)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, Checkpoint(8, {}))
    assert same(read(tmp_path), KEPT)
    assert os.listdir(tmp_path) == [FILE]


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from fl_app.records import tensors
from fl_app.records.checkpoint import Checkpoint, write

calls = 0
def die(array, raw=tensors.raw):
    global calls
    calls += 1
    if calls == 2:  # the first array is in the file, the second is not
        os.kill(os.getpid(), signal.SIGKILL)
    return raw(array)

tensors.raw = die
big = np.ones(1_000_000, np.float32)
write(Path(sys.argv[1]), Checkpoint(8, {"a": big, "b": big}))
"""


def test_a_killed_write_leaves_the_former_and_is_cleaned_by_the_next(tmp_path: Path) -> None:
    write(tmp_path, KEPT)
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert died.returncode == -signal.SIGKILL
    left = tmp_path / f"{FILE}.tmp"
    assert left.stat().st_size >= 4_000_000
    assert same(read(tmp_path), KEPT)
    write(tmp_path, Checkpoint(9, {}))
    assert sorted(os.listdir(tmp_path)) == [PREVIOUS, FILE]
    assert read(tmp_path).round == 9
