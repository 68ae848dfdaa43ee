"""Alerts and the dashboard ask for what a run exposes, and Prometheus answers."""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fl_app.engines.ports import free_ports
from fl_app.engines.processes import Process, Supervisor, wait_for_port
from fl_app.records.metrics import Endpoint, Metrics

FOLDER = Path(__file__).resolve().parents[2] / "monitoring"
BOARD = json.loads((FOLDER / "grafana" / "dashboards" / "fl-app.json").read_text())
RULES = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
PANELS = [(panel["title"], target) for panel in BOARD["panels"] for target in panel["targets"]]
NAME = re.compile(r"\b(?:fl_app_\w+|up\b)")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
JOINED = re.compile(r"\b(?:on|ignoring|by|without|group_left|group_right)\s*\(([^)]*)\)")
SHOWN = re.compile(r"{{\s*(?:\$labels\.)?(\w+)\s*}}")
OF_PROMETHEUS = {"instance", "job"}
"""Labels that a scrape adds."""
WAIT_S = 120.0
RECORD = {
    "round": 3,
    "phase": "clustered",
    "sampled": [0, 1, 2],
    "failed": {"1": "gone"},
    "rejected": {"2": "loss must be a number in 0..1, got 2"},
    "lost": [1],
    "train_loss": 0.5,
    "accuracy": {"mean": 0.75, "std": 0.1, "clients": {}},
    "communities": {"count": 2},
    "privacy": {"epsilon": {"max": 1.5}},
    "events": [],
    "bytes": {"down": 100, "up": 60},
    "time": {"training_s": 2.0, "server_s": 0.5, "evaluation_s": 1.0},
}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    found = Metrics(tmp_path_factory.mktemp("run"), {"strategy": "flic"}, 10)
    found.round(RECORD)
    return found


