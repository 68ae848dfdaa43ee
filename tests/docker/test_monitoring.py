"""Alert rules and the dashboard ask for metrics that a run has."""

import json
import re
from pathlib import Path

import pytest
import yaml

from fl_app.records.metrics import Metrics

FOLDER = Path(__file__).resolve().parents[2] / "monitoring"
NAME = re.compile(r"\bfl_app_\w+")


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    metrics = Metrics(tmp_path_factory.mktemp("run"), {"strategy": "flic"}, 1)
    found = set()
    for family in metrics.registry.collect():
        found.add(f"{family.name}_total" if family.type == "counter" else family.name)
    return found


def test_every_alert_asks_for_known_metrics(known: set[str]) -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in NAME.findall(rule["expr"])}
    assert asked
    assert asked <= known
    assert all(rule["annotations"]["summary"] for rule in rules)


def test_every_panel_asks_for_known_metrics(known: set[str]) -> None:
    board = json.loads((FOLDER / "grafana" / "dashboards" / "fl-app.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in NAME.findall(target["expr"])
    }
    assert len(asked) >= 10
    assert asked <= known


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
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    (expression,) = (rule["expr"] for rule in rules if rule["alert"] == "FlAppRejections")
    name = "fl_app_rejections_total"
    assert f"{name} unless {name} offset" in expression
