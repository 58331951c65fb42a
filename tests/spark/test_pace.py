"""Tasks that read a wave share what the brokers tolerate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from builders import a_plan
from core.limit_samples import measured
from drainer.kafka.settings import ClientSettings
from drainer.limits.search.boundary import cap_curve
from drainer.spark.read.slices import SliceTask
from drainer.spark.session.shipping import Shipped
from drainer.spark.state.lease import LOCAL
from drainer.spark.task.python_worker import HandlerSpec


def test_tasks_read_at_their_share_of_what_groups_read() -> None:
    terms = replace(a_plan(0).terms, limits=cap_curve(measured({100: 1_000.0}, groups=5)))
    spec = HandlerSpec(Shipped("h.py:H"), ClientSettings("x:1"), terms, 1, "/state", LOCAL, 1)
    rest = cast("Any", None)
    task = SliceTask(spec, 16, rest, (), {}, rest, share=0.5, message_bytes=100.0)

    pace = task.pace()

    assert pace is not None
    assert pace.messages_per_s == pytest.approx(0.5 * 0.8 * 5_000)
