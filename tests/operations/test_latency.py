"""The latency that an earlier drain measured, read from what it left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drainer.errors import UsageError
from drainer.insight.distribution import latency_from

MEASURED = {"count": 500, "mean_s": 0.00502, "percentiles_s": [n / 10_000 for n in range(101)]}


def written(folder: Path, text: str) -> Path:
    path = folder / "earlier"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"status": "done", "latency": MEASURED}),
        json.dumps({"status": "done", "latency": MEASURED}, indent=2),
        "<!doctype html><p>{}</p><script type='application/json'>"
        + json.dumps({"plan": "a&b", "latency": MEASURED})
        + "</script>",
    ],
    ids=["summary", "plan", "report"],
)
def test_it_is_found_in_a_plan_a_summary_and_a_report(tmp_path: Path, text: str) -> None:
    latency = latency_from(written(tmp_path, text))
    assert latency.quantile(0.5) == pytest.approx(0.005, abs=0.0001)
    assert latency.mean_s == pytest.approx(0.00502)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        '{"latency": null}',
        '{"latency": {"count": 0, "percentiles_s": []}}',
        '{"latency": {"count": 3, "mean_s": 2, "percentiles_s": [3, 2, 1]}}',
    ],
)
def test_a_file_without_one_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        latency_from(written(tmp_path, text))
    assert "earlier" in str(refused.value)
    assert refused.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--latency: can't read"):
        latency_from(tmp_path / "nowhere")
