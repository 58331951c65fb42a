"""The latency of a handler as a distribution, which a user typed or a drain measured."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from drainer.control.place import plan_meant
from drainer.errors import UsageError, raised_as
from drainer.model.latency import Latency
from drainer.model.option import parse_duration

# A share of the calls, from 0 to 1, and the seconds within which that share returns.
Quantile = tuple[float, float]

STEPS = 20  # The curve between two quantiles that a user typed has this many straight pieces.
SLICES = 200  # Numeric integrals divide the calls into this many equal parts.
_EDGE = 1e-4  # A log-normal curve has no p0 and no p100, so its p0.01 and p99.99 are used.
_NORMAL = NormalDist()
_QUANTILE = re.compile(r"^\s*p(\d+(?:\.\d+)?)\s*$", re.IGNORECASE)
_FORM = "Give one duration, such as 10ms, or quantiles, such as p50=8ms,p99=120ms."
_IN_REPORT = re.compile(r"<script[^>]*application/json[^>]*>(.*?)</script>", re.DOTALL)
_HINT = (
    "Give the plan of a drain that has handled something, the output of `drainer run -o json`, or a"
    " report."
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution that is given by quantiles, and is linear between two of them.

    Attributes:
        points: the quantiles, sorted by share and by seconds. The first is at share 0 and the last
            at share 1. Two quantiles at the same share are a step.
        processor_s: the processor time of a call; None if it is unknown.
    """

    points: tuple[Quantile, ...]
    processor_s: float | None = None

    @classmethod
    def constant(cls, seconds: float) -> Distribution:
        return cls(((0.0, seconds), (1.0, seconds)))

    @classmethod
    def parse(cls, text: str) -> Distribution:
        """Parse ``10ms``, or quantiles in any order, such as ``p50=8ms,p99=120ms``.

        No call is shorter than the lowest quantile or longer than the highest. Between two
        quantiles the distribution is log-normal, as latencies mostly are. Raises UsageError.
        """
        if "=" not in text:
            return cls.constant(_seconds(text))
        points: dict[float, float] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            match = _QUANTILE.match(name)
            if match is None or not 0 <= float(match[1]) <= 100:
                raise UsageError(f"{part.strip()!r} is not a latency quantile", hint=_FORM)
            share = float(match[1]) / 100
            if share in points:
                raise UsageError(f"{text!r} names {name.strip()} twice", hint=_FORM)
            points[share] = _seconds(value)
        return cls(_filled(points, text))

    @classmethod
    def measured(cls, latency: Latency) -> Distribution:
        """Make a distribution from the latency that a drain measured.

        The latencies between two percentiles are unknown. The distribution assumes that each of
        these calls took as long as the lower or the upper percentile, in the proportion that gives
        the measured mean. A straight line would blur two modes, and turn one very late call into 1%
        of all calls.
        """
        seconds = latency.percentiles_s
        last = len(seconds) - 1
        low_s, high_s = sum(seconds[:-1]) / last, sum(seconds[1:]) / last
        slow = (latency.mean_s - low_s) / (high_s - low_s) if high_s > low_s else 0.0
        # Between two percentiles, this share of the calls is taken to be as long as the upper one.
        slow = min(1.0, max(0.0, slow))
        points = [(0.0, seconds[0])]
        for number, (low, high) in enumerate(itertools.pairwise(seconds)):
            step = (number + 1 - slow) / last
            points += [(step, low), (step, high)]
        return cls((*points, (1.0, seconds[-1])), latency.processor_s)

    @property
    def mean_s(self) -> float:
        """Mean seconds of a call."""
        steps = itertools.pairwise(self.points)
        return sum((share - before) * (low + high) / 2 for (before, low), (share, high) in steps)

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the calls stays below."""
        points = self.points
        number = bisect_right(points, (share, math.inf))
        if number >= len(points):
            return points[-1][1]
        (before, low), (after, high) = points[number - 1], points[number]
        return low + (high - low) * (share - before) / (after - before)

    def longest_s(self, calls: float) -> float:
        """Return the mean duration of the longest of a number of calls, in seconds."""
        ranks = ((number + 0.5) / SLICES for number in range(SLICES))
        return sum(self.quantile(rank ** (1 / calls)) for rank in ranks) / SLICES

    def overhang_s(self, calls: int) -> float:
        """Return how much later the last of ``calls`` running calls ends than their average end.

        The result is a mean, in seconds. At a random moment, the time left of a running call has a
        density that is proportional to the share of calls that last longer than that time (the
        residual life of renewal theory).
        """
        seconds = [self.quantile((number + 0.5) / SLICES) for number in range(SLICES)]
        step_s, whole_s = seconds[-1] / SLICES, sum(seconds)
        found_s = 0.0
        for number in range(SLICES if whole_s else 0):
            at_s = (number + 0.5) * step_s
            # This share of the running calls has less than ``at_s`` left.
            over = sum(min(each, at_s) for each in seconds) / whole_s
            found_s += (over - over**calls) * step_s
        return found_s

    def later(self, seconds: float) -> Distribution:
        """Return the distribution in which each call takes this many seconds longer."""
        points = tuple((share, max(0.0, each + seconds)) for share, each in self.points)
        return replace(self, points=points)

    def as_json(self) -> Mapping[str, object]:
        return {
            "mean_s": round(self.mean_s, 6),
            "p50_s": round(self.quantile(0.5), 6),
            "p99_s": round(self.quantile(0.99), 6),
            "processor_s": self.processor_s,
        }


def _filled(points: dict[float, float], text: str) -> tuple[Quantile, ...]:
    ordered = sorted(points.items())
    filled = [(0.0, ordered[0][1])]
    for (share, seconds), (behind, more) in itertools.pairwise(ordered):
        if more < seconds:
            raise UsageError(
                f"{text!r}: p{behind * 100:g} is less than p{share * 100:g}",
                hint="Make higher quantiles longer.",
            )
        filled += _between((share, seconds), (behind, more))
    filled += [ordered[-1], (1.0, ordered[-1][1])]
    return tuple(filled)


def _between(low: Quantile, high: Quantile) -> Iterator[Quantile]:
    """Yield the lower point, then further points on the log-normal curve through both points."""
    yield low
    if not 0 < low[1] < high[1]:
        return
    z_low, z_high = (_NORMAL.inv_cdf(min(max(share, _EDGE), 1 - _EDGE)) for share, _ in (low, high))
    for step in range(1, STEPS):
        z = z_low + (z_high - z_low) * step / STEPS
        yield _NORMAL.cdf(z), low[1] * (high[1] / low[1]) ** (step / STEPS)


def _seconds(text: str) -> float:
    with raised_as(UsageError, about="--latency: "):
        return parse_duration(text)


def latency_from(path: Path) -> Distribution:
    """Read the latency from a plan, from a drain's ``-o json``, or from a report.

    Raises UsageError if the file can't be read or has no latency.
    """
    about = f"--latency: can't read {path}: "
    # Path.exists() raises an error for a file in a folder that this user may not enter.
    hint = _HINT if os.path.lexists(path) else plan_meant(path) or _HINT
    with raised_as(UsageError, OSError, UnicodeDecodeError, about=about, hint=hint):
        text = path.read_text(encoding="utf-8")
    for data in _objects(text):
        if isinstance(data, dict) and (latency := data.get("latency")):
            about = f"--latency {path}: its latency is not valid: "
            with raised_as(UsageError, ValueError, about=about, hint=_HINT):
                return Distribution.measured(Latency.from_json(latency))
    raise UsageError(f"--latency {path} has no measured latency", hint=_HINT)


def _objects(text: str) -> Iterator[Any]:
    for piece in _IN_REPORT.findall(text) or [text, *text.splitlines()]:
        with suppress(ValueError):
            yield json.loads(piece)
