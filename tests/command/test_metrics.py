"""Scraping a drain: Prometheus sees what the summary has."""

from __future__ import annotations

import re
import signal
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from command.conftest import operations
from command.process import Command, Running
from kafka.topic import eventually

SERVED = ("--metrics", "0")
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One scrape of a running command."""

    def __init__(self, running: Running) -> None:
        running.prints("metrics: http://")
        (url,) = re.findall(r"http://\S+/metrics", running.err)
        with urllib.request.urlopen(url, timeout=10) as answer:
            self.text = answer.read().decode()
        self.series: Series = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        """A value by its own labels; None when it isn't there."""
        for (known, found), value in self.series.items():
            own = {label: text for label, text in found if label not in ("topic", "group")}
            if known == f"drainer_{name}" and own == labels:
                return value
        return None


def test_a_scrape_during_the_drain_and_one_after_it_agree_with_the_account(
    command: Command,
) -> None:
    topic = command.topic(operations(100), partitions=2)
    options: dict[str, Any] = {"pause_ms": 1, "gate": command.gate, "gated": "b-0"}
    more = (*SERVED, "--tune", "metrics-linger=1h", "-o", "json", "--concurrency", "20")
    running = command.begin(topic, *more, **options)
    command.wait_for(running, "done", 100)
    eventually(lambda: bool(Scrape(running)("sub_messages_pending")), "a lane waits", 30)
    during = Scrape(running)
    assert during("state", state="running") == 1

    command.gate.touch()
    running.prints("metrics stay up for 1h")
    after = Scrape(running)
    running.signal(signal.SIGTERM)
    answer = running.ends(0).answer

    assert answer["sub_messages"]["done"] == 400
    for what in ("messages", "sub_messages"):
        assert after(f"{what}_read_total") == answer[what]["read"]
        assert after(f"{what}_pending") == 0
        for outcome in ("done", "dead", "failed", "skipped"):
            assert after(f"{what}_total", outcome=outcome) == answer[what][outcome]
    for number, part in answer["partitions"].items():
        assert after("watermark_offset", partition=number) == part["watermark"]
        assert after("committed_offset", partition=number) == part["committed"]
        assert after("backlog_offsets", partition=number) == 0
    assert after("state", state="done") == 1
    assert after("exit_code") == 0
    assert after("handler_latency_seconds_count") == answer["latency"]["count"] == 400
    for (name, labels), value in during.series.items():
        if name.startswith("drainer_") and name.endswith(("_total", "_count", "_sum")):
            assert after.series[name, labels] >= value, name
