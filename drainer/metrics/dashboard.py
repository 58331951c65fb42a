"""A Grafana dashboard of drains, made of the metrics' names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from drainer.metrics import names as n

SCHEMA_VERSION = 39  # Grafana 10.4; newer ones migrate it when they import it
COLUMNS = 24  # of Grafana's grid
_WHOSE = ", ".join(f'{label}=~"${label}"' for label in n.COMMON_LABELS)
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class _Panel:
    """``queries`` are (expression, legend)."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    meaning: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    least: int | None = 0


def _of(metric: n.Metric, *more: str, suffix: str = "") -> str:
    return f"{metric.name}{suffix}{{{', '.join((_WHOSE, *more))}}}"


def _per_second(metric: n.Metric, *more: str, suffix: str = "") -> str:
    return f"rate({_of(metric, *more, suffix=suffix)}{_RATE})"


def _by(labels: str, expression: str) -> str:
    return f"sum by ({labels}) ({expression})"


_GROUP = "topic, group"


def _stat(title: str, query: tuple[str, str], meaning: str, unit: str = "short") -> _Panel:
    return _Panel(title, (query,), unit, meaning, kind="stat", width=4, height=4)


_ROWS: tuple[tuple[str, tuple[_Panel, ...]], ...] = (
    (
        "Will it make it",
        (
            _stat("State", (f"{_of(n.STATE)} == 1", "{{state}}"), n.STATE.meaning),
            _stat(
                "Finished",
                (
                    f"1 - {_by(_GROUP, _of(n.BACKLOG))}"
                    f" / ({_by(_GROUP, _of(n.END))} - {_by(_GROUP, _of(n.START))})",
                    "{{topic}}",
                ),
                "Of the offsets of the backlog, those below the watermark.",
                "percentunit",
            ),
            _stat("To go", (_of(n.ETA), "{{topic}}"), n.ETA.meaning, "s"),
            _stat("Backlog", (_by(_GROUP, _of(n.BACKLOG)), "{{topic}}"), n.BACKLOG.meaning),
            _stat(
                "Dead",
                (_of(n.SUBS, 'outcome="dead"'), "{{topic}}"),
                "Sub-messages in the dead-letter topic.",
            ),
            _stat("Trouble", (_of(n.TROUBLE), "{{topic}}"), n.TROUBLE.meaning),
            _Panel(
                "Backlog by partition",
                ((_of(n.BACKLOG), "partition {{partition}}"),),
                meaning=n.BACKLOG.meaning,
                width=12,
            ),
            _Panel(
                "Deadline",
                ((_of(n.DEADLINE), "left"), (_of(n.DEADLINE_MARGIN), "to spare")),
                "s",
                n.DEADLINE_MARGIN.meaning,
                width=12,
                least=None,
            ),
            _Panel(
                "Left out by rules",
                (
                    (_by(f"{_GROUP}, rule", _of(n.RULED_OUT)), "{{rule}}"),
                    (_by(f"{_GROUP}, rule", _of(n.UNDECIDED)), "not told: {{rule}}"),
                ),
                meaning=n.RULED_OUT.meaning,
                width=12,
            ),
            _Panel(
                "Throughput",
                (
                    (_by(f"{_GROUP}, outcome", _per_second(n.SUBS)), "sub-messages {{outcome}}"),
                    (_by(f"{_GROUP}, outcome", _per_second(n.MESSAGES)), "messages {{outcome}}"),
                ),
                "ops",
                "Finished per second.",
                width=12,
            ),
        ),
    ),
    (
        "What binds",
        (
            _Panel(
                "Handler latency",
                (
                    *((_of(n.LATENCY, f'quantile="{q}"'), f"p{100 * q:g}") for q in n.QUANTILES),
                    (
                        f"{_per_second(n.LATENCY, suffix='_sum')}"
                        f" / {_per_second(n.LATENCY, suffix='_count')}",
                        "mean",
                    ),
                ),
                "s",
                n.LATENCY.meaning,
            ),
            _Panel(
                "In the handler",
                ((_of(n.IN_FLIGHT), "in flight"), (_of(n.CONCURRENCY), "concurrency")),
            ),
            _Panel(
                "Lanes",
                (
                    (_of(n.LANES), "lanes"),
                    (_of(n.LANES_READY), "ready"),
                    (_of(n.LANES_PARKED), "parked"),
                ),
            ),
            _Panel(
                "Hottest lanes",
                ((_of(n.LANE_DEPTH), "{{lane}}"), (_of(n.LANE_DEPTH_MOST), "the hottest")),
                meaning=n.LANE_DEPTH.meaning,
            ),
            _Panel(
                "Buffer",
                ((_of(n.BUFFERED), "buffered"), (_of(n.BUFFER), "limit")),
                "bytes",
                n.BUFFERED.meaning,
            ),
            _Panel(
                "Pending",
                ((_of(n.MESSAGES_PENDING), "messages"), (_of(n.SUBS_PENDING), "sub-messages")),
            ),
        ),
    ),
    (
        "What goes wrong",
        (
            _Panel(
                "Errors",
                ((_by(f"{_GROUP}, error", _per_second(n.ERRORS)), "{{error}}"),),
                "ops",
                n.ERRORS.meaning,
            ),
            _Panel(
                "Retries and timeouts",
                (
                    (_per_second(n.RETRIES), "retries"),
                    (_per_second(n.TIMEOUTS), "timeouts"),
                    (_per_second(n.FAILURES), "failed attempts"),
                ),
                "ops",
            ),
            _Panel(
                "Waiting",
                ((_of(n.RETRIES_WAITING), "for a retry"), (_of(n.THREADS_LATE), "late threads")),
            ),
            _Panel(
                "Circuit breaker",
                ((_of(n.BREAKER_OPEN), "open"), (_of(n.OUTAGES), "outages")),
                meaning=n.BREAKER_OPEN.meaning,
            ),
            _Panel(
                "Age of plan and status",
                ((_of(n.PLAN_AGE), "plan"), (_of(n.STATUS_AGE), "status")),
                "s",
                n.STATUS_AGE.meaning,
            ),
            _Panel(
                "Offsets",
                (
                    (_of(n.POSITION), "position {{partition}}"),
                    (_of(n.WATERMARK), "watermark {{partition}}"),
                    (_of(n.COMMITTED), "committed {{partition}}"),
                ),
                meaning="Read up to, finished up to, and where the group is.",
                least=None,
            ),
        ),
    ),
    (
        "On Spark",
        (
            _Panel("Waves", ((_of(n.WAVE), "handled"), (_of(n.WAVES), "of about"))),
            _Panel(
                "Tasks",
                ((_of(n.TASKS), "{{state}}"), (_of(n.STRAGGLERS), "stragglers")),
                meaning=n.STRAGGLERS.meaning,
            ),
            _Panel(
                "Age of the wave, and silence",
                ((_of(n.WAVE_AGE), "wave"), (_of(n.TASK_QUIET_MOST), "the longest silence")),
                "s",
                n.TASK_QUIET_MOST.meaning,
            ),
        ),
    ),
)


