"""What stays with a client is there again after a resume, as it was then."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fl_app.client.local_state import FolderMemory, of_node
from fl_app.client_app import ContextMemory, client_fn


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


def test_another_run_of_a_node_begins_anew(tmp_path: Path) -> None:
    memory = of_node(tmp_path, "/outputs/run", 0, 1)
    memory.begin(7, resume=False)
    _write(memory, 1)
    memory.begin(7, resume=False)  # the next message of the same run
    assert _value(memory, 1) == 1
    memory.begin(8, resume=True)
    assert _value(memory, 1) == 1
    memory.begin(9, resume=False)
    assert _value(memory, 1) is None
    assert of_node(tmp_path, "/outputs/other", 0, 1).folder != memory.folder


RUN = ["client.batch_norm=local", "network=mobilenet", "network.width=0.05", "population.clients=2",
       "engine=deployment", "records.folder=there"]  # fmt: skip


def _memory(node: dict[str, str], *more: str) -> object:
    context = Context(
        run_id=3, node_id=1, node_config={"partition-id": 0, **node}, state=RecordDict(),
        run_config={"overrides": " ".join([*RUN, *more])},
    )  # fmt: skip
    client = client_fn(context)
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
