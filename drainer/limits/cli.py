"""``drainer limits``: find the traffic that brokers tolerate, and compare such results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing, command, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.engines import EngineOptions
from drainer.cli.options import Report, Yes
from drainer.errors import UsageError
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import delete_left_behind
from drainer.limits.measure import measure_limits, prepare_limits
from drainer.limits.page import limits_page
from drainer.limits.search.boundary import (
    MB_PER_S_A_BROKER,
    TRIALS_MOST,
    LimitSettings,
    Payload,
    as_json,
)
from drainer.limits.search.trial import WINDOW_S_LEAST
from drainer.limits.view import SearchView, show_limits_action
from drainer.model.listed import listed
from drainer.model.option import (
    DURATION,
    SIZE,
    Option,
    ValueType,
    number,
    option,
    parse_byte_rate,
    parse_duration,
    parse_size,
)
from drainer.spark.session.settings import SessionSettings, java_for_spark
from drainer.view.report.file import write_page
from drainer.view.terminal import Terminal

MESSAGE_BYTES_MOST = 64 * 1024 * 1024
# Clients report a few times a second, so a window misses up to one report at each end.
REPORTS_S = 1.0

app = typer.Typer(invoke_without_command=True)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse ``100,1KiB``: message sizes in bytes, each once. Raises UsageError."""
    sizes = tuple(map(parse_size, text.split(",")))
    if not all(0 < size <= MESSAGE_BYTES_MOST for size in sizes):
        raise UsageError(
            f"{text} is not a message size up to 64MiB", hint="Give sizes, such as 100,1KiB."
        )
    if len(set(sizes)) < len(sizes):
        raise UsageError("has a value twice", hint="Give each value once.")
    return sizes


def parse_share(text: str, least: float = 0.0, most: float = 1.0) -> float:
    """Parse ``5%`` or ``0.05``: a share above 0, and within these bounds. Raises UsageError."""
    word = text.strip()
    try:
        found = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise UsageError(f"{text!r} is not a share", hint="Give a share, such as 5% or 0.05.")
    if not least <= found <= most:
        raise UsageError(
            f"{text} is not between {least:.0%} and {most:.0%}", hint="Give a share, such as 5%."
        )
    return found


def parse_window(text: str) -> float:
    """Parse a duration that is long enough to measure. Raises UsageError."""
    seconds, least_s = parse_duration(text), WINDOW_S_LEAST + REPORTS_S
    if seconds < least_s:
        raise UsageError(f"{text} is too short to measure", hint=f"Give at least {least_s:g}s.")
    return seconds


_traffic = partial(option, panel="Traffic")
_search = partial(option, panel="Search")
_clients = partial(option, panel="Clients and result")
_SIZES = ValueType("SIZES", parse_sizes, lambda values: ",".join(map(SIZE.show, values)))


def _share(least: float = 0.0, most: float = 1.0) -> ValueType:
    parse = partial(parse_share, least=least, most=most)
    return ValueType("SHARE", parse, lambda share: f"{share * 100:g}%")


