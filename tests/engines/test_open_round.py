"""A run that ends while a round waits for its scores gets them when it is resumed."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "client"))
from carried_runs import ALL, CARRIED, NORM, Watched, assert_same, records, run, summary

from fl_app.engines import stop_request
from fl_app.engines.client_messenger import ClientMessenger
from fl_app.engines.plain_exchange import PlainExchange
from fl_app.records import checkpoint


@pytest.mark.parametrize("words", [ALL, ("strategy=communities",), ("strategy=fedavg", *NORM)])
def test_a_killed_run_gets_the_scores(words: tuple[str, ...], tmp_path: Path) -> None:
    copy = tmp_path / "killed"

    def at(kind: str, server_round: str) -> None:
        if server_round == "3" and not copy.exists():
            shutil.copytree(tmp_path / "whole", copy)

    run(tmp_path / "whole", *words, CARRIED, watched=Watched(at=at))
    found = checkpoint.read(copy / "checkpoint")
    assert (found.round, len(found.state["history"]), len(records(copy))) == (2, 1, 1)
    watched = Watched()
    run(copy, *words, CARRIED, "records.resume=true", watched=watched)
    assert watched.seen["evaluate", "2"]
    assert not watched.seen["train", "2"]
    assert_same(tmp_path / "whole", copy)


@pytest.mark.parametrize("again", [False, True])
def test_a_stopped_run_gets_the_scores(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(at: str) -> None:
        def send(self: ClientMessenger, server_round: int, contents: Any) -> Any:
            if (contents[0][1], server_round) == (at, int(at == "train") + 2):
                raise KeyboardInterrupt
            return sent(self, server_round, contents)

        monkeypatch.setattr(ClientMessenger, "send", send)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped", *ALL, CARRIED, *resumed)

    run(tmp_path / "whole", *ALL, CARRIED)
    sent, resumed = ClientMessenger.send, ()
    stops("train")
    before, resumed = records(tmp_path / "stopped"), ("records.resume=true",)
    if again:
        stops("evaluate")
    monkeypatch.setattr(ClientMessenger, "send", sent)
    stopped = records(tmp_path / "stopped")
    assert before == stopped
    assert [record["accuracy"] is None for record in stopped] == [False, True]
    assert summary(tmp_path / "stopped")["status"] == "interrupted"
    assert checkpoint.read(tmp_path / "stopped" / "checkpoint").round == 2
    run(tmp_path / "stopped", *ALL, CARRIED, *resumed)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_a_stop_that_comes_while_the_server_learns_waits_for_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = PlainExchange.learn

    def asked(self: PlainExchange, server_round: int, failures: Any) -> Any:
        if server_round == 2:
            stop_request.ask(tmp_path)
            assert stop_request._loop.asked.wait(60)
        return learn(self, server_round, failures)

    monkeypatch.setattr(PlainExchange, "learn", asked)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, *ALL, CARRIED)
    assert [record["accuracy"] is None for record in records(tmp_path)] == [False, False]
