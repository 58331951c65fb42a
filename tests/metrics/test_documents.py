"""The pages on metrics and the dashboard name the metrics that there are, and no other."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import orjson
import pytest

from drainer.metrics.names import METRICS, Metric
from drainer.spark.assign.status import METRICS as SPARKS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = (DOCS / "reference/metrics.md").read_text()
HOW_TO = (DOCS / "howto/monitor.md").read_text()
DASHBOARD: dict[str, Any] = orjson.loads((ROOT / "deploy/grafana-dashboard.json").read_bytes())
ALL: tuple[Metric[Any], ...] = (*METRICS, *SPARKS)
SUFFIXES = {"summary": ("", "_sum", "_count")}
SERIES = {f"{m.name}{suffix}": m for m in ALL for suffix in SUFFIXES.get(m.kind, ("",))}
COLUMNS = 24  # of Grafana's grid


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def test_the_table_of_metrics_is_what_the_code_serves() -> None:
    assert runpy.run_path(str(DOCS / "generate.py"))["metrics_page"]() == REFERENCE, (
        "To write the table of docs/reference/metrics.md: python docs/generate.py"
    )


def test_the_kind_of_a_metric_is_as_the_reference_has_it_by_its_name() -> None:
    assert (
        "Counters end in `_total`, `drainer_handler_latency_seconds` is a summary, all others are"
        " gauges."
    ) in REFERENCE
    for metric in ALL:
        kind = "counter" if metric.name.endswith("_total") else "gauge"
        if metric.name == "drainer_handler_latency_seconds":
            kind = "summary"
        assert metric.kind == kind, metric.name


@pytest.mark.parametrize("document", [REFERENCE, HOW_TO], ids=["reference", "how-to"])
def test_whatever_else_a_document_names_is_a_metric(document: str) -> None:
    named = set(re.findall(r"\bdrainer_[a-z_]+\b", document))

    assert named
    assert named <= set(SERIES)


def test_each_query_is_for_metrics_that_exist_by_labels_that_they_have() -> None:
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

    left_out = {metric.name for metric in ALL} - {metric.name for metric in used}
    assert left_out == {
        "drainer_info",  # in the variables
        "drainer_exit_code",
        "drainer_elapsed_seconds",
        "drainer_watermark_held_back_seconds",  # to alert by
        "drainer_behind_seconds",
        "drainer_messages_read_total",
        "drainer_sub_messages_read_total",
        "drainer_sub_messages_per_second",
    }, "draw a new metric in a panel of deploy/grafana-dashboard.json, or name it here"


def test_the_dashboard_has_the_form_that_grafana_imports() -> None:
    assert DASHBOARD["id"] is None  # Grafana gives one
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "topic", "group"]
    for name in ("topic", "group"):
        assert variables[name]["query"]["query"].startswith("label_values(drainer_info")
    for panel in panels():
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


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
