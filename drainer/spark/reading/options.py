"""Options of the data source: the options of Spark's own Kafka source, and some of drainer's."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec

from drainer.errors import DrainerError, RecordsDeleted, Refused, UsageError, raised_as
from drainer.kafka.backlog import EARLIEST, END, OF_GROUPS, Backlog, Bound, freeze
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.message import Origin
from drainer.model.listed import listed
from drainer.model.ranges import cut
from drainer.spark.session.failure import restated
from drainer.spark.session.settings import MOST_TASKS

# Errors give advice for the command line. Here it is replaced by advice for a program.
_WORDS = (
    ("-b HOST:PORT, DRAINER_BOOTSTRAP_SERVER,", "the option kafka.bootstrap.servers,"),
    ("earliest, OFFSET or @TIME", "earliest, or a startingTimestamp"),
    ("drain the rest, use --from ", "read the rest, use startingOffsets="),
    ("--from ", "startingOffsets="),
    ("--until end", "endingOffsets=latest"),
    ("with --partition", "with assign"),
    (" Start a new drain with another --plan.", ""),
)

READER = "drainer-spark"  # The default group, which has no members.

Bounds = Mapping[str, Mapping[int, Bound]]  # Bounds by topic and partition.


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The topics to read, and how. ``repr`` shows no properties, since they may be secrets.

    Attributes:
        topics: by name of the topic, the partitions to read; empty for all partitions.
        start: where reading begins; None for the earliest record in a batch, and for the end of the
            log in a stream, as in Spark's own source.
        properties: properties of the client. They override those in the file.
        client_config: a properties file as for ``drainer run``: a path that is valid on the driver
            and on every executor, or the name of a file that was sent to them.
        group: the group that the broker sees. Reading may begin at its committed offsets.
        tasks: about how many tasks read. Each partition has at least one.
        headers: whether rows have headers, if no schema decides that.
        most: about how many offsets a stream reads in one micro-batch; None for all there are.
    """

    topics: Mapping[str, tuple[int, ...]]
    start: Bound | Bounds | None = None
    end: Bound | Bounds = END
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    client_config: str | None = None
    group: str = READER
    tasks: int = 1
    headers: bool = False
    most: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse the options. The case of their names does not matter, and an empty text counts as
        no option.

        Raises UsageError if an option is unknown, makes no sense or contradicts another one. The
        error shows no value of an unknown option, which may be a secret.
        """
        found, named_by, properties = dict[str, Any](), dict[str, str](), dict[str, str]()
        for given, value in options.items():
            name, text = _NAMES.get(given.lower()), value.strip()
            if name is None and not given.lower().startswith(KAFKA):
                raise _unknown(given)
            if not text:
                continue
            if name is None:
                properties[given.lower().removeprefix(KAFKA)] = text
                continue
            about, parse, example = _OPTIONS[name]
            if (other := named_by.setdefault(about, name)) != name:
                raise UsageError(
                    f"{other} and {name} set the same thing", hint="Remove one of them."
                )
            wrong = ValueError, OverflowError  # Errors of msgspec are ValueErrors.
            hint = f"Give a value such as {example}."
            with raised_as(UsageError, *wrong, about=f"{name}={text!r}: ", hint=hint):
                found[about] = parse(text)
        if not found.get("topics"):
            raise UsageError("no topic is named", hint='Add .option("subscribe", ...).')
        if found.get("start") in OF_GROUPS and "group" not in found:
            raise UsageError(
                f"startingOffsets={found['start']} needs a group",
                hint=f'Add .option("{GROUP}", ...).',
            )
        found.pop("loss", None)
        return cls(**found, properties=properties)

    def ensure_batch(self) -> None:
        """Raise UsageError if an option makes sense for a stream only."""
        if self.most is not None:
            raise UsageError(
                "maxOffsetsPerTrigger is for a stream, and this is a batch", hint="Remove it."
            )
        if END in _bounds_in(self.start):
            raise UsageError(
                "startingOffsets is the end of the log, where a batch has nothing to read",
                hint="Choose an earlier start. Only a stream can start at the end.",
            )

    def ensure_stream(self) -> None:
        """Raise UsageError if an option makes sense for a batch only."""
        if set(_bounds_in(self.end)) != {END}:
            raise UsageError(
                "an end is for a batch, and this is a stream",
                hint="Remove it. To stop a stream at the present end of the log, use"
                " .trigger(availableNow=True).",
            )

    def settings(self) -> ClientSettings:
        """Return the settings of the client, from the file on the machine that calls this.

        Raises UsageError if the file can't be read, or librdkafka rejects it.
        """
        overrides = [f"{name}={value}" for name, value in self.properties.items()]
        file = None if self.client_config is None else placed(self.client_config)
        settings = ClientSettings.load(None, file, overrides)
        # By default, Spark's own source reads uncommitted records, so this one does, too.
        return replace(settings, properties={ISOLATION: "read_uncommitted", **settings.properties})


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets ``[start, end)`` of one partition, which may have holes."""

    origin: Origin
    start: int
    end: int


def cut_evenly(ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """Cut ranges into roughly ``tasks`` ranges of roughly equal length, none of them empty."""
    total = max(1, sum(each.end - each.start for each in ranges))
    return [
        OffsetRange(each.origin, *part)
        for each in ranges
        for part in cut(
            (each.start, each.end), max(1, round(tasks * (each.end - each.start) / total))
        )
    ]


def plan_ranges(
    cluster: Cluster, options: ReadOptions, default_start: Bound = EARLIEST
) -> list[OffsetRange]:
    """Return the ranges to read. They stay the same, whatever happens to the topics.

    Raises TopicMissing if a topic or a partition does not exist; OffsetMissing if the start is a
    committed offset that does not exist; Refused if a range lies outside the log or can't be read;
    UsageError if offsets are named for other partitions than those to read.
    """
    read = [
        (topic, number)
        for topic, numbers in sorted(options.topics.items())
        for number in cluster.topic(topic).chosen(numbers or None)
    ]
    alike = defaultdict[tuple[str, Bound, Bound], dict[int, tuple[Bound, Bound]]](dict)
    starts = _by_partition(options.start or default_start, read)
    ends = _by_partition(options.end, read)
    for (topic, number), start, end in zip(read, starts, ends, strict=True):
        # Partitions with named offsets are frozen with the whole log, and then cut by _range_of.
        key = topic, _unless_offset(start, EARLIEST), _unless_offset(end, END)
        alike[key][number] = start, end
    ranges = []
    for (topic, start, end), bounds in alike.items():
        # If freeze got a group, it would refuse a start before the committed offset. Reading may
        # start anywhere.
        group = options.group if start in OF_GROUPS else None
        backlog = freeze(cluster, topic, group, bounds, start, end)
        ranges += [_range_of(backlog, n, *bounds[n]) for n in sorted(backlog.partitions)]
    return ranges


def _bounds_in(bounds: Bound | Bounds | None) -> list[Bound]:
    if bounds is None or isinstance(bounds, Bound):
        return [bounds] if bounds else []
    return [bound for found in bounds.values() for bound in found.values()]


def _by_partition(bounds: Bound | Bounds, read: Sequence[tuple[str, int]]) -> list[Bound]:
    if isinstance(bounds, Bound):
        return [bounds] * len(read)
    named = {(topic, number) for topic, found in bounds.items() for number in found}
    if odd := [f"{topic}/{number}" for topic, number in sorted(named.symmetric_difference(read))]:
        raise UsageError(
            f"starting and ending offsets must name exactly the partitions to read; these differ:"
            f" {listed(odd)}",
            hint="Choose partitions with assign. Offset -2 is the start of a log, -1 its end.",
        )
    return [bounds[topic][number] for topic, number in read]


def _unless_offset(bound: Bound, whole: Bound) -> Bound:
    return bound if bound.offset is None else whole


def _range_of(backlog: Backlog, number: int, first: Bound, last: Bound) -> OffsetRange:
    log = backlog.partitions[number]
    start = log.start if first.offset is None else first.offset
    end = log.end if last.offset is None else last.offset
    if (start, end) != (log.start, log.end) and not log.log_start <= start <= end <= log.log_end:
        raise Refused(
            f"offsets [{start}, {end}) are outside {backlog.topic}/{number}, which holds"
            f" [{log.log_start}, {log.log_end})",
            hint="Choose offsets that exist now.",
        )
    return OffsetRange(Origin(backlog.topic, backlog.topic_id, number), start, end)


def _unknown(name: str) -> UsageError:
    known = {each.lower(): each for each in (*_OPTIONS, f"{KAFKA}bootstrap.servers")}
    near = get_close_matches(name.lower(), known, n=1)
    hint = f"Did you mean {known[near[0]]}?" if near else f"Use one of {', '.join(known.values())}."
    if name.lower() == "path":
        hint = 'Call .load() without a path, and add .option("subscribe", ...).'
    elif not near and "." in name:
        hint = f"Prefix a client property with {KAFKA}, or put it into the file of clientConfig."
    return UsageError(f"the option {name} is unknown", hint=hint)


def placed(path: str) -> Path:
    """Return the path of a file on this machine, to which Spark may have sent it.

    Raises UsageError if the file does not exist.
    """
    from pyspark import SparkFiles  # noqa: PLC0415 - a client of Spark Connect may lack it

    given = Path(path)
    if given.is_file():
        return given
    if SparkFiles.getRootDirectory():
        sent = Path(SparkFiles.get(given.name))
        if sent.is_file():
            return sent
    raise UsageError(
        f"clientConfig={path} does not exist on {socket.gethostname()}",
        hint="Put it on the driver and every executor with --files, addFile or addArtifact, and"
        " name it without its folder.",
    )


@contextmanager
def explained() -> Iterator[None]:
    """Put the hint of a drainer error into its text, since Spark only shows the text."""
    try:
        yield
    except DrainerError as error:
        hint = error.hint
        if isinstance(error, RecordsDeleted) and "--accept-gap" in (hint or ""):
            hint = (
                "Raise the topic's retention. To read what is left, use startingOffsets=earliest,"
                " and in a stream another checkpointLocation."
            )
        text = str(error) if hint is None else f"{error}\nhint: {hint}"
        for command, option in _WORDS:
            text = text.replace(command, option)
        raise restated(error, text, hint) from None


def _topics(text: str) -> dict[str, tuple[int, ...]]:
    return {name.strip(): () for name in text.split(",") if name.strip()}


def _bounds(words: Mapping[str, Bound], numbers: Mapping[int, Bound]) -> Parse:
    def place(offset: int) -> Bound:
        if offset in numbers or 0 <= offset < 2**63:
            return numbers.get(offset, Bound(offset=offset))
        raise ValueError(f"{offset} is not an offset, nor {', '.join(map(str, numbers))}")

    def parse(text: str) -> Bound | Bounds:
        if text.lower() in words:
            return words[text.lower()]
        found = msgspec.json.decode(text, type=dict[str, dict[int, int]])
        return {topic: {n: place(at) for n, at in each.items()} for topic, each in found.items()}

    return parse


def _time(text: str) -> Bound:
    if re.fullmatch("[0-9]{1,18}", text):
        return Bound(time_ms=int(text))
    return Bound(time_ms=max(0, round(datetime.fromisoformat(text).timestamp() * 1000)))


def _times(text: str) -> Bounds:
    found = msgspec.json.decode(text, type=dict[str, dict[int, int | str]])
    return {topic: {n: _time(str(at)) for n, at in each.items()} for topic, each in found.items()}


def _true(text: str) -> bool:
    if text.lower() != "true":
        raise ValueError("drainer never skips lost records silently")
    return True


Parse = Callable[[str], Any]
KAFKA = "kafka."
GROUP = f"{KAFKA}group.id"
_LATEST, _AT_END = {"latest": END}, {-1: END}
_EARLIER = {bound.word: bound for bound in (EARLIEST, *OF_GROUPS)}
_STARTS = _bounds(_EARLIER | _LATEST, {-2: EARLIEST} | _AT_END)
_ENDS = _bounds(_LATEST, _AT_END)
_SOME = Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
_ASSIGNED = partial(msgspec.json.decode, type=dict[str, _SOME])
_COUNT = Annotated[int, msgspec.Meta(ge=1, le=MOST_TASKS)]
_MOST = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
_TIME = "2026-11-20T18:00Z, or milliseconds since 1970"
# For each option, the attribute that it sets, the function that reads it, and an example.
_OPTIONS: dict[str, tuple[str, Parse, str]] = {
    "subscribe": ("topics", _topics, "orders,refunds"),
    "assign": ("topics", _ASSIGNED, '{"orders": [0, 2]}'),
    "startingOffsets": ("start", _STARTS, 'earliest, committed or {"orders": {"0": 100}}'),
    "startingTimestamp": ("start", _time, _TIME),
    "startingOffsetsByTimestamp": ("start", _times, '{"orders": {"0": 1795197600000}}'),
    "endingOffsets": ("end", _ENDS, 'latest or {"orders": {"0": 250}}'),
    "endingTimestamp": ("end", _time, _TIME),
    "endingOffsetsByTimestamp": ("end", _times, '{"orders": {"0": 1795197600000}}'),
    "minPartitions": ("tasks", partial(msgspec.convert, type=_COUNT, strict=False), "8"),
    "maxOffsetsPerTrigger": ("most", partial(msgspec.convert, type=_MOST, strict=False), "10000"),
    "includeHeaders": ("headers", partial(msgspec.convert, type=bool, strict=False), "true"),
    "failOnDataLoss": ("loss", _true, "true"),
    GROUP: ("group", str, "indexer"),
    "clientConfig": ("client_config", str, "client.properties"),
}
_NAMES = {name.lower(): name for name in _OPTIONS}
