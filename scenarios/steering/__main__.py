"""Steers drains from another process while they run with 1,000 calls at once, on a real broker.

The time of a request is measured by what the handler wrote down: from the request until the drain
acts by it, and keeps doing so. The scenario ends with exit code 1 if a request took over a second,
or if a law was broken.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from drainer.control import client
from drainer.engine.control import Change, ControlRequest, Pause, Stop, Unpause
from drainer.errors import EXIT_DONE, EXIT_INTERRUPTED, Refused
from drainer.kafka.settings import ClientSettings
from scenarios.brokers import Broker
from scenarios.chaos.drain import Backlog, Pace, Process, until
from scenarios.chaos.trace import judge, read_lines

WIDE = Pace(concurrency=1000, latency_ms=10)
NARROW, SLOW_PER_S = 50, 1000
STAYS_S = 1.5  # The time between two requests.
WINDOW_S = 0.2  # A rate is measured over this time.
MOST_S = 1.0


@dataclass(slots=True)
class Steer:
    """A request: when it was made, and when the answer came, by the monotonic clock."""

    what: str
    at_s: float
    answered_s: float
    acts_s: float | None = None  # From when on the drain acts by it for good; None if it never did.


@dataclass(slots=True)
class Trace:
    """When calls began, and how many were in flight after each beginning and end."""

    begun: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Trace:
        found, calls = cls(), 0
        for line in read_lines(path):
            calls += 1 if line.begins else -1
            at_s = line.at_ns / 1e9
            found.times.append(at_s)
            found.in_flight.append(calls)
            if line.begins:
                found.begun.append(at_s)
        return found

    def at_most(self, calls: int, from_s: float, to_s: float) -> float | None:
        """Return the time from which on no more than this many were in flight."""
        acts = from_s
        for number in range(bisect_right(self.times, from_s), bisect_right(self.times, to_s)):
            if self.in_flight[number] > calls:
                acts = self.times[number]
        return acts if acts < to_s - WINDOW_S else None

    def begun_at_most(self, per_s: float, from_s: float, to_s: float) -> float | None:
        """Return the time from which on no more than this many began in any window."""
        acts, allowed = from_s, per_s * WINDOW_S + per_s * 0.1 + 1
        for number in range(bisect_right(self.begun, from_s), bisect_right(self.begun, to_s)):
            before = bisect_right(self.begun, self.begun[number] - WINDOW_S)
            before = max(before, bisect_right(self.begun, acts))
            if number + 1 - before > allowed:
                acts = self.begun[number]
        return acts if acts < to_s - WINDOW_S else None

    def begins(self, from_s: float, to_s: float) -> float | None:
        """Return when the first call began after which no fewer than this many followed."""
        number = bisect_right(self.begun, from_s)
        many = bisect_right(self.begun, to_s) - number > NARROW
        return self.begun[number] if many else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.steering", description=__doc__)
    parser.add_argument(
        "--messages",
        type=int,
        default=12_000,
        help="the number of messages, each of 50 sub-messages",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="the number of drains, each of which is stopped and resumed",
    )
    given = parser.parse_args()
    good = True
    with (
        TemporaryDirectory() as folder,
        Broker(Path(folder) / "broker", print_line=print) as broker,
    ):
        settings = ClientSettings.load(broker.bootstrap_servers)
        for _ in range(given.rounds):
            with Backlog.on(settings, Path(folder), given.messages, WIDE) as backlog:
                good = _round(backlog) and good
    raise SystemExit(0 if good else 1)


def _round(backlog: Backlog) -> bool:
    process = backlog.begin()
    until(lambda: _runs(backlog))
    backlog.at_work(process, 20_000)
    steers = [
        _steer(backlog, f"set concurrency={NARROW}", Change({"concurrency": NARROW})),
        _steer(backlog, f"set rate={SLOW_PER_S}/s", Change({"rate": SLOW_PER_S})),
        _steer(backlog, "pause", Pause()),
        _steer(backlog, "unpause", Unpause()),
        _steer(backlog, "set rate=none", Change({"rate": None, "concurrency": 1000})),
        _stop(backlog, process),
    ]
    codes = [process.ends(), backlog.begin().ends()]
    _look(Trace.read(backlog.trace), steers)
    judged = judge(backlog.trace, backlog.sub_messages)
    for each in steers:
        acts = "never" if each.acts_s is None else f"{1000 * (each.acts_s - each.at_s):6,.0f} ms"
        answered = f"{1000 * (each.answered_s - each.at_s):6,.0f} ms"
        print(f"{each.what:>22}  answered after {answered}  in effect after {acts}")
    print(
        f"{backlog.sub_messages:>22,} sub-messages: {judged.lost} lost, {judged.out_of_order} out"
        f" of order, {judged.at_once} at once, {judged.repeated} repeated; exit codes {codes}",
        flush=True,
    )
    wrong = judged.lost + judged.out_of_order + judged.at_once + judged.repeated
    prompt = all(each.acts_s and each.acts_s - each.at_s <= MOST_S for each in steers)
    return prompt and not wrong and codes == [EXIT_INTERRUPTED, EXIT_DONE]


def _runs(backlog: Backlog) -> bool:
    try:
        return next(client.watch(backlog.plan)).status is not None
    except (Refused, OSError):
        return False


def _steer(backlog: Backlog, what: str, request: ControlRequest) -> Steer:
    at_s = time.monotonic()
    client.request(backlog.plan, request)
    steers = Steer(what, at_s, time.monotonic())
    time.sleep(STAYS_S)
    return steers


def _stop(backlog: Backlog, process: Process) -> Steer:
    at_s = time.monotonic()
    client.request(backlog.plan, Stop(reason="a scenario"))
    steers = Steer("stop, to its end", at_s, time.monotonic())
    process.ends()
    steers.acts_s = time.monotonic()
    return steers


def _look(trace: Trace, steers: Sequence[Steer]) -> None:
    narrow, slow, paused, again, wide, _ = steers
    ends = [after.at_s for _, after in pairwise(steers)]
    narrow.acts_s = trace.at_most(NARROW, narrow.at_s, ends[0])
    slow.acts_s = trace.begun_at_most(SLOW_PER_S, slow.at_s, ends[1])
    paused.acts_s = trace.begun_at_most(0, paused.at_s, ends[2])
    again.acts_s = trace.begins(again.at_s, ends[3])
    allowed = 2 * SLOW_PER_S * WINDOW_S
    fast = (
        at_s
        for number, at_s in enumerate(trace.begun)
        if at_s > wide.at_s
        and number - bisect_right(trace.begun, max(at_s - WINDOW_S, wide.at_s)) > allowed
    )
    wide.acts_s = next(fast, None)


if __name__ == "__main__":
    main()
