"""Judges a night by what the handler or the service saw, and not by drainer's own account.

What has to be handled is taken from the records that the chapter wrote, and each call from the
other end of it. Unlike ``trace.judge``, this allows calls that fail and are tried again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from drainer.kafka.settings import ClientSettings
from scenarios.chaos.stage import Report
from scenarios.chaos.trace import Place

ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Call:
    """One end of a call: ``+`` when it begins, ``-`` when it is done, ``x`` when it has failed.

    ``caller`` is the process that made the call.
    """

    mark: str
    place: Place
    sub_key: str
    caller: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Counts of what was wrong, and of what was done more than once."""

    lost: int
    foreign: int
    out_of_order: int
    at_once: int
    repeated: int

    def judge(self, report: Report, at_most: int | None = None) -> None:
        """Report what broke a law. Up to ``at_most`` sub-messages may be done again."""
        for name in ("lost", "foreign", "out_of_order", "at_once"):
            count = getattr(self, name)
            report.ensure(not count, f"{count} {name.replace('_', ' ')}")
        report.remarks.append(f"{self.repeated:,} done again")
        if at_most is not None:
            report.ensure(self.repeated <= at_most, f"{self.repeated} done again, not {at_most}")


def seen(calls: Iterable[Call], expected: Mapping[Place, str]) -> Seen:
    """Compare the calls with the sub-messages that have to be handled, and with their sub-keys."""
    lines = list(calls)
    last_line = {call.caller: number for number, call in enumerate(lines)}
    lanes: dict[tuple[str, int], list[Place]] = defaultdict(list)
    for place in sorted(expected):
        lanes[expected[place], place[0]].append(place)
    before = {later: earlier for places in lanes.values() for earlier, later in pairwise(places)}
    done: set[Place] = set()
    running: dict[str, tuple[int, Place]] = {}
    foreign = wrong = at_once = repeated = 0
    for number, call in enumerate(lines):
        if call.mark == "+":
            foreign += expected.get(call.place) != call.sub_key
            other = running.get(call.sub_key)
            at_once += other is not None and last_line[other[0]] > number
            running[call.sub_key] = call.caller, call.place
            wrong += call.place in before and before[call.place] not in done
            continue
        running.pop(call.sub_key, None)
        if call.mark == "-":
            repeated += call.place in done
            done.add(call.place)
    return Seen(len(expected.keys() - done), foreign, wrong, at_once, repeated)


def traced(path: Path) -> Iterable[Call]:
    """Return the calls that ``handler.py`` wrote down. A line that a kill tore has no dot at its
    end, and is left out."""
    for text in path.read_text().splitlines() if path.exists() else ():
        if text.endswith(" ."):
            mark, sub_key, partition, offset, index, pid, _, _ = text.split()
            place = int(partition), int(offset), int(index)
            yield Call(mark, place, sub_key, int(pid))


def committed(settings: ClientSettings, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the committed offsets of a group by partition, as far as there are any."""
    consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, "group.id": group})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(places, ANSWER_S)
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}
