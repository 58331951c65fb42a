"""Makes the wall clock of a process jump by up to half a day, back or forth, at each look.

The folder of this file must be on the process's PYTHONPATH. All of Python's own ways to read the
date and time are changed. The monotonic clock is not, just as it is not when somebody sets the
clock. Nor is the wall clock that C libraries read from the kernel.
"""

from __future__ import annotations

import datetime
import random
import time
from typing import Any

FARTHEST_S = 12 * 3600.0

_time = time.time
_chance = random.Random()


def _jumping() -> float:
    return _time() + _chance.uniform(-FARTHEST_S, FARTHEST_S)


class _Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return cls.fromtimestamp(_jumping(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.fromtimestamp(_jumping(), datetime.UTC).replace(tzinfo=None)


time.time = _jumping
time.time_ns = lambda: int(_jumping() * 1e9)
datetime.datetime = _Jumping  # type: ignore[misc]
