"""Options of a reader of the source, by drainer's names and those of Spark's Kafka source."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from pyspark import SparkFiles

from drainer.errors import Refused, UsageError
from drainer.kafka.backlog import (
    COMMITTED,
    EARLIEST,
    END,
    OF_GROUPS,
    Backlog,
    Bound,
    freeze,
    parse_from,
    parse_until,
)
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import BOOTSTRAP, ISOLATION, ClientSettings
from drainer.message import Origin
from drainer.model.listed import listed
from drainer.model.ranges import cut
from drainer.spark.session.settings import MOST_TASKS

READER = "drainer-spark"  # the name of a group without members

Offsets = Mapping[str, Mapping[int, int]]  # by topic and partition


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Topics to read, and how. ``repr`` shows no property: it may be a secret."""

    topics: Mapping[str, tuple[int, ...]]  # by name which partitions, none for all
    # Where to start; of offsets, a negative one is the first record that is there.
    start: Bound | Offsets = EARLIEST
    end: Bound | Offsets = END  # where to end; of offsets, a negative one is the end of the log
    # The client's, over those of the file.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    # A properties file as ``drainer run`` takes it, by a path that holds on the driver and on every
    # executor, or the name of one that was given to Spark's ``--files``.
    client_config: str | None = None
    # Whose committed offsets are the start; None when another start is named.
    group: str | None = None
    reader: str = READER  # the name of a group that the broker sees
    # Number of readers, about, each some offsets of one partition; at least one a partition.
    tasks: int = 1
    headers: bool = False  # whether rows have them when no schema decides it

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse the options; one without a text counts as missing.

        Raises UsageError when one is unknown, makes no sense or contradicts another. Of unknown
        ones it shows no value: that may be a secret.
        """
        found, named_by, properties = dict[str, Any](), dict[str, str](), dict[str, str]()
        for name, text in options.items():
            if name.lower() not in _OPTIONS and not name.lower().startswith(KAFKA):
                raise _unknown(name)
            if not text.strip():
                continue
            of_client = (name.lower().removeprefix(KAFKA), None, "")
            about, parse, example = _OPTIONS.get(name.lower(), of_client)
            if (other := named_by.setdefault(about, name)) != name:
                raise UsageError(
                    f"{other} and {name} set the same thing", hint="Remove one of them."
                )
            if parse is None:
                properties[about] = text.strip()
                continue
            try:
                found[about] = parse(text.strip())
            except ValueError as error:  # also msgspec's
                raise UsageError(
                    f"{name}={text!r}: {error}", hint=f"Give a value such as {example}."
                ) from None
        if not found.get("topics"):
            raise UsageError("no topic is named", hint='Add .option("topic", ...).')
        if partitions := found.pop("partitions", ()):
            if any(found["topics"].values()):
                raise UsageError("assign and partitions are both given", hint="Remove one of them.")
            found["topics"] = dict.fromkeys(found["topics"], partitions)
        if "group" in found:
            found = {"start": COMMITTED, "reader": found["group"], **found}
        # As Spark's source does, so that a query has the same rows from both.
        if named_by["topics"].lower() != "topic" and "client_config" not in found:
            properties.setdefault(ISOLATION, "read_uncommitted")
        found.pop("loss", None)
        return cls(**found, properties=properties)

    def settings(self) -> ClientSettings:
        """Return how to connect; the file is read where this is called, which is in a worker.

        Raises UsageError when the file can't be read, or librdkafka rejects it.
        """
        overrides = [f"{name}={value}" for name, value in self.properties.items()]
        file = None if self.client_config is None else placed(self.client_config)
        return ClientSettings.load(None, file, overrides)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition, with holes or not."""

    origin: Origin
    start: int
    end: int


def backlog_ranges(backlog: Backlog) -> list[OffsetRange]:
    """A backlog as ranges, one a partition."""
    return [
        OffsetRange(Origin(backlog.topic, backlog.topic_id, number), part.start, part.end)
        for number, part in sorted(backlog.partitions.items())
    ]


