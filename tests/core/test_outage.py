"""Outages are waited out by the clock, each for as long as it may last."""

from __future__ import annotations

import pytest

from drainer.errors import Halted
from drainer.policy.outage import Outage


def test_an_outage_lasts_from_its_first_failure_to_the_next_answer() -> None:
    now_s, requested_stop = 0.0, False
    outage = Outage(60.0, lambda _: not requested_stop, lambda: now_s)
    assert outage(0.2, "it is away")
    now_s = 60.0  # requests take time, too
    assert outage(0.2, "it is away")
    assert outage.trouble == "it is away"
    outage.end()
    assert outage.trouble is None
    now_s = 100.0
    assert outage(0.2, "it is away again")
    now_s = 161.0
    with pytest.raises(Halted, match=r"away again, for longer than --max-outage \(1m\)"):
        outage(0.2, "it is away again")
    outage.end()
    requested_stop = True
    assert not outage(0.2, "it is away")
