"""What Prometheus reads of a run."""

import json
import logging
import socket
import threading
import time
import urllib.request
from math import inf
from pathlib import Path

import pytest

from fl_app.records import metrics as module
from fl_app.records.metrics import MOST_RULES, Endpoint, Metrics, Scrapes, outcomes
from fl_app.records.structured_logs import FIELDS, JsonLines, beside, structured, words

IDENTITY = {"strategy": "flic", "engine": "inprocess", "seed": 0}
RECORD = {
    "round": 3,
    "phase": "clustered",
    "sampled": [0, 1, 2, 3],
    "failed": {"1": "gone"},
    "rejected": {"2": "loss must be a number in 0..1, got 'x must be y'"},
    "lost": [1],
    "train_loss": 0.5,
    "accuracy": {"mean": 0.75, "std": 0.1, "clients": {}},
    "communities": {"count": 2},
    "privacy": {"epsilon": {"max": 1.5}},
    "events": [],
    "bytes": {"down": 100, "up": 60},
    "time": {"training_s": 2.0, "server_s": 0.5, "evaluation_s": 1.0},
}


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"678")
    return Metrics(tmp_path, IDENTITY, 10)


def read(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"fl_app_{name}", labels)


def test_a_round_sets_the_last_values_and_adds_to_the_totals(metrics: Metrics) -> None:
    metrics.round(RECORD)
    metrics.round(RECORD | {"accuracy": None, "privacy": None, "communities": None})
    assert read(metrics, "round") == 3
    assert read(metrics, "rounds_planned") == 10
    assert read(metrics, "round_seconds", phase="training") == 2.0
    assert read(metrics, "seconds_total", phase="evaluation") == 2.0
    assert read(metrics, "clients", outcome="answered") == 2
    assert read(metrics, "replies_total", outcome="rejected") == 2
    assert read(metrics, "rejections_total", rule="loss") == 2
    assert read(metrics, "accuracy", statistic="mean") == 0.75
    assert read(metrics, "communities") == 2
    assert read(metrics, "epsilon_spent") == 1.5
    assert read(metrics, "transferred_bytes_total", direction="up") == 120
    assert read(metrics, "stored_bytes", part="all") == 8
    assert read(metrics, "stored_bytes", part="checkpoint") == 5
    assert read(metrics, "run_state", state="running") == 1
    assert read(metrics, "run", strategy="flic", engine="inprocess", seed="0") == 1


def test_rounds_in_which_nobody_was_learnt_from_are_counted(metrics: Metrics) -> None:
    metrics.round(RECORD)
    assert read(metrics, "rounds_skipped_total") == 0
    for kind in ("skipped", "model skipped"):  # of the second, other models were trained
        metrics.round(RECORD | {"events": [{"kind": kind, "detail": "no sum"}]})
    assert read(metrics, "rounds_skipped_total") == 1


def test_what_was_released_without_noise_has_spent_an_infinite_budget(metrics: Metrics) -> None:
    metrics.round(RECORD | {"privacy": {"epsilon": {"max": None}}})
    assert read(metrics, "epsilon_spent") == inf


def test_the_best_accuracy_is_that_of_the_run(metrics: Metrics) -> None:
    assert read(metrics, "accuracy_best") == 0.0
    for mean, best in ((0.4, 0.4), (0.75, 0.75), (0.5, 0.75)):
        metrics.round(RECORD | {"accuracy": {"mean": mean, "std": 0.1}})
        assert read(metrics, "accuracy_best") == best


def test_a_round_ends_when_it_is_trained_though_its_record_comes_later(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1234.0)
    metrics.trained()
    assert read(metrics, "round_end_timestamp_seconds") == 1234.0
    assert read(metrics, "round") == 0


def test_what_clients_send_makes_few_labels(metrics: Metrics) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    whys = [f"{a}{b} must be a number, got 1" for a in letters[:10] for b in letters[:10]]
    whys.append("no rule at all")
    metrics.round(RECORD | {"rejected": {str(n): why for n, why in enumerate(whys)}})
    family = next(f for f in metrics.registry.collect() if f.name == "fl_app_rejections")
    rules = {sample.labels["rule"] for sample in family.samples}
    assert len(rules) == MOST_RULES + 1
    assert "other" in rules


def test_a_label_is_never_what_a_client_sent(metrics: Metrics) -> None:
    quoted = "'report.x' must be a report that was asked for, got 'mine must be so'"
    metrics.round(
        RECORD | {"rejected": {"0": quoted, "1": "evaluation: counts of points must be at least 0"}}
    )
    assert read(metrics, "rejections_total", rule="other") == 1
    assert read(metrics, "rejections_total", rule="points") == 1
    assert read(metrics, "rejections_total", rule="mine") is None


def test_outcomes_count_each_client_once() -> None:
    found = outcomes(RECORD)
    assert found == {"asked": 4, "answered": 2, "failed": 1, "rejected": 1, "lost": 1}


