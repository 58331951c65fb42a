"""Plays drains on a virtual clock, in drainer's order of lanes and with the longest lane first.

Prints for each backlog the makespan over max(W/C, L) and the watermark at 25%, 50% and 75% of the
work, as means over the seeds, and draws the watermark's path. Fails if the makespan is over 1%
worse than with the longest lane first, or if the watermark is further behind the work than 5
points and 2C sub-messages at a point where no lane has been critical.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean

from drainer.core.lanes import Lanes
from scenarios.watermark.chart import draw
from scenarios.watermark.course import Course, play
from scenarios.watermark.former import LongestFirst

FAN_OUT = 10
HOT = -1
WORSE_MOST = 0.01
BEHIND_MOST = 0.05


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages of FAN_OUT sub-messages over some sub-keys, by Zipf's law with an exponent.

    ``hot`` is the share of the messages that have a sub-message of one more sub-key, as a multiple
    of FAN_OUT / C. There are ``times`` as many messages as in others, where so few lanes have work
    that a long call is a large part of a lane.
    """

    sub_keys: int
    exponent: float = 0.0
    hot: float = 0.0
    times: int = 1

    def draw(self, messages: int, concurrency: int, seed: int) -> list[list[int]]:
        chance = Random(seed)
        weights = [rank**-self.exponent for rank in range(1, self.sub_keys + 1)]
        drawn = [
            chance.choices(range(self.sub_keys), weights, k=FAN_OUT)
            for _ in range(messages * self.times)
        ]
        for keys in drawn:
            if chance.random() < self.hot * FAN_OUT / concurrency:
                keys[0] = HOT
        return drawn


LATENCIES: dict[str, Callable[[Random], float]] = {
    "equal calls": lambda chance: 1.0,
    "exponential calls": lambda chance: chance.expovariate(1.0),
    "bimodal calls": lambda chance: 10.0 if chance.random() < 0.05 else 0.5,
}
MEAN_S = {"equal calls": 1.0, "exponential calls": 1.0, "bimodal calls": 0.975}
BACKLOGS = {
    "uniform, 150 sub-keys": Backlog(150, times=4),
    "uniform, 1,000 sub-keys": Backlog(1_000),
    "uniform, 20,000 sub-keys": Backlog(20_000),
    "Zipf(0.6), 3,000 sub-keys": Backlog(3_000, 0.6),
    "one lane of 0.95 W/C": Backlog(1_000, hot=0.95),
    "10% in one lane": Backlog(1_000, hot=10.0),
}
ORDERS: dict[str, type[Lanes]] = {"drainer": Lanes, "longest first": LongestFirst}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.watermark", description=__doc__)
    parser.add_argument("--messages", type=int, default=6_000)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=tuple(BACKLOGS), action="append")
    parser.add_argument("--calls", choices=tuple(LATENCIES), action="append")
    parser.add_argument("--chart", type=Path, default=Path("watermark.svg"))
    given = parser.parse_args()
    print(
        "| backlog | calls | order | makespan | watermark at 25%, 50%, 75% | furthest behind"
        " | repeated at most | pending messages at most | plan at most |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    good, paths = True, {}
    for name in given.only or BACKLOGS:
        for calls in given.calls or LATENCIES:
            spans, found = _played(name, calls, given)
            for order, courses in found.items():
                print(f"| {name} | {calls} | {order} | {spans[order]:.3f} | {_row(courses)} |")
            worse = spans["drainer"] / spans["longest first"] - 1
            behind = max(map(_furthest_behind, found["drainer"]))
            behind -= 2 * given.concurrency / (given.messages * BACKLOGS[name].times * FAN_OUT)
            if worse > WORSE_MOST or behind > BEHIND_MOST:
                good = False
                print(f"too much: makespan {worse:+.1%}, watermark {behind:.1%} behind")
            if name not in paths:
                caption = " and ".join(f"{span:.3f}" for span in spans.values())
                now, former = (_path(courses) for courses in found.values())
                paths[name] = (f"{calls}: makespan {caption} x max(W/C, L)", now, former)
    draw(paths, given.chart)
    print(f"chart: {given.chart}")
    raise SystemExit(0 if good else 1)


def _played(
    name: str, calls: str, given: argparse.Namespace
) -> tuple[dict[str, float], dict[str, list[Course]]]:
    """Play a backlog with all seeds in each order. Return by order the mean of the makespan over
    max(W/C, L), and the drains."""
    found: dict[str, list[Course]] = {order: [] for order in ORDERS}
    bounds = []
    for seed in range(1, given.seeds + 1):
        backlog = BACKLOGS[name].draw(given.messages, given.concurrency, seed)
        lengths = Counter(key for keys in backlog for key in keys)
        longest = max(lengths.values())
        bounds.append(max(lengths.total() / given.concurrency, longest) * MEAN_S[calls])
        for order, lanes in ORDERS.items():
            found[order].append(play(backlog, given.concurrency, LATENCIES[calls], lanes, seed))
    spans = {
        order: mean(each.seconds / bound for each, bound in zip(courses, bounds, strict=True))
        for order, courses in found.items()
    }
    return spans, found


def _path(courses: Sequence[Course]) -> list[tuple[float, float]]:
    points = zip(*(course.path for course in courses), strict=True)
    return [(mean(p[0] for p in point), mean(p[1] for p in point)) for point in points]


def _row(courses: Sequence[Course]) -> str:
    path = _path(courses)
    quarters = ", ".join(f"{path[len(path) * n // 4 - 1][1]:.0%}" for n in (1, 2, 3))
    behind = max(done - watermark for done, watermark in path)
    repeated = mean(course.repeated for course in courses)
    pending = mean(course.pending for course in courses)
    plan = mean(course.plan_bytes for course in courses)
    return f"{quarters} | {behind:.1%} | {repeated:,.0f} | {pending:,.0f} | {plan:,.0f} B"


def _furthest_behind(course: Course) -> float:
    """Return how far the watermark was behind the work before any lane was critical."""
    behind = 0.0
    for done, watermark, critical in course.path:
        if critical:
            break
        behind = max(behind, done - watermark)
    return behind


if __name__ == "__main__":
    main()
