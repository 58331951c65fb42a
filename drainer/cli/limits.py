"""``drainer limits``: find what brokers bear; ``compare`` two findings; ``cleanup``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli import engines as g
from drainer.cli import options as o
from drainer.cli.answer import answering, insist_on_yes
from drainer.cli.draining import connect
from drainer.cli.values import parse_duration, parse_list, parse_share, parse_size
from drainer.core.limits.comparison import compare as compare_limits
from drainer.core.limits.settings import Axis, Value
from drainer.errors import UsageError
from drainer.kafka.settings import ClientSettings
from drainer.operations.limits import (
    PRODUCERS_MOST,
    Host,
    LimitsRequest,
    clean_up,
    find_leftovers,
    measure_limits,
    prepare_limits,
)
from drainer.operations.trials import Pauses
from drainer.spark.settings import EVERY_CORE, SparkLook, java_for_spark
from drainer.store.limits_file import CSV_MARK, LimitsFile, trials_as_csv
from drainer.view.limits import (

    show_comparison,
    show_leftovers,
    show_limits,
    show_limits_action,
)
from drainer.view.report.file import ReportFile
from drainer.view.report.write import write_limits_picture, write_limits_report, write_or_warn
from drainer.view.searching import limits_view
from drainer.view.terminal import Terminal

BYTES = "100,1KiB,10KiB,100KiB"
ONE_SIZE = "1KiB"
MESSAGE_BYTES_MOST = 64 * 1024 * 1024
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")

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


app = typer.Typer(invoke_without_command=True)


@app.callback()
def limits(
    context: typer.Context,
    bootstrap_server: o.BootstrapServer = None,
    bytes_: Annotated[
        str | None,
        typer.Option(
            "--bytes",
            envvar="DRAINER_BYTES",
            metavar="SIZES",
            help=f"Sizes of messages, each with a boundary of its own. Default: {BYTES}; of a"
            f" drain that other things are varied for, {ONE_SIZE}.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    consumer_groups: Annotated[
        int,
        typer.Option(
            "--consumer-groups",
            envvar="DRAINER_CONSUMER_GROUPS",
            min=0,
            help="Groups that read all that is sent.",
            rich_help_panel=_WHAT,
        ),
    ] = 5,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            envvar="DRAINER_PARTITIONS",
            min=1,
            help="Of the test topic, for each broker.",
            rich_help_panel=_WHAT,
        ),
    ] = 10,
    compression: Annotated[
        Compression,
        typer.Option(
            "--compression",
            envvar="DRAINER_COMPRESSION",
            help="Of the producers.",
            rich_help_panel=_WHAT,
        ),
    ] = Compression.NONE,
    compressibility: Annotated[
        str,
        typer.Option(
            "--compressibility",
            envvar="DRAINER_COMPRESSIBILITY",
            metavar="SHARE",
            help="How much of a payload compresses to nothing. 0 is random, the conservative limit.",
            rich_help_panel=_WHAT,
        ),
    ] = "0",
    vary: Annotated[
        Vary | None,
        typer.Option(
            "--vary",
            envvar="DRAINER_VARY",
            help="Look for the boundary over this instead of message sizes.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            envvar="DRAINER_VALUES",
            metavar="LIST",
            help="Of what --vary names, as in 0,1,5,10 or none,lz4,zstd.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    pace: Annotated[
        str | None,
        typer.Option(
            "--pace",
            envvar="DRAINER_PACE",
            metavar="SIZE",
            help="What one producer sends per second; their number sets the rate. Default: the most"
            " that may be sent, shared out over --max-producers.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    max_producers: Annotated[
        int,
        typer.Option(
            "--max-producers",
            envvar="DRAINER_MAX_PRODUCERS",
            min=1,
            help="More are never tried. They should overload the brokers for certain.",
            rich_help_panel=_HOW,
        ),
    ] = PRODUCERS_MOST,
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            envvar="DRAINER_PRECISION",
            metavar="SHARE",
            help="How narrowly the boundary is to be known.",
            rich_help_panel=_HOW,
        ),
    ] = "5%",
    trials: Annotated[
        int,
        typer.Option(
            "--trials",
            envvar="DRAINER_TRIALS",
            min=2,
            help="The most for one boundary.",
            rich_help_panel=_HOW,
        ),
    ] = 14,
    warm_up: Annotated[
        str,
        typer.Option(
            "--warm-up",
            envvar="DRAINER_WARM_UP",
            metavar="DURATION",
            help="Of each trial, before it is looked at.",
            rich_help_panel=_HOW,
        ),
    ] = "10s",
    window: Annotated[
        str,
        typer.Option(
            "--window",
            envvar="DRAINER_WINDOW",
            metavar="DURATION",
            help="For how long each trial is looked at. What brokers bear for it, they may not bear"
            " for an hour: disks and caches fill.",
            rich_help_panel=_HOW,
        ),
    ] = "30s",
    cool_down: Annotated[
        str,
        typer.Option(
            "--cool-down",
            envvar="DRAINER_COOL_DOWN",
            metavar="DURATION",
            help="The most to wait after a trial until the brokers are idle again.",
            rich_help_panel=_HOW,
        ),
    ] = "60s",
    jmx: Annotated[
        list[str] | None,
        typer.Option(
            "--jmx",
            envvar="DRAINER_JMX",
            metavar="HOST:PORT",
            help="Metrics of a broker, to see how busy its request handlers are; repeat for all of"
            " them. Without, what clients see decides.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    max_mb_per_s: Annotated[
        float | None,
        typer.Option(
            "--max-mb-per-s",
            envvar="DRAINER_MAX_MB_PER_S",
            min=0.001,
            help="All producers together never send more (10^6 bytes; copies and readers come on"
            " top). The boundary may then lie above it, and it is said so. Default: 200 a broker.",
            rich_help_panel=_BOUNDS,
        ),
    ] = None,
    shared_cluster: Annotated[
        bool,
        typer.Option(
            "--shared-cluster",
            envvar="DRAINER_SHARED_CLUSTER",
            help="Others use this cluster, and that is fine: each trial ends at the first sign of"
            " overload. Without, a cluster with other traffic is refused.",
            rich_help_panel=_BOUNDS,
        ),
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            envvar="DRAINER_LIMITS_OUT",
            metavar="FILE.json",
            help="What was found, for `drainer run --limits`. One that is there is gone on with.",
            rich_help_panel=_RESULT,
        ),
    ] = Path("limits.json"),
    safe_share: Annotated[
        str,
        typer.Option(
            "--safe-share",
            envvar="DRAINER_SAFE_SHARE",
            metavar="SHARE",
            help="Of the boundary, that a drain may use: by default a fifth of the brokers may be"
            " out.",
            rich_help_panel=_RESULT,
        ),
    ] = "0.8",
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            envvar="DRAINER_LIMITS_CSV",
            metavar="FILE.csv",
            help="Every trial with its signals, as a table.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option(
            "--png",
            envvar="DRAINER_LIMITS_PNG",
            metavar="FILE.png",
            help="The picture of the boundary over the trials.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    master: g.Master = None,
    spark_conf: g.SparkConf = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            "--tasks",
            envvar="DRAINER_TASKS",
            metavar="N",
            help="How many of Spark's tasks host the clients; all run at once. Default: one a core.",
            rich_help_panel="What it runs on",
        ),
    ] = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    report: o.ReportPath = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Find out how much traffic the brokers bear: the boundary for each message size.

    Producers and consumers on Spark send and read on a test topic of their own. Their number is
    searched for, from trial to trial, until the brokers are just not overloaded. Ctrl-C ends all
    traffic at once; the same command goes on from the trials that are kept. The test topic is
    removed at the end; after a crash by `drainer limits cleanup`.

    Examples:

    - `drainer limits -b localhost:9092 --bytes 100,1KiB,10KiB --out limits.json --report limits.html`
    - `drainer limits -b broker-1:9092 --jmx broker-1:9999 --jmx broker-2:9999 --master spark://spark:7077`
    - `drainer limits -b broker-1:9092 --shared-cluster --max-mb-per-s 50`
    - `drainer limits -b broker-1:9092 --vary consumer-groups --values 0,1,5,10 --out groups.json`
    """  # noqa: E501 - an example has to be on one line to be copied
    if context.invoked_subcommand is not None:
        return
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        page = ReportFile(report) if report else None
        picture = ReportFile(png, "--png", b"\x89PNG", "PNG picture") if png else None
        sheet = ReportFile(csv, "--csv", CSV_MARK, "table of trials") if csv else None
        axis, points, message_bytes = _axis(vary, values, bytes_)
        request = LimitsRequest(
            axis=axis,
            values=points,
            out=out,
            message_bytes=message_bytes,
            consumer_groups=consumer_groups,
            partitions=partitions,
            compression=compression.value,
            compressibility=_compressibility(compressibility),
            pace_bytes_per_s=_pace(pace),
            producers_most=max_producers,
            bytes_per_s_most=None if max_mb_per_s is None else max_mb_per_s * 1e6,
            precision=parse_share(precision, "--precision"),
            trials_most=trials,
            safe_share=parse_share(safe_share, "--safe-share"),
            window_s=_seconds(window, "--window"),
            pauses=Pauses(parse_duration(warm_up), _seconds(cool_down, "--cool-down")),
            shared=shared_cluster,
            jmx=tuple(jmx or ()),
        )
        place = SparkLook(
            EVERY_CORE if master is None else master.strip(), g.spark_pairs(spark_conf or ()), tasks
        )
        java_for_spark()
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        with connect(settings) as cluster:
            prepared = prepare_limits(cluster, request)
            found = prepared.limits
            show_limits_action(terminal, prepared, place.master)
            if not found.complete:
                insist_on_yes(terminal, "Begin?", yes=yes)
                with limits_view(terminal, prepared.limits) as view:
                    measured = measure_limits(
                        cluster, prepared, _host(place, settings, request), view.update
                    )
                found = measured.limits
                if measured.left is not None:
                    terminal.warn(str(measured.left))
                    terminal.hint(measured.left.hint or "")
        show_limits(terminal, found, out)
        if sheet is not None:
            write_or_warn(terminal, sheet, lambda: trials_as_csv(found), "trials")
        write_limits_report(terminal, page, found)
        write_limits_picture(terminal, picture, found)
        if json:
            terminal.data({"status": "done", "out": str(out), "limits": found.as_json()})