def make_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it, and as its provisioning reads it.

    The data source and the drains are chosen in it.
    """
    return {
        "title": "drainer",
        "uid": "drainer",
        "description": "Drains of Kafka backlogs: will it make it, what binds, what goes wrong.",
        "tags": ["kafka", "drainer"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "id": None,
        "editable": True,
        "graphTooltip": 1,  # one cross-hair for all panels
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                    "current": {},
                    "hide": 0,
                    "refresh": 1,
                },
                *(_variable(label, known) for label, known in _chosen()),
            ]
        },
        "panels": list(_panels()),
    }


def _chosen() -> Iterator[tuple[str, str]]:
    """Each label with the choice of those before it."""
    known: list[str] = []
    for label in n.COMMON_LABELS:
        yield label, ", ".join(known)
        known.append(f'{label}=~"${label}"')


def _variable(label: str, known: str) -> dict[str, Any]:
    selector = f"{n.INFO.name}{{{known}}}" if known else n.INFO.name
    query = f"label_values({selector}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{label}"},
        "refresh": 2,  # when the time range changes: a drain comes and goes
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "sort": 1,
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in _ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top, left, tallest = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            number += 1
            yield _panel(number, panel, left, top)
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest


def _panel(number: int, panel: _Panel, left: int, top: int) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _SOURCE,
            "editorMode": "code",
            "expr": expression,
            "legendFormat": legend,
            "range": True,
        }
        for at, (expression, legend) in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.least is not None:
        defaults["min"] = panel.least
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}}
    if panel.kind == "stat":
        name = "name" if panel.title == "State" else "value"
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": name}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }
