"""``drainer limits``: find what brokers tolerate; and ``cleanup``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
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
from drainer.limits.kafka.topic import (
    delete_test_topics,
    ensure_removable,
    find_test_topics,
    moving_topics,
)
from drainer.limits.measure import measure_limits, prepare_limits
from drainer.limits.page import limits_page
from drainer.limits.search.boundary import MB_PER_S_A_BROKER, TRIALS_MOST, LimitSettings, as_json
from drainer.limits.search.overload import WINDOW_S_LEAST
from drainer.limits.view import SearchView, show_leftovers, show_limits_action
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
from drainer.spark.session.settings import SparkLook, java_for_spark
from drainer.view.report.file import write_page
from drainer.view.terminal import Terminal

TOPICS_MOST = 1_000
MESSAGE_BYTES = range(1, 64 * 1024 * 1024 + 1)
REPORTS_S = 1.0  # clients report a few times a second, and both ends of a window miss some

app = typer.Typer(invoke_without_command=True)


def parse_values(
    parse: Callable[[str], int], fit: range, what: str
) -> Callable[[str], tuple[int, ...]]:
    """A parser of ``1,5,10``: values that fit, each once. It raises UsageError."""

    def parse_each(text: str) -> tuple[int, ...]:
        values = tuple(map(parse, text.split(",")))
        if any(value not in fit for value in values):
            raise UsageError(f"{text} is not {what}", hint="Give values such as 1,5,10.")
        if len(set(values)) < len(values):
            raise UsageError("has a value twice", hint="Give each value once.")
        return values

    return parse_each


def parse_count(word: str) -> int:
    """A number, or -1 for what is not one."""
    return int(word) if word.strip().isdecimal() else -1


def parse_share(text: str, least: float = 0.0, most: float = 1.0) -> float:
    """``5%`` or ``0.05`` as a share of one, above 0 and within bounds. Raises UsageError."""
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
    """A duration that is long enough to see anything. Raises UsageError."""
    seconds, least_s = parse_duration(text), WINDOW_S_LEAST + REPORTS_S
    if seconds < least_s:
        raise UsageError(f"{text} is too short to measure", hint=f"Give at least {least_s:g}s.")
    return seconds


def read_login(path: str) -> tuple[str, str]:
    """The user and password in the one line of a file. Raises UsageError."""
    try:
        user, password = Path(path).read_text(encoding="utf-8").split()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path} has no login", hint="Write one line: user password.") from None
    return user, password


_traffic = partial(option, panel="Traffic")
_search = partial(option, panel="Search")
_clients = partial(option, panel="Clients and result")
_SIZES = ValueType(
    "SIZES",
    parse_values(parse_size, MESSAGE_BYTES, "a message size up to 64MiB"),
    lambda values: ",".join(map(SIZE.show, values)),
)


def _counts(fit: range, what: str) -> ValueType:
    parse = parse_values(parse_count, fit, what)
    return ValueType("N,...", parse, lambda values: ",".join(map(str, values)))


def _share(least: float = 0.0, most: float = 1.0) -> ValueType:
    parse = partial(parse_share, least=least, most=most)
    return ValueType("SHARE", parse, lambda share: f"{share * 100:g}%")


@dataclass(frozen=True, kw_only=True)
class TrafficOptions:
    """Options of the traffic; each a field of ``LimitSettings``, or values of one that is swept."""

    message_bytes: tuple[int, ...] = _traffic(
        "Message sizes; each gets its own boundary.",
        (100, 1024, 10 * 1024, 100 * 1024),
        _SIZES,
        name="--bytes",
        basic=True,
    )
    consumer_groups: tuple[int, ...] = _traffic(
        "Consumer groups that read all messages. Each number is measured.",
        (5,),
        _counts(range(1_001), "a number from 0 to 1,000"),
    )
    topics: int = _traffic("Number of test topics.", 1, number(1, TOPICS_MOST))
    partitions: tuple[int, ...] = _traffic(
        "Partitions of each test topic, per broker. Each number is measured.",
        (10,),
        _counts(range(1, 1_001), "a number from 1 to 1,000"),
    )
    payload: str = _traffic(
        "Message content: random bytes, constant bytes, or pieces of a file.",
        "random",
        metavar="random|constant|FILE",
    )
    old_topic: str = _traffic(
        "During trials, read this topic's old messages from disk.",
        "",
        metavar="TOPIC",
        proposes="topic",
    )
    old_groups: int = _traffic(
        "Groups that read old messages, each at the send rate.", 1, number(1)
    )
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
    """Options of the search for the boundary; each a field of ``LimitSettings``."""

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
    """Options of the clients: where they run, on which cluster, and where the result goes."""

    tasks: int | None = option(
        "Spark tasks that host the clients.", None, unset="one per core", panel="Spark"
    )
    jmx: tuple[str, ...] = _clients(
        "JMX address of a broker, to measure its load; repeat per broker.", (), metavar="HOST:PORT"
    )
    jmx_login: tuple[str, str] | None = _clients(
        "File with one line for JMX: `user password`.", None, ValueType("FILE", read_login)
    )
    shared_cluster: bool = _clients(
        "Allow other traffic. On overload, a trial ends within a second.",
        False,
        basic=True,
        risk="other users of the cluster may suffer",
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
    sent: TrafficOptions,
    searching: SearchOptions,
    hosts: Annotated[
        ClientOptions,
        only("master", "spark_conf", "tasks", "jmx", "jmx_login", "shared_cluster", "out"),
    ],
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Find the load that the brokers tolerate, per message size.

    Producers and consumers on Spark write to and read from a test topic. Each trial sends at
    another rate, until drainer finds the highest rate without overload. Without --jmx, drainer
    judges overload by what the clients see. Without --max-rate, it starts at the default bound
    and raises it while brokers and clients keep up. The default --safe-share tolerates the loss of
    a fifth of the brokers. Ctrl-C ends all traffic at once; the same command resumes from the
    finished trials. At the end drainer removes the test topic. After a crash, remove it with
    `drainer limits cleanup`.

    Examples:

    - `drainer limits -b localhost:9092 --bytes 100,1KiB,10KiB --out limits.json --report limits.html`
    - `drainer limits -b broker-1:9092 --jmx broker-1:9999 --jmx broker-2:9999 --master spark://spark:7077`
    - `drainer limits -b broker-1:9092 --shared-cluster --max-rate 50MB/s`
    - `drainer limits -b broker-1:9092 --consumer-groups 1,5,10 --partitions 1,10 --report limits.html`
    """  # noqa: E501 - an example has to be on one line to be copied
    place = SparkLook.of(hosts.master, hosts.spark_conf, hosts.tasks)
    java_for_spark()
    settings = kafka.settings()
    client = settings.properties
    compression = client.get("compression.type") or client.get("compression.codec", "none")
    fixed = {**vars(searching), "compression": compression, "jmx": bool(hosts.jmx)}
    swept = [
        LimitSettings(**vars(sent) | {"consumer_groups": groups, "partitions": each}, **fixed)
        for groups, each in product(sent.consumer_groups, sent.partitions)
    ]
    with connect(settings) as cluster:
        prepared = prepare_limits(cluster, swept, hosts.out, shared=hosts.shared_cluster)
        found = prepared.limits
        show_limits_action(terminal, prepared, settings.bootstrap_servers, place.master)
        if not prepared.missing:
            for each in found:
                if each not in prepared.on_disk:  # another share of it may be used
                    prepared.file.write(each)
        else:
            ensure_confirmed(terminal, "Begin?", yes=yes)
            # PySpark is imported only now: that takes its time.
            from drainer.limits.spark.traffic import traffic_host  # noqa: PLC0415

            terminal.print_line(f"starting Spark at {place.master} ...")
            host = traffic_host(place, settings, hosts.jmx, hosts.jmx_login)
            with SearchView(terminal, found) as view:
                found, left = measure_limits(cluster, prepared, host, view.update)
            if left is not None:
                terminal.warn(str(left))
                terminal.hint(left.hint or "")
    page = limits_page([(hosts.out, each) for each in found])
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
    """Show several results side by side, for each combination of settings.

    Examples:

    - `drainer limits compare 3-brokers.json 6-brokers.json --report limits.html`
    """
    page = limits_page([(path, each) for path in files for each in LimitsFile(path).load()])
    terminal.data(page.data)
    terminal.present(page)
    write_page(terminal, report, lambda _: page)


@app.command("cleanup")
@changing
def cleanup(kafka: ConnectionOptions, yes: Yes, terminal: Terminal) -> None:
    """Remove test topics that a killed `drainer limits` left behind.

    It removes only topics that have the name of a test topic and that nothing writes to.

    Examples:

    - `drainer limits cleanup -b localhost:9092`
    """
    with kafka.connect() as cluster:
        ensure_removable(cluster)
        names = find_test_topics(cluster)
        in_use = tuple(moving_topics(cluster, names) if names else ())
        own = tuple(name for name in names if name not in in_use)
        show_leftovers(terminal, own, in_use)
        if own:
            ensure_confirmed(terminal, "Remove them?", yes=yes)
            delete_test_topics(cluster, own)
            terminal.print_line("removed")
    terminal.data({"removed": own, "in_use": in_use})