@app.command("compare")
def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="What `drainer limits` found.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="What it found later, or elsewhere.")],
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Lay two findings side by side: other hardware, another Kafka, other settings.

    Tells by how much each boundary moved, and whether that is more than they are unsure of.

    Examples:

    - `drainer limits compare before.json after.json`
    """
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        first, second = LimitsFile(before).load(), LimitsFile(after).load()
        found = compare_limits(first, second)
        show_comparison(terminal, found, first, second)
        if json:
            terminal.data(found.as_json())


@app.command("cleanup")
def cleanup(
    bootstrap_server: o.BootstrapServer = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Remove test topics and groups that a `drainer limits` left behind when it was killed.

    Only what has exactly such a name, and is not written to now.

    Examples:

    - `drainer limits cleanup -b localhost:9092`
    """
    terminal = Terminal(json=json, quiet=quiet, debug=debug)
    with answering(terminal):
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        with connect(settings) as cluster:
            found = find_leftovers(cluster)
            show_leftovers(terminal, found)
            if found.own:
                insist_on_yes(terminal, "Remove them?", yes=yes)
                clean_up(cluster, found.own)
                terminal.say("removed")
        if json:
            terminal.data(
                {
                    "removed": {"topics": found.own.topics, "groups": found.own.groups},
                    "in_use": {"topics": found.in_use.topics, "groups": found.in_use.groups},
                }
            )