def cut_evenly(ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """The same in about so many ranges of about one length, none of them empty."""
    total = max(1, sum(each.end - each.start for each in ranges))
    return [
        OffsetRange(each.origin, *part)
        for each in ranges
        for part in cut(
            (each.start, each.end), max(1, round(tasks * (each.end - each.start) / total))
        )
    ]


def plan_ranges(cluster: Cluster, options: ReadOptions) -> list[OffsetRange]:
    """Return the ranges to read, by partition, from now on the same whatever happens to the topics.

    Raises TopicMissing when a topic or a partition does not exist; OffsetMissing when it shall
    start at a committed offset that there is not; Refused when the range lies outside of the log,
    or can't be read; UsageError when offsets are named for other partitions than those that are
    read.
    """
    start = options.start if isinstance(options.start, Bound) else EARLIEST
    end = options.end if isinstance(options.end, Bound) else END
    # A group with another start would be kept from going back; to read is to go anywhere.
    group = options.group if start in OF_GROUPS else None
    backlogs = [
        freeze(cluster, topic, group, numbers or None, start, end)
        for topic, numbers in sorted(options.topics.items())
    ]
    read = {(backlog.topic, number) for backlog in backlogs for number in backlog.partitions}
    for name, places in (("startingOffsets", options.start), ("endingOffsets", options.end)):
        if isinstance(places, Bound):
            continue
        named = {(topic, number) for topic, found in places.items() for number in found}
        if odd := [f"{topic}/{number}" for topic, number in sorted(named ^ read)]:
            raise UsageError(
                f"{name} must name exactly the partitions to read; these differ: {listed(odd)}",
                hint="Choose partitions with assign. Offset -2 is the start of a log, -1 its end.",
            )
    return [
        _named(each, backlog, options) for backlog in backlogs for each in backlog_ranges(backlog)
    ]


def _named(whole: OffsetRange, backlog: Backlog, options: ReadOptions) -> OffsetRange:
    topic, number = whole.origin.topic, whole.origin.partition
    start, end = whole.start, whole.end
    if not isinstance(options.start, Bound) and (at := options.start[topic][number]) >= 0:
        start = at
    if not isinstance(options.end, Bound) and (at := options.end[topic][number]) >= 0:
        end = at
    if (start, end) == (whole.start, whole.end):
        return whole
    log = backlog.partitions[number]
    if not log.log_start <= start <= end <= log.log_end:
        raise Refused(
            f"offsets [{start}, {end}) are outside {topic}/{number}, which holds"
            f" [{log.log_start}, {log.log_end})",
            hint="Choose offsets that exist now.",
        )
    return OffsetRange(whole.origin, start, end)


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name.lower(), _OPTIONS, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Use one of {', '.join(_OPTIONS)}."
    if name.lower() == "path":
        hint = 'Call .load() without a path, and add .option("topic", ...).'
    elif not near and "." in name:
        hint = "Prefix a client property with kafka., or put it into the file of client.config."
    return UsageError(f"the option {name} is unknown", hint=hint)


def placed(path: str) -> Path:
    """Find a file by its path, on the driver or on an executor. Raises UsageError."""
    given = Path(path)
    if given.is_file():
        return given
    if SparkFiles.getRootDirectory():
        sent = Path(SparkFiles.get(given.name))
        if sent.is_file():
            return sent
    raise UsageError(
        f"client.config={path} does not exist on {socket.gethostname()}",
        hint="Put it on the driver and every executor with --files or addFile, and name it without"
        " its folder.",
    )


def _topics(text: str) -> dict[str, tuple[int, ...]]:
    return {name.strip(): () for name in text.split(",") if name.strip()}


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = msgspec.json.decode(text, type=dict[str, tuple[int, ...]])
    if not all(found.values()):
        raise ValueError("a topic has no partition")
    return found


def _partitions(text: str) -> tuple[int, ...]:
    return tuple(sorted({_number(word) for word in text.split(",")}))


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,18}", text.strip()):
        raise ValueError(f"{text.strip()!r} is not a number")
    return int(text)


def _time(text: str) -> Bound:
    return Bound(time_ms=_number(text))


def _tasks(text: str) -> int:
    if not 1 <= (tasks := _number(text)) <= MOST_TASKS:
        raise ValueError(f"it must be from 1 to {MOST_TASKS}")
    return tasks


def _places(word: str, bound: Bound, stands_for_it: int) -> Callable[[str], Bound | Offsets]:
    def parse(text: str) -> Bound | Offsets:
        if text.lower() == word:
            return bound
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
        for offset in (offset for each in found.values() for offset in each.values()):
            if not 0 <= offset < 2**63 and offset != stands_for_it:
                raise ValueError(f"{offset} is not an offset, or {stands_for_it} for {word}")
        return found

    return parse


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _true(text: str) -> bool:
    if not _flag(text):
        raise ValueError("drainer never skips lost records silently")
    return True


KAFKA = "kafka."
# Drainer's names, then those of Spark's Kafka source: which attribute an option is about, how it is
# read, and an example; or which property of the client it is, which is taken as it is.
_OPTIONS: dict[str, tuple[str, Callable[[str], Any] | None, str]] = {
    "topic": ("topics", _topics, "orders"),
    "partitions": ("partitions", _partitions, "0,2,5"),
    "from": ("start", parse_from, "earliest"),
    "until": ("end", parse_until, "end"),
    "group": ("group", str, "indexer"),
    "tasks": ("tasks", _tasks, "8"),
    "client.config": ("client_config", str, "client.properties"),
    "bootstrap.servers": (BOOTSTRAP, None, ""),
    "isolation": (ISOLATION, None, ""),
    "subscribe": ("topics", _topics, "orders,refunds"),
    "assign": ("topics", _assigned, '{"orders": [0, 2]}'),
    "startingoffsets": ("start", _places("earliest", EARLIEST, -2), '{"orders": {"0": 100}}'),
    "endingoffsets": ("end", _places("latest", END, -1), '{"orders": {"0": 250}}'),
    "startingtimestamp": ("start", _time, "1795197600000, milliseconds since 1970"),
    "endingtimestamp": ("end", _time, "1795197600000, milliseconds since 1970"),
    "minpartitions": ("tasks", _tasks, "8"),
    "kafka.group.id": ("reader", str, "spark"),
    "includeheaders": ("headers", _flag, "true"),
    "failondataloss": ("loss", _true, "true"),
}