def test_who_trained_in_the_end_has_answered() -> None:
    failed = {"0": "evaluation: gone; try again", "1": "attempt 1: gone; try again", "2": "gone"}
    rejected = {
        "3": "evaluation: a must be b; evaluation: c must be d",
        "4": "attempt 1: a must be b; attempt 2: a must be b",
        "5": "attempt 1: a must be b; c must be d",
        "6": "a must be b; evaluation: c must be d",
    }
    record = {"sampled": [*range(8)], "failed": failed, "rejected": rejected}
    found = outcomes(RECORD | record)
    assert found == {"asked": 8, "answered": 5, "failed": 3, "rejected": 4, "lost": 1}


def test_before_the_first_round_the_start_of_the_run_counts_as_its_end(metrics: Metrics) -> None:
    found = read(metrics, "round_end_timestamp_seconds")
    assert found is not None
    assert 0 <= time.time() - found < 3600


def scraped(endpoint: Endpoint) -> str:
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def closed(endpoint: Endpoint) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", endpoint.port)) != 0


def test_the_endpoint_is_read_over_http_until_the_run_ends(metrics: Metrics) -> None:
    metrics.round(RECORD)
    endpoint = Endpoint(metrics, host="127.0.0.1", port=0, hurry=lambda: False)
    assert 'fl_app_clients{outcome="asked"} 4.0' in scraped(endpoint)
    endpoint.close("completed")
    assert read(metrics, "run_state", state="completed") == 1
    assert closed(endpoint)


def test_the_endpoint_takes_its_port_when_a_lost_process_leaves_it(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as lost:
        port = lost.getsockname()[1]
        endpoint = Endpoint(metrics, host="127.0.0.1", port=port, hurry=lambda: False)
        assert f"no metrics endpoint until port {port} is free" in caplog.text
    while f"metrics: http://127.0.0.1:{port}" not in caplog.text:
        time.sleep(0.01)
    assert "fl_app_rounds_planned 10.0" in scraped(endpoint)
    endpoint.close("completed")
    assert closed(endpoint)


def test_a_run_ends_whose_endpoint_never_had_its_port(metrics: Metrics) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        endpoint = Endpoint(metrics, host="127.0.0.1", port=port, hurry=lambda: False)
        endpoint.close("completed")
    assert read(metrics, "run_state", state="completed") == 1


def test_the_end_of_a_run_is_read_by_who_scrapes_it(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.01)
    monkeypatch.setattr(module, "LATE", 1e6)
    endpoint = Endpoint(metrics, host="127.0.0.1", port=0, hurry=lambda: False)
    scraped(endpoint)
    scraped(endpoint)
    ending = threading.Thread(target=endpoint.close, args=("completed",))
    ending.start()
    states = []
    while ending.is_alive():
        states.append(read(metrics, "run_state", state="completed"))
        read(metrics, "scrapes")  # the metric that counts is the last one
        time.sleep(0.01)
    assert states.count(1.0) >= 1
    assert closed(endpoint)


@pytest.mark.parametrize(
    ("scrapes", "later_s", "expected"),
    [
        ([], 0, 0),
        ([5], 0, 0),
        ([5, 15], 0, 15),
        ([5, 15], 10, 5),
        ([5, 15], 20, 0),
        ([0, 90], 0, 90),
    ],
)
def test_only_a_scraper_that_still_comes_is_waited_for(
    scrapes: list[float], later_s: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([*scrapes, (scrapes or [0])[-1] + later_s])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    found = Scrapes()
    for _ in scrapes:
        found.note()
    assert found.due() == expected


@pytest.mark.parametrize(("status", "hurry"), [("interrupted", False), ("completed", True)])
def test_a_run_that_was_asked_to_end_waits_for_no_scrape(
    status: str, hurry: bool, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LATE", 1e6)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: pytest.fail("it waits"))
    endpoint = Endpoint(metrics, host="127.0.0.1", port=0, hurry=lambda: hurry)
    scraped(endpoint)
    scraped(endpoint)
    endpoint.close(status)
    assert closed(endpoint)


def test_the_fields_of_a_log_line_are_words() -> None:
    assert words({"phase": "federated", "loss": 0.12345, "accuracy": None, "communities": 3}) == (
        "phase=federated loss=0.123 communities=3"
    )


def test_a_logger_writes_once_beside_another_whatever_its_form() -> None:
    ours, theirs = (logging.getLogger(f"of_this_test_{name}") for name in ("ours", "theirs"))
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(handler.format(record))  # type: ignore[method-assign]
    theirs.addHandler(handler)
    beside(ours, theirs)
    beside(ours, theirs)
    ours.info("round %d", 1)
    structured(theirs)
    ours.info("round %d", 2)
    assert heard[0] == "round 1"
    assert json.loads(heard[1])["message"] == "round 2"
    assert len(heard) == 2


def test_log_lines_are_objects_with_fields_and_exceptions(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("fl_app_of_this_test")
    structured(logger)
    logger.info("round %d", 3, extra={FIELDS: {"round": 3, "folder": Path("a")}})
    try:
        raise ValueError("no é")
    except ValueError:
        logger.exception("it failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["message"], first["round"], first["level"]) == ("round 3", 3, "info")
    assert first["folder"] == "a"
    assert second["exception"].endswith("ValueError: no é")
    structured(logger)
    assert [type(each.formatter) for each in logger.handlers] == [JsonLines]