def _host(place: SparkLook, settings: ClientSettings, request: LimitsRequest) -> Host:
    from drainer.spark.limits import TrafficHost  # noqa: PLC0415 - nothing else starts with Spark

    return TrafficHost(place, settings, request.jmx)


def _axis(
    vary: Vary | None, values: str | None, sizes: str | None
) -> tuple[Axis, tuple[Value, ...], int]:
    """The axis, its values, and the message size when another one is varied."""
    if vary is None:
        if values is not None:
            raise UsageError(
                "--values are of what --vary names, and it names nothing",
                hint="say sizes of messages with --bytes, or --vary consumer-groups",
            )
        found = _distinct([_size(word) for word in parse_list(sizes or BYTES, "--bytes")], "--bytes")
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
    return Axis(vary.value), _distinct([_value(vary, w) for w in words], "--values"), _size(chosen[0])


def _value(vary: Vary, word: str) -> Value:
    if vary is Vary.COMPRESSION:
        if word not in COMPRESSIONS:
            raise UsageError(
                f"--values {word!r} is no compression", hint=f"they are {', '.join(COMPRESSIONS)}"
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


def _pace(text: str | None) -> float | None:
    if text is None:
        return None
    pace = parse_size(text.strip().removesuffix("/s"))
    if pace < 1:
        raise UsageError(f"--pace {text!r} sends nothing", hint="as in 64KiB, each second")
    return float(pace)


def _compressibility(text: str) -> float:
    if text.strip().rstrip("%") in ("0", "0.0"):
        return 0.0
    return parse_share(text, "--compressibility")


def _seconds(text: str, option: str) -> float:
    seconds = parse_duration(text)
    if seconds < 1:
        raise UsageError(f"{option} {text} is too short to see anything", hint="1s at least")
    return seconds
