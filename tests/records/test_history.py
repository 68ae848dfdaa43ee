"""rounds.jsonl: a line a round, rewritten on resume, and strict JSON always."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_app.records.history import FIELDS, History, first_split, read_rounds, rejected, trained
from fl_app.records.names import ROUNDS


def record(round: int, **changed: Any) -> dict[str, Any]:
    return dict.fromkeys(FIELDS) | {"round": round} | changed


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def test_each_round_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert (tmp_path / ROUNDS).read_text() == ""
    for round in (1, 2):
        history.append(record(round, phase="federated"))
        assert read_rounds(tmp_path) == history.rounds
    assert [r["round"] for r in history.rounds] == [1, 2]


def test_who_trained_has_replied_to_a_training_in_any_round() -> None:
    failed = {"0": "evaluation: gone", "1": "gone", "node 9": "gone"}
    first = record(1, sampled=[0, 1, 2, 3], failed=failed, rejected={"3": "a liar"})
    assert trained([]) == trained([record(1)]) == set()
    assert trained([first]) == {0, 2}
    assert trained([first, record(2, sampled=[1])]) == {0, 1, 2}


def test_a_client_whose_training_and_evaluation_are_rejected_counts_for_both() -> None:
    both = {"5": "model must be finite; evaluation: loss must be a number; evaluation: one more"}
    rounds = [
        record(1, rejected=both),
        record(2, rejected={"5": "evaluation: loss must be a number", "node 77": "no id"}),
        record(3, rejected={}),
    ]
    assert rejected(rounds) == (2, 2)


def test_resuming_drops_the_rounds_after_the_checkpoint(tmp_path: Path) -> None:
    lost = History(tmp_path)
    for round in (1, 2, 3):
        lost.append(record(round))
    resumed = History(tmp_path, lost.rounds[:1])
    resumed.append(record(2, train_loss=0.5))
    assert [r["train_loss"] for r in read_rounds(tmp_path)] == [None, 0.5]
    assert resumed.rounds == read_rounds(tmp_path)
    assert len(lost.rounds) == 3


def test_a_fresh_history_starts_from_nothing(tmp_path: Path) -> None:
    History(tmp_path).append(record(1))
    History(tmp_path)
    assert read_rounds(tmp_path) == []


def test_what_is_not_a_number_becomes_null(tmp_path: Path) -> None:
    history = History(tmp_path)
    values = {"a": float("nan"), "b": np.float32("inf"), "c": np.array([1.0, -np.inf])}
    history.append(record(1, train_loss=float("nan"), time=values))
    kept = json.loads((tmp_path / ROUNDS).read_text(), parse_constant=refuse)
    assert kept["train_loss"] is None
    assert kept["time"] == {"a": None, "b": None, "c": [1.0, None]}


def test_numpy_and_client_ids_become_json(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.append(
        record(1, sampled=np.array([2, 5]), failed={np.int64(5): "gone"}, step=np.bool_(1))
    )
    kept = read_rounds(tmp_path)[0]
    assert (kept["sampled"], kept["failed"], kept["step"]) == ([2, 5], {"5": "gone"}, True)


def test_a_reason_with_line_breaks_stays_one_line(tmp_path: Path) -> None:
    reason = "first\nsecond\u2028third\x85"
    History(tmp_path).append(record(1, failed={"3": reason}))
    assert read_rounds(tmp_path)[0]["failed"] == {"3": reason}


@pytest.mark.parametrize(
    ("bad", "error", "reason"),
    [
        ({"round": 2}, ValueError, "round 2 must contain phase, sampled"),
        (record(2, events={1}), TypeError, r"got \{1\} \(set\)"),
    ],
)
def test_a_bad_record_changes_nothing(
    tmp_path: Path, bad: dict[str, Any], error: type[Exception], reason: str
) -> None:
    history = History(tmp_path)
    history.append(record(1))
    with pytest.raises(error, match=reason):
        history.append(bad)
    assert history.rounds == read_rounds(tmp_path) == [record(1)]


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    History(tmp_path).append(record(1))
    with (tmp_path / ROUNDS).open("a") as file:
        file.write('{"round": 2, "pha')
    assert read_rounds(tmp_path) == [record(1)]


def test_a_character_cut_short_is_left_out(tmp_path: Path) -> None:
    History(tmp_path).append(record(1))
    with (tmp_path / ROUNDS).open("ab") as file:
        file.write('{"round": 2, "phase": "\u2028'.encode()[:-1])
    assert read_rounds(tmp_path) == [record(1)]


@pytest.mark.parametrize("line", [b"{nothing}", b"[1]", b'{"a": "\xff"}'])
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / ROUNDS).write_bytes(json.dumps(record(1)).encode() + b"\n" + line + b"\n")
    with pytest.raises(ValueError, match="line 2 of"):
        read_rounds(tmp_path)


def test_the_first_split_has_several_communities_if_any_has() -> None:
    def of(number: int, count: int | None, *kinds: str) -> dict[str, Any]:
        communities = None if count is None else {"count": count}
        return {"round": number, "communities": communities, "events": [{"kind": k} for k in kinds]}

    alone, later = of(2, 1, "clustered"), of(4, 3, "undone", "clustered")
    quiet, gone = of(3, 1), of(5, None, "removed")
    assert first_split([quiet]) is None
    assert first_split([alone, quiet]) is alone
    assert first_split([alone, quiet, later, of(6, 4, "clustered")]) is later
    assert first_split([quiet, gone, later]) is gone
    assert first_split([quiet, gone, later], ("clustered",)) is later
