"""The backlogs: what is in the topic, and the least time that theory allows."""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

import orjson

ONE_KEY = b"customer-4711"
SEED = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """A backlog on one partition: ``messages`` of ``fan_out`` sub-messages over ``sub_keys``.

    With a ``skew`` of 0, all sub-keys come equally often; otherwise by Zipf's law with that
    exponent. ``one_key`` gives every message the same message key.
    """

    name: str
    messages: int
    fan_out: int
    sub_keys: int
    one_key: bool
    latency_ms: int
    skew: float = 0.0

    @property
    def sub_messages(self) -> int:
        return self.messages * self.fan_out

    @property
    def handler(self) -> str:
        return "Batch" if self.fan_out > 1 else "Whole"

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield (key, value, partition) of every message."""
        keys = self._sub_keys()
        for number in range(self.messages):
            if self.fan_out == 1 and not self.skew:
                key = ONE_KEY if self.one_key else b"key-%d" % (number % self.sub_keys)
                yield key, b'{"update": %d}' % number, 0
            elif self.fan_out == 1:
                yield b"key-%d" % next(keys), b'{"update": %d}' % number, 0
            else:
                documents = [
                    {"id": f"doc-{sub_key:05}", "version": number}
                    for sub_key in islice(keys, self.fan_out)
                ]
                yield ONE_KEY, orjson.dumps({"documents": documents}), 0

    def longest_lane(self) -> int:
        """Return the number of sub-messages of the hottest sub-key."""
        count = self.messages * self.fan_out
        return max(Counter(islice(self._sub_keys(), count)).values())

    def bound_s(self, concurrency: int) -> float:
        """Return max(W/C, L): no schedule that keeps the order is faster."""
        work = max(self.sub_messages / concurrency, self.longest_lane())
        return work * self.latency_ms / 1000

    def _sub_keys(self) -> Iterator[int]:
        chance = random.Random(SEED)
        if not self.skew:
            while True:
                yield chance.randrange(self.sub_keys)
        weights = list(accumulate(1 / rank**self.skew for rank in range(1, self.sub_keys + 1)))
        while True:
            yield bisect(weights, chance.random() * weights[-1])
