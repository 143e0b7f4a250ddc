"""The dashboard and the guide speak of metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from p4reduce_controller.registry.job import FORMING
from p4reduce_controller.registry.registry import Cause
from p4reduce_runtime import metrics

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "p4reduce.json").read_text())
DECLARED = {metric.name: metric for metric in metrics.declared()}
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = (DOCS.parent / "examples/deploy/prometheus/rules.yml").read_text()


def names(text: str) -> set[str]:
    return set(re.findall(r"\bp4reduce_(?:controller|job|drop|switch|worker)_\w*[a-z]\b", text))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_panel_asks_for_metrics_that_exist(expression: str) -> None:
    asked = names(expression)
    assert asked
    assert asked - DECLARED.keys() == set()
    for name in asked:
        assert ("rate(" in expression or "increase(" in expression) == DECLARED[name].counter


def test_legends_and_variables_name_labels_that_exist() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            labels = {label for name in names(target["expr"]) for label in DECLARED[name].labels}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels
    (query,) = [item["query"] for item in DASHBOARD["templating"]["list"] if item["type"] == "query"]
    assert query == "label_values(p4reduce_job_ranks, job_name)"


def test_alerts_name_metrics_and_causes_that_exist() -> None:
    assert len(names(RULES)) >= 7 and names(RULES) - DECLARED.keys() == set()
    assert re.findall(r'cause="([^"]+)"', RULES) == [Cause.SILENT]
    assert re.findall(r'state="([^"]+)"', RULES) == [FORMING]


def test_the_guide_names_metrics_that_exist() -> None:
    text = (DOCS / "operations.md").read_text()
    assert names(text)
    assert names(text) - DECLARED.keys() == set()


def test_the_guide_lists_every_event() -> None:
    root = DOCS.parent
    sources = [path for folder in ("worker", "controller", "softswitch") for path in (root / folder).rglob("*.py")]
    logged = {
        name
        for path in sources
        for name in re.findall(r'event\(\s*(?:_log,\s*)?(?:logging\.\w+|cause\.level),\s*"([^"]+)"', path.read_text())
    }
    assert {"job created", "pipeline set", "port evicted", "job joined"} <= logged
    text = " ".join((DOCS / "operations.md").read_text().split())
    assert [name for name in sorted(logged | {"job finished", "job reset"}) if name not in text] == []
