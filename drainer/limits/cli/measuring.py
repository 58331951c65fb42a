"""What ``drainer limits`` is asked for: its options, and how their values are written."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.values import parse_duration, parse_list, parse_share, parse_size
from drainer.errors import UsageError
from drainer.limits.search.settings import Axis, Value

BYTES = "100,1KiB,10KiB,100KiB"
ONE_SIZE = "1KiB"
MESSAGE_BYTES_MOST = 64 * 1024 * 1024

_WHAT = "What is sent"
_HOW = "How it is searched"
_BOUNDS = "What it never does"
_RESULT = "The result"


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


Sizes = Annotated[
    str | None,
    typer.Option(
        "--bytes",
        envvar="DRAINER_BYTES",
        metavar="SIZES",
        help=f"Sizes of messages, each with a boundary of its own. Default: {BYTES}. With --vary it"
        f" is one size, {ONE_SIZE} by default.",
        rich_help_panel=_WHAT,
    ),
]
ConsumerGroups = Annotated[
    int,
    typer.Option(
        "--consumer-groups",
        envvar="DRAINER_CONSUMER_GROUPS",
        min=0,
        help="Groups that read all that is sent.",
        rich_help_panel=_WHAT,
    ),
]
TestPartitions = Annotated[
    int,
    typer.Option(
        "--partitions",
        envvar="DRAINER_PARTITIONS",
        min=1,
        help="Of the test topic, for each broker.",
        rich_help_panel=_WHAT,
    ),
]
CompressionOption = Annotated[
    Compression,
    typer.Option(
        "--compression",
        envvar="DRAINER_COMPRESSION",
        help="Of the producers.",
        rich_help_panel=_WHAT,
    ),
]
Compressibility = Annotated[
    str,
    typer.Option(
        "--compressibility",
        envvar="DRAINER_COMPRESSIBILITY",
        metavar="SHARE",
        help="How much of a payload compresses to nothing. 0 is random, the conservative limit.",
        rich_help_panel=_WHAT,
    ),
]
VaryOption = Annotated[
    Vary | None,
    typer.Option(
        "--vary",
        envvar="DRAINER_VARY",
        help="Look for the boundary over this instead of message sizes.",
        rich_help_panel=_WHAT,
    ),
]
AxisValues = Annotated[
    str | None,
    typer.Option(
        "--values",
        envvar="DRAINER_VALUES",
        metavar="LIST",
        help="Of what --vary names, as in 0,1,5,10 or none,lz4,zstd.",
        rich_help_panel=_WHAT,
    ),
]
Pace = Annotated[
    str | None,
    typer.Option(
        "--pace",
        envvar="DRAINER_PACE",
        metavar="SIZE",
        help="What one producer sends per second; their number sets the rate. Default: the most"
        " that may be sent, shared out over --max-producers.",
        rich_help_panel=_HOW,
    ),
]
MaxProducers = Annotated[
    int,
    typer.Option(
        "--max-producers",
        envvar="DRAINER_MAX_PRODUCERS",
        min=1,
        help="More are never tried. They should overload the brokers for certain.",
        rich_help_panel=_HOW,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        envvar="DRAINER_PRECISION",
        metavar="SHARE",
        help="How narrowly the boundary is to be known.",
        rich_help_panel=_HOW,
    ),
]
Trials = Annotated[
    int,
    typer.Option(
        "--trials",
        envvar="DRAINER_TRIALS",
        min=2,
        help="The most for one boundary.",
        rich_help_panel=_HOW,
    ),
]
WarmUp = Annotated[
    str,
    typer.Option(
        "--warm-up",
        envvar="DRAINER_WARM_UP",
        metavar="DURATION",
        help="Of each trial, before it is looked at.",
        rich_help_panel=_HOW,
    ),
]
Window = Annotated[
    str,
    typer.Option(
        "--window",
        envvar="DRAINER_WINDOW",
        metavar="DURATION",
        help="For how long each trial is looked at. What brokers bear for it, they may not bear"
        " for an hour: disks and caches fill.",
        rich_help_panel=_HOW,
    ),
]
CoolDown = Annotated[
    str,
    typer.Option(
        "--cool-down",
        envvar="DRAINER_COOL_DOWN",
        metavar="DURATION",
        help="The most to wait after a trial until the brokers are idle again.",
        rich_help_panel=_HOW,
    ),
]
Jmx = Annotated[
    list[str] | None,
    typer.Option(
        "--jmx",
        envvar="DRAINER_JMX",
        metavar="HOST:PORT",
        help="Metrics of a broker, to see how busy its request handlers are; repeat for all of"
        " them. Without, what clients see decides.",
        rich_help_panel=_HOW,
    ),
]
MaxMbPerS = Annotated[
    float | None,
    typer.Option(
        "--max-mb-per-s",
        envvar="DRAINER_MAX_MB_PER_S",
        min=0.001,
        help="All producers together never send more (10^6 bytes; copies and readers come on"
        " top). The boundary may then lie above it, and it is said so. Default: 200 a broker.",
        rich_help_panel=_BOUNDS,
    ),
]
SharedCluster = Annotated[
    bool,
    typer.Option(
        "--shared-cluster",
        envvar="DRAINER_SHARED_CLUSTER",
        help="Others use this cluster, and that is fine: each trial ends within about a second of"
        " overload. Without, a cluster with other traffic is refused.",
        rich_help_panel=_BOUNDS,
    ),
]
OutPath = Annotated[
    Path,
    typer.Option(
        "--out",
        envvar="DRAINER_LIMITS_OUT",
        metavar="FILE.json",
        help="What was found, for `drainer run --limits`. One that is there is gone on with.",
        rich_help_panel=_RESULT,
    ),
]
SafeShare = Annotated[
    str,
    typer.Option(
        "--safe-share",
        envvar="DRAINER_SAFE_SHARE",
        metavar="SHARE",
        help="Of the boundary, that a drain may use: by default a fifth of the brokers may be out.",
        rich_help_panel=_RESULT,
    ),
]
CsvPath = Annotated[
    Path | None,
    typer.Option(
        "--csv",
        envvar="DRAINER_LIMITS_CSV",
        metavar="FILE.csv",
        help="Every trial with its signals, as a table.",
        rich_help_panel=_RESULT,
    ),
]
PngPath = Annotated[
    Path | None,
    typer.Option(
        "--png",
        envvar="DRAINER_LIMITS_PNG",
        metavar="FILE.png",
        help="The picture of the boundary over the trials.",
        rich_help_panel=_RESULT,
    ),
]
HostTasks = Annotated[
    int | None,
    typer.Option(
        "--tasks",
        envvar="DRAINER_TASKS",
        metavar="N",
        help="How many of Spark's tasks host the clients; all run at once. Default: one a core.",
        rich_help_panel="What it runs on",
    ),
]


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
        found = _distinct(
            [_size(word) for word in parse_list(sizes or BYTES, "--bytes")], "--bytes"
        )
        return Axis.MESSAGE_BYTES, found, _size(ONE_SIZE)
    if values is None:
        raise UsageError(
            f"--vary {vary.value} needs --values",
            hint="as in --values none,lz4,zstd" if vary is Vary.COMPRESSION else "as in 1,5,10",
        )
    chosen = parse_list(sizes or ONE_SIZE, "--bytes")
    if len(chosen) > 1:
        raise UsageError(
            f"--vary {vary.value} is for messages of one size, and --bytes names {len(chosen)}",
            hint=f"as in --bytes {ONE_SIZE}",
        )
    words = parse_list(values, "--values")
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


def most(megabytes: float | None) -> float | None:
    """``--max-mb-per-s`` in bytes/s."""
    if megabytes is not None and not isfinite(megabytes):
        raise UsageError(f"--max-mb-per-s {megabytes} bounds nothing", hint="as in 50")
    return None if megabytes is None else megabytes * 1e6


def pace(text: str | None) -> float | None:
    if text is None:
        return None
    pace = parse_size(text.strip().removesuffix("/s"))
    if pace < 1:
        raise UsageError(f"--pace {text!r} sends nothing", hint="as in 64KiB, each second")
    return float(pace)


def compressibility(text: str) -> float:
    if text.strip().rstrip("%") in ("0", "0.0"):
        return 0.0
    return parse_share(text, "--compressibility")


def precision(text: str) -> float:
    found = parse_share(text, "--precision")
    if not 0.01 <= found <= 0.5:
        raise UsageError(
            f"--precision {text} is out of reach",
            hint="from 1% to 50%: below, chance decides about each trial",
        )
    return found


def seconds(text: str, option: str, least_s: float) -> float:
    seconds = parse_duration(text)
    if seconds < least_s:
        raise UsageError(
            f"{option} {text} is too short to see anything", hint=f"{least_s:g}s at least"
        )
    return seconds
