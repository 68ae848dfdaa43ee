"""What stays with a client is there again after a resume, as it was then."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fl_app.client.local_state import FolderMemory
from fl_app.client.own_sketch import OwnSketch
from fl_app.client.sketch_release import SketchRelease
from fl_app.client_app import ContextMemory, _own_updates, client_fn
from fl_app.run_config import of_run


def _value(memory: FolderMemory, until: int) -> float | None:
    found = memory.read(until)
    return float(found["1.running_mean"][0]) if found else None


def _write(memory: FolderMemory, *rounds: int) -> None:
    for number in rounds:
        memory.write({"1.running_mean": np.array([number], np.float32)}, number)


def test_each_round_reads_what_was_there_before_it(tmp_path: Path) -> None:
    memory = FolderMemory(tmp_path / "0", every=5)
    assert _value(memory, 9) is None
    _write(memory, 2, 4)
    assert [_value(memory, until) for until in (1, 2, 3, 4, 9)] == [None, 2, 2, 4, 4]
    _write(memory, 3)  # a resumed run plays round 3 again, and round 4 is still to come
    assert [_value(memory, until) for until in (2, 3, 9)] == [2, 3, 3]


def test_only_rounds_that_a_checkpoint_can_need_are_kept(tmp_path: Path) -> None:
    memory = FolderMemory(tmp_path / "0", every=2)
    _write(memory, *range(1, 10))
    assert _value(memory, 5) == 5  # of the checkpoint before the last one
    assert _value(memory, 4) is None
    assert len(list((tmp_path / "0").iterdir())) == 5


def test_clients_read_side_by_side(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    memory = FolderMemory(tmp_path / "0", every=1)
    memory.write({str(k): np.zeros((2, 3), np.float32) for k in range(20)}, 1)

    def pause(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)  # another thread goes on, as after any finaliser that a collection calls

    request.addfinalizer(partial(gc.callbacks.remove, pause))
    request.addfinalizer(partial(gc.set_threshold, *gc.get_threshold()))
    gc.callbacks.append(pause)
    gc.set_threshold(50)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(memory.read, [1] * 60))
    assert all(len(tensors) == 20 for tensors in found)


RUN = ["client.batch_norm=local", "network=mobilenet", "network.width=0.05", "population.clients=2",
       "engine=deployment", "records.folder=there"]  # fmt: skip


def _context(node: dict[str, str], *words: str, run_id: int = 3) -> Context:
    return Context(
        run_id=run_id, node_id=1, node_config={"partition-id": 0, **node}, state=RecordDict(),
        run_config={"overrides": " ".join(words)},
    )  # fmt: skip


def _memory(node: dict[str, str], *more: str, run_id: int = 3) -> object:
    client = client_fn(_context(node, *RUN, *more, run_id=run_id))
    return client.local.memory  # type: ignore[attr-defined]


def test_a_node_needs_a_folder_to_resume(tmp_path: Path) -> None:
    node = {"state-folder": str(tmp_path)}
    assert isinstance(_memory({}), ContextMemory)
    assert isinstance(
        _memory({}, "client.batch_norm=average", "records.resume=true"), ContextMemory
    )
    found = _memory(node, "records.resume=true")
    assert isinstance(found, FolderMemory)
    assert found.folder.is_relative_to(tmp_path)
    with pytest.raises(ValueError, match="must have state-folder to resume a run"):
        _memory({}, "records.resume=true")


LOST = ("records.resume=false", "records.restarts=1")
"""What a lost run is submitted again with: the settings of its start, and the number of losses."""


def test_a_run_that_was_lost_finds_what_it_left(tmp_path: Path) -> None:
    node = {"state-folder": str(tmp_path)}
    first = _memory(node, run_id=1)
    assert isinstance(first, FolderMemory)
    _write(first, 4, 5)
    again = _memory(node, *LOST, run_id=2)
    assert isinstance(again, FolderMemory)
    assert [_value(again, until) for until in (3, 4, 9)] == [None, 4, 5]  # round 1 begins anew
    with pytest.raises(ValueError, match=r"must have state-folder .* was lost, got none"):
        _memory({}, *LOST)


def test_a_sketch_that_was_released_stays_when_its_run_is_lost(tmp_path: Path) -> None:
    node, models = {"state-folder": str(tmp_path)}, [np.ones(3, np.float32)]

    def client(now: int, run_id: int, *more: str) -> OwnSketch:
        words = ("experiment=secure_flic", "engine=deployment", "strategy.randomness=system",
                 "records.folder=there", *more)  # fmt: skip
        context = _context(node, *words, run_id=run_id)
        config = of_run(context.run_config, on_client=True)
        release = SketchRelease.of(config.strategy.options)
        assert release is not None
        return OwnSketch(release, _own_updates(config, 0, context), config.seed, 0, now)

    client(1, 1).trained(np.zeros(3, np.float32), models[0])
    first = client(2, 1).released(models, lambda: slice(None))
    client(1, 2, *LOST).trained(np.zeros(3, np.float32), 2 * models[0])
    assert np.array_equal(client(2, 2, *LOST).released(models, lambda: slice(None)), first)
