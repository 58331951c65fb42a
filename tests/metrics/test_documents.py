"""docs/metrics.md and the dashboard tell of the metrics that there are, and of no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

from drainer.metrics.dashboard import COLUMNS, make_dashboard
from drainer.metrics.names import METRICS, Kind, Metric

DOCS = Path(__file__).parents[2] / "docs"
DOCUMENT = (DOCS / "metrics.md").read_text()
DASHBOARD: dict[str, Any] = orjson.loads((DOCS / "grafana/drainer.json").read_bytes())
SUFFIXES = {Kind.SUMMARY: ("", "_sum", "_count")}
SERIES = {f"{m.name}{suffix}": m for m in METRICS for suffix in SUFFIXES.get(m.kind, ("",))}


def row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.meaning} |"


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_the_table_of_metrics_is_what_the_code_serves() -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| `drainer_")]

    assert rows == [row(metric) for metric in METRICS]


def test_whatever_else_the_document_names_is_a_metric() -> None:
    named = set(re.findall(r"\bdrainer_[a-z_]+\b", DOCUMENT))

    assert named
    assert named <= set(SERIES)


def test_the_dashboard_in_docs_is_the_one_that_the_command_prints() -> None:
    assert make_dashboard() == DASHBOARD, (
        "to make it again: drainer metrics dashboard | python -m json.tool --no-ensure-ascii"
        " --indent 2 > docs/grafana/drainer.json"
    )


def test_each_query_asks_for_metrics_that_exist_by_labels_that_they_have() -> None:
    used = set()
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            found = re.findall(r"\b(drainer_[a-z_]+)\{([^}]*)\}", expression)
            assert found, expression
            assert len(re.findall("drainer_", expression)) == len(found), expression
            for name, matchers in found:
                metric = SERIES[name]
                used.add(metric)
                known = {"topic", "group", "quantile", *metric.labels}
                labels = set(re.findall(r"(\w+)=~?\"", matchers))
                assert {"topic", "group"} <= labels <= known, expression
                of_legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert of_legend <= known
                counted = name.endswith(("_total", "_sum", "_count"))
                if "rate(" in expression:
                    assert counted, expression

    left_out = {metric.name for metric in METRICS} - {metric.name for metric in used}
    assert left_out == {
        "drainer_info",  # in the variables
        "drainer_exit_code",
        "drainer_elapsed_seconds",
        "drainer_messages_read_total",
        "drainer_sub_messages_read_total",
        "drainer_sub_messages_per_second",
    }


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    assert DASHBOARD["id"] is None  # Grafana gives one
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["title"]
    assert DASHBOARD["uid"]
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "topic", "group"]
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for name in ("topic", "group"):
        assert variables[name]["datasource"]["uid"] == "${datasource}"
        assert variables[name]["query"]["query"].endswith(f", {name})")
        assert variables[name]["query"]["query"].startswith("label_values(drainer_info")
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["targets"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        assert panel["fieldConfig"]["defaults"]["unit"]


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells
