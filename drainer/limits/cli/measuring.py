"""What ``drainer limits`` is asked for: its options, and how their values are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import isfinite
from pathlib import Path

from drainer.cli.engines import Engines
from drainer.cli.groups import option, options
from drainer.cli.values import parse_duration, parse_list, parse_share, parse_size
from drainer.errors import UsageError
from drainer.limits.file import CSV_MARK
from drainer.limits.request import PRODUCERS_MOST
from drainer.limits.search.overload import Thresholds
from drainer.limits.search.settings import Axis, Value
from drainer.spark.settings import EVERY_CORE, SparkLook
from drainer.view.report.file import ReportFile
from drainer.wings import Extra, insist_on

BYTES = "100,1KiB,10KiB,100KiB"
ONE_SIZE = "1KiB"
MESSAGE_BYTES_MOST = 64 * 1024 * 1024

REPORTS_S = 1.0  # clients report a few times a second, and both ends of a window miss some


class Vary(StrEnum):
    """What else than message sizes can be varied."""

    CONSUMER_GROUPS = Axis.CONSUMER_GROUPS.value
    PARTITIONS = Axis.PARTITIONS.value
    COMPRESSION = Axis.COMPRESSION.value


class Compression(StrEnum):
    """How producers compress."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def parse_megabytes(number: float) -> float:
    """Megabytes as bytes. Raises UsageError."""
    if not isfinite(number):
        raise UsageError(f"{number} bounds nothing", hint="as in 50")
    return number * 1e6


def parse_pace(text: str) -> float:
    """``64KiB`` each second. Raises UsageError."""
    pace = parse_size(text.strip().removesuffix("/s"))
    if pace < 1:
        raise UsageError(f"{text!r} sends nothing", hint="as in 64KiB, each second")
    return float(pace)


def parse_compressibility(text: str) -> float:
    """A share that may be 0. Raises UsageError."""
    if text.strip().rstrip("%") in ("0", "0.0"):
        return 0.0
    return parse_share(text)


def parse_precision(text: str) -> float:
    """A share that can be reached. Raises UsageError."""
    found = parse_share(text)
    if not 0.01 <= found <= 0.5:
        raise UsageError(
            f"{text} is out of reach",
            hint="from 1% to 50%: below, chance decides about each trial",
        )
    return found


def at_least(least_s: float) -> Callable[[str], float]:
    """A parser of durations that are long enough to see anything."""

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if seconds < least_s:
            raise UsageError(f"{text} is too short to see anything", hint=f"{least_s:g}s at least")
        return seconds

    return parse


def parse_csv(path: str) -> ReportFile:
    return ReportFile(Path(path), "--csv", CSV_MARK, "table of trials")


def parse_png(path: str) -> ReportFile:
    insist_on(Extra.REPORT, "--png")
    return ReportFile(Path(path), "--png", b"\x89PNG", "PNG picture")


@options("What is sent")
class Sent:
    """What is sent."""

    bytes_: str | None = option(
        "--bytes",
        default=None,
        metavar="SIZES",
        help=f"Sizes of messages, each with a boundary of its own. Default: {BYTES}. With --vary it"
        f" is one size, {ONE_SIZE} by default.",
    )
    consumer_groups: int = option(
        "--consumer-groups",
        default=5,
        min=0,
        help="Groups that read all that is sent.",
    )
    partitions: int = option(
        "--partitions",
        default=10,
        min=1,
        help="Of the test topic, for each broker.",
    )
    compression: Compression = option(
        "--compression",
        default=Compression.NONE,
        help="Of the producers.",
    )
    compressibility: float = option(
        "--compressibility",
        default="0",
        parse=parse_compressibility,
        metavar="SHARE",
        help="How much of a payload compresses to nothing. 0 is random, the conservative limit.",
    )
    vary: Vary | None = option(
        "--vary",
        default=None,
        help="Look for the boundary over this instead of message sizes.",
    )
    values: str | None = option(
        "--values",
        default=None,
        metavar="LIST",
        help="Of what --vary names, as in 0,1,5,10 or none,lz4,zstd.",
    )


@options("How it is searched")
class Searching:
    """How the boundary is searched for."""

    pace_bytes_per_s: float | None = option(
        "--pace",
        default=None,
        parse=parse_pace,
        metavar="SIZE",
        help="What one producer sends per second; their number sets the rate. Default: the most"
        " that may be sent, shared out over --max-producers.",
    )
    max_producers: int = option(
        "--max-producers",
        default=PRODUCERS_MOST,
        min=1,
        help="More are never tried. They should overload the brokers for certain.",
    )
    precision: float = option(
        "--precision",
        default="5%",
        parse=parse_precision,
        metavar="SHARE",
        help="How narrowly the boundary is to be known.",
    )
    trials: int = option(
        "--trials",
        default=14,
        min=2,
        help="The most for one boundary.",
    )
    warm_up_s: float = option(
        "--warm-up",
        default="10s",
        parse=parse_duration,
        metavar="DURATION",
        help="Of each trial, before it is looked at.",
    )
    window_s: float = option(
        "--window",
        default="30s",
        parse=at_least(Thresholds().window_s_least + REPORTS_S),
        metavar="DURATION",
        help="For how long each trial is looked at. What brokers bear for it, they may not bear"
        " for an hour: disks and caches fill.",
    )
    cool_down_s: float = option(
        "--cool-down",
        default="60s",
        parse=at_least(1.0),
        metavar="DURATION",
        help="The most to wait after a trial until the brokers are idle again.",
    )
    jmx: tuple[str, ...] = option(
        "--jmx",
        default=(),
        many=str,
        metavar="HOST:PORT",
        help="Metrics of a broker, to see how busy its request handlers are; repeat for all of"
        " them. Without, what clients see decides.",
    )


@options("What it never does")
class Bounds:
    """What is never done."""

    bytes_per_s_most: float | None = option(
        "--max-mb-per-s",
        default=None,
        given=float,
        parse=parse_megabytes,
        min=0.001,
        help="All producers together never send more (10^6 bytes; copies and readers come on"
        " top). The boundary may then lie above it, and it is said so. Default: 200 a broker.",
    )
    shared_cluster: bool = option(
        "--shared-cluster",
        default=False,
        help="Others use this cluster, and that is fine: each trial ends within about a second of"
        " overload. Without, a cluster with other traffic is refused.",
    )


@options("The result")
class Result:
    """What is written."""

    out: Path = option(
        "--out",
        default=Path("limits.json"),
        envvar="DRAINER_LIMITS_OUT",
        metavar="FILE.json",
        help="What was found, for `drainer run --limits`. One that is there is gone on with.",
    )
    safe_share: float = option(
        "--safe-share",
        default="0.8",
        parse=parse_share,
        metavar="SHARE",
        help="Of the boundary, that a drain may use: by default a fifth of the brokers may be out.",
    )
    csv: ReportFile | None = option(
        "--csv",
        default=None,
        parse=parse_csv,
        envvar="DRAINER_LIMITS_CSV",
        metavar="FILE.csv",
        help="Every trial with its signals, as a table.",
    )
    png: ReportFile | None = option(
        "--png",
        default=None,
        parse=parse_png,
        envvar="DRAINER_LIMITS_PNG",
        metavar="FILE.png",
        help="The picture of the boundary over the trials.",
    )


@options("What it runs on")
class Hosts(Engines):
    """Where the clients run."""

    tasks: int | None = option(
        "--tasks",
        default=None,
        metavar="N",
        help="How many of Spark's tasks host the clients; all run at once. Default: one a core.",
    )

    def place(self) -> SparkLook:
        """Raises UsageError."""
        master = EVERY_CORE if self.master is None else self.master.strip()
        return SparkLook(master, self.spark_conf, self.tasks)


def axis(
    vary: Vary | None, values: str | None, sizes: str | None
) -> tuple[Axis, tuple[Value, ...], int]:
    """The axis, its values, and the message size when another one is varied."""
    if vary is None:
        if values is not None:
            raise UsageError(
                "--values are of what --vary names, and it names nothing",
                hint="say sizes of messages with --bytes, or --vary consumer-groups",
            )
        found = _distinct([_size(word) for word in _list("--bytes", sizes or BYTES)], "--bytes")
        return Axis.MESSAGE_BYTES, found, _size(ONE_SIZE)
    if values is None:
        raise UsageError(
            f"--vary {vary.value} needs --values",
            hint="as in --values none,lz4,zstd" if vary is Vary.COMPRESSION else "as in 1,5,10",
        )
    chosen = _list("--bytes", sizes or ONE_SIZE)
    if len(chosen) > 1:
        raise UsageError(
            f"--vary {vary.value} is for messages of one size, and --bytes names {len(chosen)}",
            hint=f"as in --bytes {ONE_SIZE}",
        )
    words = _list("--values", values)
    return (
        Axis(vary.value),
        _distinct([_value(vary, w) for w in words], "--values"),
        _size(chosen[0]),
    )


def _value(vary: Vary, word: str) -> Value:
    if vary is Vary.COMPRESSION:
        if word not in [*Compression]:
            raise UsageError(
                f"--values {word!r} is no compression", hint=f"they are {', '.join(Compression)}"
            )
        return word
    least = 0 if vary is Vary.CONSUMER_GROUPS else 1
    if not word.isdecimal() or int(word) < least:
        raise UsageError(f"--values {word!r} is no number from {least} on", hint="as in 1,5,10")
    return int(word)


def _distinct(found: Sequence[Value], option: str) -> tuple[Value, ...]:
    if len(set(found)) < len(found):
        raise UsageError(f"{option} has a value twice", hint="name each once")
    return tuple(found)


def _size(word: str) -> int:
    size = parse_size(word)
    if not 1 <= size <= MESSAGE_BYTES_MOST:
        raise UsageError(
            f"--bytes {word} is no size of a message", hint="from 1 to 64MiB, as in 100,1KiB,10KiB"
        )
    return size


def _list(option_: str, text: str) -> tuple[str, ...]:
    try:
        return parse_list(text)
    except UsageError as error:
        raise UsageError(f"{option_} {error}", hint=error.hint) from None