@dataclass(frozen=True, kw_only=True)
class TrafficOptions:
    """Options of the traffic. Each is a field of ``LimitSettings``."""

    message_bytes: tuple[int, ...] = _traffic(
        "Message sizes; each gets its own boundary.",
        (100, 1024, 10 * 1024, 100 * 1024),
        _SIZES,
        name="--bytes",
        basic=True,
    )
    consumer_groups: int = _traffic("Consumer groups that read all messages.", 5, number(0, 1_000))
    topics: int = _traffic("Number of test topics.", 1, number(1, 1_000))
    partitions: int = _traffic("Partitions of each test topic, per broker.", 10, number(1, 1_000))
    payload: Payload = _traffic("Message content: random bytes or constant ones.", Payload.RANDOM)
    max_mb_per_s: float | None = _traffic(
        "Maximum rate of all producers together.",
        None,
        ValueType("SIZE/s", lambda text: parse_byte_rate(text) / 1e6),
        unset=f"{MB_PER_S_A_BROKER:g}MB/s per broker",
        name="--max-rate",
        basic=True,
    )
    max_producers: int = _traffic(
        "Producers at the highest rate. Low rates use 20, each slower.", 256, number(1)
    )


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of the search for the boundary. Each is a field of ``LimitSettings``."""

    precision: float = _search(
        "Maximum distance of the boundary from the reported one.", 0.05, _share(0.01, 0.5)
    )
    trials: int = _search("Maximum trials per boundary.", TRIALS_MOST, number(2))
    warm_up_s: float = _search("Time per trial before the measurement starts.", 10.0, DURATION)
    window_s: float = _search(
        "Measurement time per trial. Short trials miss full disks and caches.",
        30.0,
        ValueType("DURATION", parse_window, DURATION.show),
    )
    safe_share: float = _search("Share of the boundary that a drain may use.", 0.8, _share())


@dataclass(frozen=True, kw_only=True)
class ClientOptions(EngineOptions):
    """Options of the clients: where they run, and where the result goes."""

    jmx: tuple[str, ...] = _clients(
        "JMX address of a broker, to measure its load; repeat per broker.", (), metavar="HOST:PORT"
    )
    out: Path = _clients(
        "Result file, for `--broker-limits`. If it exists, its search resumes.",
        Path("limits.json"),
        basic=True,
        envvar="DRAINER_LIMITS_OUT",
        metavar="FILE.json",
    )


@app.callback()
@changing
def limits(
    kafka: ConnectionOptions,
    traffic: TrafficOptions,
    searching: SearchOptions,
    hosts: Annotated[ClientOptions, only("master", "spark_conf", "jmx", "out")],
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Find the load that the brokers tolerate, per message size.

    Producers and consumers on Spark write to and read from a test topic. Each trial sends at
    another rate, until drainer finds the highest rate without overload. Nobody else may use the
    cluster meanwhile. Without --jmx, drainer judges overload by what the clients see. Without
    --max-rate, it starts at the default bound and raises it while brokers and clients keep up. The
    default --safe-share tolerates the loss of a fifth of the brokers. Ctrl-C ends all traffic at
    once; the same command resumes from the finished trials. At the end drainer removes the test
    topic. If it was killed, the next run removes the topic, after asking.

    Examples:

    - `drainer limits -b localhost:9092 --bytes 100,1KiB,10KiB --out limits.json --report limits.html`
    - `drainer limits -b broker-1:9092 --jmx broker-1:9999 --jmx broker-2:9999 --master spark://spark:7077`
    - `drainer limits -b broker-1:9092 --consumer-groups 10 --max-rate 50MB/s --out ten-groups.json`
    """  # noqa: E501 - an example has to be on one line to be copied
    place = SessionSettings.of(hosts.master, hosts.spark_conf)
    if place.is_remote:
        raise UsageError(
            "drainer limits can't run on Spark Connect, which has no Java for JMX",
            hint="Name a Spark master, such as local[4].",
        )
    java_for_spark()
    connection = kafka.settings()
    client = connection.properties
    settings = LimitSettings(
        **vars(traffic),
        **vars(searching),
        compression=client.get("compression.type") or client.get("compression.codec", "none"),
        jmx=bool(hosts.jmx),
    )
    with connect(connection) as cluster:
        prepared = prepare_limits(cluster, settings, hosts.out)
        found = prepared.limits
        show_limits_action(terminal, prepared, connection.bootstrap_servers, place.master)
        if found.missing or prepared.left_behind:
            ensure_confirmed(terminal, "Begin?" if found.missing else "Remove them?", yes=yes)
        if removed := delete_left_behind(cluster, prepared.left_behind):
            terminal.print_line(f"removed {listed(removed)}")
        if found.missing:
            # PySpark is imported only now, because that takes a while.
            from drainer.limits.spark.traffic import traffic_host  # noqa: PLC0415

            terminal.print_line(f"starting Spark at {place.master} ...")
            host = traffic_host(place, connection, hosts.jmx)
            with SearchView(terminal, found) as view:
                found, left = measure_limits(cluster, prepared, host, view.update)
            if left is not None:
                terminal.warn(str(left))
                terminal.hint(left.hint or "")
        elif found != prepared.on_disk:  # Another --safe-share needs no trials.
            prepared.file.write(found)
    page = limits_page([(hosts.out, found)])
    terminal.print_line("")
    terminal.data({"status": "done", "out": str(hosts.out), "limits": as_json(found)})
    terminal.present(page)
    write_page(terminal, report, lambda _: page)


@app.command("compare")
@command
def compare(
    files: Annotated[
        list[Path], Option("Result files of `drainer limits`.", name="FILE...", is_argument=True)
    ],
    report: Report,
    terminal: Terminal,
) -> None:
    """Show several results side by side, and lay their curves over one another.

    Examples:

    - `drainer limits compare 3-brokers.json 6-brokers.json --report limits.html`
    """
    page = limits_page([(path, LimitsFile(path).load()) for path in files])
    terminal.data(page.data)
    terminal.present(page)
    write_page(terminal, report, lambda _: page)
