"""Compares critical-lanes-first with first-in-first-out on a virtual clock, for rows that are more
and less hot.

Both run the same backlog: W seconds of work on C workers, of which one sub-key has a given share.
No schedule that keeps the order is faster than max(W/C, L), where L is the hot lane. The table
shows how far from that each rule ends.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, deque
from collections.abc import Iterator
from heapq import heappop, heappush

from drainer import Message, Origin, SubMessage
from scenarios.hot_row.clock import play

HOT = "hot"
ORIGIN = Origin("hot-row", "", 0)
LATENCY_S = 0.01
SHARES = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.2)


def backlog(count: int, sub_keys: int, share: float, seed: int) -> Iterator[SubMessage]:
    """Make a backlog with one sub-message in each message. The hot sub-key has its share, spread
    evenly."""
    chance = random.Random(seed)
    for _ in range(count):
        hot = chance.random() < share
        yield SubMessage(HOT if hot else chance.randrange(sub_keys))


def first_in_first_out(subs: list[SubMessage], concurrency: int, latency_s: float) -> float:
    """Return the seconds that a drain takes if ready lanes stand in one queue, and go to its end
    after each sub-message."""
    waiting: dict[object, int] = {}
    for sub in subs:
        waiting[sub.key] = waiting.get(sub.key, 0) + 1
    ready = deque(waiting)
    running: list[tuple[float, int, object]] = []
    now, number = 0.0, 0
    while ready or running:
        while ready and len(running) < concurrency:
            number += 1
            heappush(running, (now + latency_s, number, ready.popleft()))
        now, _, key = heappop(running)
        waiting[key] -= 1
        if waiting[key]:
            ready.append(key)
    return now


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scenarios.hot_row", description=__doc__)
    parser.add_argument("--sub-messages", type=int, default=200_000)
    parser.add_argument("--sub-keys", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| share of the hot row | max(W/C, L) | critical first | first in, first out |")
    print("|---|---|---|---|")
    for share in SHARES:
        subs = list(backlog(given.sub_messages, given.sub_keys, share, given.seed))
        messages = ((Message(ORIGIN, n, None, None), [sub]) for n, sub in enumerate(subs))
        found = play(messages, given.concurrency, lambda: LATENCY_S)
        fifo = first_in_first_out(subs, given.concurrency, LATENCY_S)
        longest = max(Counter(sub.key for sub in subs).values())
        bound_s = max(len(subs) / given.concurrency, longest) * LATENCY_S
        print(
            f"| {share:.2%} | {bound_s:.1f} s"
            f" | {found.seconds:.1f} s = {found.seconds / bound_s:.2f}x"
            f" | {fifo:.1f} s = {fifo / bound_s:.2f}x |"
        )


if __name__ == "__main__":
    main()
