"""The processor time of a sub-message is measured on this machine."""

from __future__ import annotations

import pytest

from drainer.core.batches import Batching
from drainer.insight import measurement
from drainer.insight.measurement import Calibration


@pytest.mark.parametrize(("is_async", "fan_out"), [(True, 5.0), (True, None), (False, 5.0)])
def test_what_the_engine_takes_for_a_sub_message_is_measured(
    is_async: bool, fan_out: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "SUB_MESSAGES", 2_000)
    found = Calibration(fan_out, 10, is_async)
    assert 1e-7 < found.together_s(Batching(most=9)) < 0.01
    assert 1e-7 < found.sub_message_s() < 0.01
