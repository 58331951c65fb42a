"""What a reader of the source may say, in the words of ``drainer run``, and what it then reads."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import msgspec
from pyspark import SparkFiles

from drainer.core.progress import cut
from drainer.errors import RecordsDeleted, Refused, UsageError
from drainer.kafka.backlog import OF_GROUPS, Bound, freeze, parse_from, parse_until
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ISOLATION, ISOLATIONS, ClientSettings
from drainer.message import Origin

NAMES = (
    "topic",
    "bootstrap.servers",
    "client.config",
    "partitions",
    "from",
    "until",
    "ranges",
    "group",
    "isolation",
    "tasks",
)
MOST_TASKS = 10_000  # of one partition; more is a slip of the finger

_RANGES_HINT = 'as in {"0": [100, 250], "3": [0, 40]}: by partition, [start, end)'


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, and how. Holds no secret: those are in the file that it names.

    Attributes:
        topic: its name.
        bootstrap_servers: ``host:port``, several with commas between; None when the file says it.
        client_config: a properties file as ``drainer run`` takes it, by a path that holds on the
            driver and on every executor, or the name of one that was given to Spark's ``--files``.
        partitions: their numbers; none for all.
        from_: where to start, unless ``ranges`` says it.
        until: where to end, unless ``ranges`` says it.
        ranges: exactly what to read, ``[start, end)`` by partition; None when ``from_`` and
            ``until`` say it.
        group: whose committed offsets are the start; None when another start is named.
        isolation: ``read_committed`` or ``read_uncommitted``; None for what the file says.
        tasks: into how many tasks each partition is cut.
    """

    topic: str
    bootstrap_servers: str | None
    client_config: str | None
    partitions: tuple[int, ...]
    from_: Bound
    until: Bound
    ranges: Mapping[int, tuple[int, int]] | None = field(default=None)
    group: str | None = None
    isolation: str | None = None
    tasks: int = 1

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """What the options say.

        Raises:
            UsageError: when one is unknown, makes no sense or contradicts another. Of unknown ones
                it shows no value: that may be a secret.
        """
        for name in options:
            if name.lower() not in NAMES:
                raise _unknown(name)
        given = {name.lower(): text.strip() for name, text in options.items()}
        if not given.get("topic"):
            raise UsageError("no topic is named", hint='say .option("topic", ...)')
        ranges = given.get("ranges")
        if ranges is not None and (also := [n for n in _ELSE_THAN_RANGES if n in given]):
            raise UsageError(
                f"ranges says exactly what to read, and {' and '.join(also)} would say it too",
                hint="leave either out",
            )
        group = given.get("group") or None
        isolation = given.get("isolation")
        if isolation is not None and isolation not in ISOLATIONS:
            raise UsageError(
                f"isolation={isolation!r} is unknown", hint=f"use {' or '.join(ISOLATIONS)}"
            )
        return cls(
            topic=given["topic"],
            bootstrap_servers=given.get("bootstrap.servers") or None,
            client_config=given.get("client.config") or None,
            partitions=_partitions(given.get("partitions", "")),
            from_=parse_from(given.get("from", "committed" if group else "earliest")),
            until=parse_until(given.get("until", "end")),
            ranges=None if ranges is None else _ranges(ranges),
            group=group,
            isolation=isolation,
            tasks=_tasks(given.get("tasks", "1")),
        )

    def settings(self) -> ClientSettings:
        """How to connect, from where this is called, which is in a worker: the file is read there.

        Raises:
            UsageError: when the file can't be read, or librdkafka rejects what it says.
        """
        overrides = [] if self.isolation is None else [f"{ISOLATION}={self.isolation}"]
        file = None if self.client_config is None else placed(self.client_config)
        return ClientSettings.load(self.bootstrap_servers, file, overrides)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition, with holes or not."""

    origin: Origin
    start: int
    end: int

    def cut(self, parts: int) -> Iterator[OffsetRange]:
        """The same in ranges that follow each other, as even as can be, none of them empty."""
        for start, end in cut((self.start, self.end), parts):
            yield OffsetRange(self.origin, start, end)


def plan_ranges(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    """What is to be read, cut into tasks, from now on the same whatever happens to the topic.

    Raises:
        TopicMissing: when the topic or a partition does not exist.
        OffsetMissing: when it shall start at a committed offset that there is not.
        RecordsDeleted: when ``ranges`` names offsets that retention took.
        Refused: when the range lies outside of the log otherwise, or can't be read.
        UsageError: when one offset shall be that of several partitions.
    """
    whole = _frozen(cluster, options) if options.ranges is None else _named(cluster, options)
    return [part for range_ in whole for part in range_.cut(options.tasks)]


def _frozen(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    # A group with another start would be kept from going back; to read is to go anywhere.
    group = options.group if options.from_ in OF_GROUPS else None
    backlog = freeze(
        cluster, options.topic, group, options.partitions or None, options.from_, options.until
    )
    return [
        OffsetRange(Origin(backlog.topic, backlog.topic_id, number), part.start, part.end)
        for number, part in sorted(backlog.partitions.items())
    ]


def _named(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    topic, ranges = cluster.topic(options.topic), options.ranges or {}
    topic.chosen(ranges)
    logs = cluster.log_bounds(topic.name, ranges, cluster.settings.isolation)
    for number, (start, end) in ranges.items():
        log, place = logs[number], f"{topic.name}/{number}"
        if start < min(end, log.start):
            left = min(end, log.end)
            raise RecordsDeleted(
                f"ranges asks for offsets {start} to {end - 1} of {place}, and retention has"
                f" deleted those before {log.start}",
                hint=f"what is left of it is [{log.start}, {left}]"
                if log.start < left
                else "nothing of it is left",
            )
        if end > max(start, log.end):
            raise Refused(
                f"ranges asks for offsets {start} to {end - 1} of {place}, which ends at {log.end}",
                hint="only what is there when the read is planned can be read",
            )
    return [
        OffsetRange(Origin(topic.name, topic.topic_id, number), start, end)
        for number, (start, end) in sorted(ranges.items())
    ]


_ELSE_THAN_RANGES = ("partitions", "from", "until", "group")


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name.lower(), NAMES, n=1)
    hint = f"is it {near[0]}?" if near else f"there are {', '.join(NAMES)}"
    if name.lower() == "path":
        hint = 'say .load() without a path, and .option("topic", ...)'
    elif not near and "." in name:
        hint = "properties of the client go into a file, which the option client.config names"
    return UsageError(f"the option {name} is unknown", hint=hint)


def placed(path: str) -> Path:
    """Where a file of this path is, on the driver or on an executor. Raises UsageError."""
    given = Path(path)
    if given.is_file():
        return given
    if SparkFiles.getRootDirectory():
        sent = Path(SparkFiles.get(given.name))
        if sent.is_file():
            return sent
    raise UsageError(
        f"client.config={path}: there is no such file on {socket.gethostname()}",
        hint="it has to be on the driver and on every executor: give it to --files or addFile, and"
        " name it without its folder",
    )


def _partitions(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not re.fullmatch("[0-9]{1,9}", word):
            raise UsageError(
                f"partitions={text!r}: {word!r} is no partition's number", hint="as in 0,2,5"
            )
    return tuple(sorted(set(map(int, words))))


def _tasks(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= MOST_TASKS:
        raise UsageError(
            f"tasks={text!r} is no number from 1 to {MOST_TASKS}",
            hint="it is how many tasks read one partition, each a part of its offsets",
        )
    return int(text)


def _ranges(text: str) -> dict[int, tuple[int, int]]:
    try:
        found = msgspec.json.decode(text, type=dict[int, tuple[int, int]])
        for number, (start, end) in found.items():
            if number < 0 or not 0 <= start <= end < 2**63:
                raise ValueError(
                    f"[{start}, {end}) of partition {number} is not a range of offsets"
                )
        if not found:
            raise ValueError("it has no partition")
    except ValueError as error:  # also msgspec's
        raise UsageError(f"ranges={text!r}: {error}", hint=_RANGES_HINT) from None
    return found
