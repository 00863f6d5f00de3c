"""The dashboard and the alert rules name only metrics that the service has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from build import job, node, plan_of, snapshot

pytest.importorskip("prometheus_client", reason="the extra `service` is not installed")

from trencadis.adapters.service.metrics import Metrics

FILES = Path(__file__).parent.parent / "docs" / "monitoring"


def exposed() -> set[str]:
    metrics = Metrics()
    metrics.watch(lambda: 1.0, lambda: True, lambda: 1, lambda: 0, lambda: 0)
    metrics.round_done(plan_of(snapshot([node("a", 8)], [job("j")])), 0.5)
    metrics.round_failed()
    metrics.requests.labels("/x", "200").inc()
    metrics.latency.labels("/x").observe(0.1)
    metrics.answers.labels("filter", "node").inc()
    text = metrics.text().decode()
    names = set(re.findall(r"^(trencadis_\w+?)(?:\{| )", text, re.MULTILINE))
    # A family without a sample yet is declared all the same.
    return names | set(re.findall(r"^# TYPE (trencadis_\w+)", text, re.MULTILINE))


def test_the_dashboard_names_what_there_is() -> None:
    board = json.loads((FILES / "grafana-dashboard.json").read_text())
    used = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"trencadis_\w+", target["expr"])
    }
    assert used
    assert used <= exposed()
    spots = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(spots)) == len(spots) == len({p["id"] for p in board["panels"]})


def test_the_alerts_name_what_there_is() -> None:
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
    rules = group["rules"]
    used = {name for rule in rules for name in re.findall(r"trencadis_\w+", rule["expr"])}
    assert used <= exposed()
    assert all(rule["annotations"]["summary"].endswith(".") for rule in rules)
    assert len({rule["alert"] for rule in rules}) == len(rules)