@pytest.fixture(scope="module")
def exposed(metrics: Metrics) -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric, as a scrape reads them."""
    found: dict[str, dict[str, set[str]]] = {"up": {"job": {"fl-app"}}}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def unknown(expression: str, shown: str, exposed: Mapping[str, Mapping[str, set[str]]]) -> set[str]:
    """Return the metrics, labels and values of an expression and its legend that no run has."""
    names = set(NAME.findall(expression))
    assert names
    labels = {each: exposed[name][each] for name in names & {*exposed} for each in exposed[name]}
    there = {*labels} | OF_PROMETHEUS
    joined = {label.strip() for group in JOINED.findall(expression) for label in group.split(",")}
    matched = MATCHER.findall(expression)
    asked = joined | {label for label, _, _ in matched} | ({*SHOWN.findall(shown)} - {"value"})
    values = {
        f'{label}="{value}"'
        for label, sign, value in matched
        if sign == "=" and label in labels and value not in labels[label]
    }
    return (names - {*exposed}) | (asked - there) | values


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_a_run_has(rule: Any, exposed: Any) -> None:
    assert unknown(rule["expr"], rule["annotations"]["summary"], exposed) == set()


@pytest.mark.parametrize(("title", "target"), PANELS, ids=[title for title, _ in PANELS])
def test_a_panel_asks_for_what_a_run_has(title: str, target: Any, exposed: Any) -> None:
    assert unknown(target["expr"], target["legendFormat"], exposed) == set()


@pytest.mark.parametrize(
    ("expression", "shown", "what"),
    [
        ("fl_app_rounds", "", {"fl_app_rounds"}),
        ('fl_app_clients{result="asked"}', "", {"result"}),
        ('fl_app_clients{outcome="gone"}', "", {'outcome="gone"'}),
        ("fl_app_round < on(run) fl_app_rounds_planned", "", {"run"}),
        ("fl_app_seconds_total", "{{state}}", {"state"}),
        ('up{job="fl-app"}', "{{ $labels.instance }}", set()),
    ],
)
def test_what_no_run_has_is_found(
    expression: str, shown: str, what: set[str], exposed: Any
) -> None:
    assert unknown(expression, shown, exposed) == what


@pytest.fixture(scope="module")
def prometheus(metrics: Metrics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes the run every second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed, as by apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    shutil.copy(FOLDER / "alerts.yml", folder)
    endpoint = Endpoint(metrics, host="127.0.0.1", port=0, hurry=lambda: True)
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{endpoint.port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    words = [program, f"--config.file={folder / 'prometheus.yml'}"]
    words += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with Supervisor({}) as supervisor:
        process = supervisor.start("prometheus", words, log=folder / "log", cwd=folder)
        wait_for_port(process, port, timeout_s=WAIT_S)
        _until_scraped_twice(process, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    endpoint.close("completed")


def _until_scraped_twice(process: Process, address: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not _ready(address) or float(_value(address, "count_over_time(fl_app_round[1m])")) < 2:
        process.must_be_alive()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _ready(address: str) -> bool:
    """Whether Prometheus answers; before it has read its data, it refuses each request."""
    try:
        with urllib.request.urlopen(f"{address}/-/ready"):
            return True
    except urllib.error.HTTPError:
        return False


def _value(address: str, expression: str) -> str:
    found = _asked(address, "query", query=expression)["result"]
    return str(found[0]["value"][1]) if found else "0"


def _asked(address: str, path: str, **words: str) -> Any:
    url = f"{address}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        told = json.load(answer)
    assert told["status"] == "success"
    return told["data"]


@pytest.mark.parametrize(("title", "target"), PANELS, ids=[title for title, _ in PANELS])
def test_prometheus_answers_each_panel(title: str, target: Any, prometheus: str) -> None:
    found = _shown(prometheus, target)
    assert found
    for series in found:
        assert {*SHOWN.findall(target["legendFormat"])} <= {*series["metric"]}
        assert series["value"][1] != "NaN"


def _shown(address: str, target: Mapping[str, Any]) -> Any:
    """Return the series of a panel, as Grafana asks for them of all instances."""
    query = target["expr"].replace("$instance", ".+")
    query = query.replace("$__rate_interval", "1m").replace("$__range", "1h")
    assert "$" not in query
    return _asked(address, "query", query=query)["result"]


def test_the_first_rejection_of_a_field_is_in_its_panel(prometheus: str) -> None:
    (target,) = (target for title, target in PANELS if title == "Rejections by field")
    (series,) = _shown(prometheus, target)
    assert (series["metric"]["rule"], series["value"][1]) == ("loss", "1")


def test_the_panel_of_the_state_has_the_last_state_and_its_name(
    prometheus: str, metrics: Metrics
) -> None:
    (panel,) = (panel for panel in BOARD["panels"] if panel["title"] == "State")
    (target,) = panel["targets"]
    assert panel["options"]["textMode"] == "name"  # by itself, one series shows its value: 1
    assert target["instant"]  # a range has all states that the run had in it
    assert [series["metric"]["state"] for series in _shown(prometheus, target)] == ["running"]
    metrics.set_state("completed")
    deadline, states = time.monotonic() + WAIT_S, ["running"]
    while states == ["running"] and time.monotonic() < deadline:
        time.sleep(0.2)
        states = [series["metric"]["state"] for series in _shown(prometheus, target)]
    assert states == ["completed"]


def test_prometheus_lists_the_runs_that_the_dashboard_chooses_from(prometheus: str) -> None:
    (variable,) = BOARD["templating"]["list"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
    found = _asked(prometheus, f"label/{label}/values", **{"match[]": metric})
    assert [value.partition(":")[0] for value in found] == ["127.0.0.1"]


def test_prometheus_evaluates_each_alert(prometheus: str) -> None:
    deadline, rules = time.monotonic() + WAIT_S, dict[str, Any]()
    while not rules or (
        rules["FlAppRejections"]["state"] != "firing" and time.monotonic() < deadline
    ):
        time.sleep(0.2)
        (group,) = _asked(prometheus, "rules")["groups"]
        rules = {rule["name"]: rule for rule in group["rules"]}
    assert {name: rule["health"] for name, rule in rules.items()} == {
        rule["alert"]: "ok" for rule in RULES
    }
    assert rules["FlAppRejections"]["state"] == "firing"
    assert rules["FlAppClientsMissing"]["state"] == "pending"
    assert rules["FlAppNoRound"]["state"] == "inactive"


IN_RUN = 'job="fl-app",instance="s:9464"'
A_NEW_RUN = {
    f'fl_app_accuracy{{{IN_RUN},statistic="mean"}}': "0.95x30 _x60 0.1+0.01x60",
    f"fl_app_accuracy_best{{{IN_RUN}}}": "0.95x30 _x60 0.1+0.01x60",
}
"""A run reaches 0.95 and ends; an hour later another one begins at 0.1 and learns."""
A_FALL = {
    f'fl_app_accuracy{{{IN_RUN},statistic="mean"}}': "0.95x30 0.7x90",
    f"fl_app_accuracy_best{{{IN_RUN}}}": "0.95x120",
}


@pytest.mark.parametrize(("series", "fires"), [(A_NEW_RUN, False), (A_FALL, True)])
def test_the_accuracy_is_compared_with_that_of_its_own_run(
    series: Mapping[str, str], fires: bool, tmp_path: Path
) -> None:
    check_alert("FlAppAccuracyFalls", series, fires, tmp_path)


@pytest.mark.parametrize(("skipped", "fires"), [("0x120", False), ("0x100 1+1x20", True)])
def test_rounds_alert_that_train_no_model(skipped: str, fires: bool, tmp_path: Path) -> None:
    series = {f"fl_app_rounds_skipped_total{{{IN_RUN}}}": skipped}
    check_alert("FlAppRoundsSkipped", series, fires, tmp_path)


def check_alert(name: str, series: Mapping[str, str], fires: bool, folder: Path) -> None:
    """Let Prometheus say whether an alert fires after 105 minutes of these series."""
    if (program := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed, as by apt-get install prometheus")
    (summary,) = (rule["annotations"]["summary"] for rule in RULES if rule["alert"] == name)
    summary = summary.replace("{{ $labels.instance }}", "s:9464")
    labels = {"job": "fl-app", "instance": "s:9464", "severity": "warning"}
    fired = {"exp_labels": labels, "exp_annotations": {"summary": summary}}
    told = {"eval_time": "105m", "alertname": name}
    told["exp_alerts"] = [fired] if fires else []
    given = [{"series": each, "values": values} for each, values in series.items()]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": [told]}
    file = folder / "tests.yml"
    rules = [str(FOLDER / "alerts.yml")]
    file.write_text(yaml.safe_dump({"rule_files": rules, "tests": [test]}))
    found = subprocess.run(
        [program, "test", "rules", file], check=False, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_prometheus_scrapes_the_serverapp_of_the_compose_file() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["serverapp:9464"]}]
    compose = yaml.safe_load((FOLDER.parent / "docker-compose.yml").read_text())
    services = compose["services"]
    assert "serverapp" in services
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        for mount in services[name]["volumes"]:
            if isinstance(mount, dict):
                assert (FOLDER.parent / mount["source"]).exists()


def test_the_first_rejection_of_a_rule_alerts_although_its_series_begins_with_it() -> None:
    (expression,) = (rule["expr"] for rule in RULES if rule["alert"] == "FlAppRejections")
    name = "fl_app_rejections_total"
    assert f"{name} unless {name} offset" in expression
