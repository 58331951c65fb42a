"""``drainer limits``: find what brokers tolerate; and ``cleanup``."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.answer import insist_on_yes
from drainer.cli.connecting import Kafka, connect
from drainer.cli.engines import Engines
from drainer.cli.groups import TableTerminal, argument, changing, command, only, option, options
from drainer.cli.options import Report, Yes
from drainer.cli.values import parse_duration, parse_size
from drainer.errors import UsageError
from drainer.limits.compare import comparison_page, curves
from drainer.limits.file import LimitsFile
from drainer.limits.kafka.topic import (
    delete_test_topics,
    find_test_topics,
    insist_on_removal,
    moving_topics,
)
from drainer.limits.measure import measure_limits, prepare_limits
from drainer.limits.search.boundary import MB_PER_S_A_BROKER, LimitSettings
from drainer.limits.search.overload import WINDOW_S_LEAST
from drainer.limits.view import SearchView, limits_page, show_leftovers, show_limits_action
from drainer.spark.settings import EVERY_CORE, SparkLook, java_for_spark
from drainer.view.report.file import write_page
from drainer.view.terminal import Terminal

TOPICS_MOST = 1_000
MESSAGE_BYTES_MOST = 64 * 1024 * 1024
REPORTS_S = 1.0  # clients report a few times a second, and both ends of a window miss some

app = typer.Typer(invoke_without_command=True)


def parse_sizes(text: str) -> tuple[int, ...]:
    """``100,1KiB``. Raises UsageError."""
    words = text.split(",")
    sizes = tuple(map(parse_size, words))
    for word, size in zip(words, sizes, strict=True):
        if not 1 <= size <= MESSAGE_BYTES_MOST:
            raise UsageError(
                f"{word} is not a size of a message", hint="from 1 to 64MiB, as in 100,1KiB,10KiB"
            )
    if len(set(sizes)) < len(sizes):
        raise UsageError("has a value twice", hint="name each once")
    return sizes


def parse_megabytes(number: float) -> float:
    """A bound. Raises UsageError."""
    if not isfinite(number):
        raise UsageError(f"{number} bounds nothing", hint="as in 50")
    return number


def parse_share(text: str) -> float:
    """``5%`` or ``0.05`` as a share of one, above 0 and at most 1. Raises UsageError."""
    word = text.strip()
    try:
        found = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1:
        raise UsageError(f"{text!r} is not a share", hint="as in 5%, or 0.05")
    return found


def parse_precision(text: str) -> float:
    """A share that can be reached. Raises UsageError."""
    found = parse_share(text)
    if not 0.01 <= found <= 0.5:
        raise UsageError(
            f"{text} is out of reach",
            hint="from 1% to 50%: below, chance decides about each trial",
        )
    return found


def parse_window(text: str) -> float:
    """A duration that is long enough to see anything. Raises UsageError."""
    seconds, least_s = parse_duration(text), WINDOW_S_LEAST + REPORTS_S
    if seconds < least_s:
        raise UsageError(f"{text} is too short to see anything", hint=f"{least_s:g}s at least")
    return seconds


def read_login(path: str) -> tuple[str, str]:
    """The user and password in the one line of a file. Raises UsageError."""
    try:
        user, password = Path(path).read_text(encoding="utf-8").split()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(
            f"{path} does not hold a login", hint="one line, as in Java's file: user password"
        ) from None
    return user, password


@options("What is sent")
class Sent:
    """What is sent; each a field of ``LimitSettings``."""

    message_bytes: tuple[int, ...] = option(
        "--bytes",
        default="100,1KiB,10KiB,100KiB",
        parse=parse_sizes,
        metavar="SIZES",
        help="Sizes of messages, each with a boundary of its own.",
    )
    consumer_groups: int = option(
        "--consumer-groups", default=5, min=0, help="Groups that read all that is sent."
    )
    topics: int = option(
        default=1, min=1, max=TOPICS_MOST, help="Test topics, over which it is spread."
    )
    partitions: int = option(
        "--partitions", default=10, min=1, help="Of each test topic, for each broker."
    )
    old_topic: str = option(
        "--old-topic",
        default="",
        metavar="TOPIC",
        help="Its old messages are read meanwhile from disk, as a drain does.",
    )
    old_groups: int = option(
        "--old-groups",
        default=1,
        min=1,
        help="How many read them, each at the bytes/s that are sent.",
    )
    max_mb_per_s: float | None = option(
        "--max-mb-per-s",
        default=None,
        given=float,
        parse=parse_megabytes,
        min=0.001,
        help="All producers together never send more (10^6 bytes; copies and readers come on"
        " top). The boundary may then lie above it, and drainer says so. Default:"
        f" {MB_PER_S_A_BROKER:g} a broker, and more as long as brokers and clients can.",
    )
    max_producers: int = option(
        "--max-producers",
        default=256,
        min=1,
        help="Over so many that is shared out evenly: their number sets the rate.",
    )


@options("How it is searched")
class Searching:
    """How the boundary is searched for; each a field of ``LimitSettings``."""

    precision: float = option(
        "--precision",
        default="5%",
        parse=parse_precision,
        metavar="SHARE",
        help="How narrowly the boundary is to be known.",
    )
    trials: int = option("--trials", default=14, min=2, help="The most for one boundary.")
    warm_up_s: float = option(
        "--warm-up",
        default="10s",
        parse=parse_duration,
        help="Of each trial, before it is looked at.",
    )
    window_s: float = option(
        "--window",
        default="30s",
        parse=parse_window,
        metavar="DURATION",
        help="For how long each trial is looked at. What brokers tolerate for it, they may not"
        " tolerate for an hour: disks and caches fill.",
    )
    safe_share: float = option(
        "--safe-share",
        default="0.8",
        parse=parse_share,
        metavar="SHARE",
        help="Of the boundary, that a drain may use: by default a fifth of the brokers may be out.",
    )


@options("What it runs on")
class Hosts(Engines):
    """Where the clients run, on which cluster, and where the result goes."""

    tasks: int | None = option(
        "--tasks",
        default=None,
        metavar="N",
        help="How many of Spark's tasks host the clients; all run at once. Default: one a core.",
    )
    jmx: tuple[str, ...] = option(
        "--jmx",
        default=(),
        many=str,
        metavar="HOST:PORT",
        help="Metrics of a broker, to see how busy its request handlers are; repeat for all of"
        " them. Without, what clients see decides.",
    )
    jmx_login: tuple[str, str] | None = option(
        default=None,
        parse=read_login,
        metavar="FILE",
        help="Holds `user password`, for metrics behind a login.",
    )
    shared_cluster: bool = option(
        "--shared-cluster",
        default=False,
        help="Others use this cluster, and that is fine: each trial ends within about a second of"
        " overload. Without, a cluster with other traffic is refused.",
    )
    out: Path = option(
        "--out",
        default=Path("limits.json"),
        envvar="DRAINER_LIMITS_OUT",
        metavar="FILE.json",
        help="The result, for `--broker-limits`. If the file exists, its search resumes.",
    )

    def place(self) -> SparkLook:
        """Raises UsageError."""
        master = EVERY_CORE if self.master is None else self.master.strip()
        return SparkLook(master, self.spark_conf, self.tasks)


@app.callback()
@changing
def limits(
    kafka: Kafka,
    sent: Sent,
    searching: Searching,
    hosts: Annotated[
        Hosts, only("master", "spark_conf", "tasks", "jmx", "jmx_login", "shared_cluster", "out")
    ],
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Find what the brokers tolerate, for each message size.

    Producers and consumers on Spark send and read on a test topic of their own. Their number is
    searched for, from trial to trial, until the brokers are just not overloaded. Ctrl-C ends all
    traffic at once; the same command resumes from the trials that are kept. The test topic is
    removed at the end; after a crash by `drainer limits cleanup`.

    Examples:

    - `drainer limits -b localhost:9092 --bytes 100,1KiB,10KiB --out limits.json --report limits.html`
    - `drainer limits -b broker-1:9092 --jmx broker-1:9999 --jmx broker-2:9999 --master spark://spark:7077`
    - `drainer limits -b broker-1:9092 --shared-cluster --max-mb-per-s 50`
    """  # noqa: E501 - an example has to be on one line to be copied
    asked = LimitSettings(**vars(sent), **vars(searching), jmx=bool(hosts.jmx))
    place = hosts.place()
    java_for_spark()
    settings = kafka.settings()
    with connect(settings) as cluster:
        prepared = prepare_limits(cluster, asked, hosts.out, shared=hosts.shared_cluster)
        found = prepared.limits
        show_limits_action(terminal, prepared, settings.bootstrap_servers, place.master)
        if found.complete:
            if found != prepared.on_disk:  # another share of it may be used
                prepared.file.write(found)
        else:
            insist_on_yes(terminal, "Begin?", yes=yes)
            # PySpark is imported only now: that takes its time.
            from drainer.limits.spark.traffic import TrafficHost  # noqa: PLC0415

            terminal.say(f"starting Spark at {place.master} ...")
            host = TrafficHost(place, settings, hosts.jmx, hosts.jmx_login)
            with SearchView(terminal, found) as view:
                found, left = measure_limits(cluster, prepared, host, view.update)
            if left is not None:
                terminal.warn(str(left))
                terminal.hint(left.hint or "")
    page = limits_page(found, hosts.out, curves([("", found)]))
    terminal.say("")
    terminal.present(page)
    write_page(terminal, report, lambda _: page)
    if terminal.json:
        terminal.data({"status": "done", "out": str(hosts.out), "limits": found.as_json()})


@app.command("compare")
@command
def compare(
    files: Annotated[list[Path], argument("FILE...", help="Results of `drainer limits`.")],
    report: Report,
    terminal: TableTerminal,
) -> None:
    """Show several results side by side: clusters of several sizes, or other traffic.

    Examples:

    - `drainer limits compare 3-brokers.json 6-brokers.json --report limits.html`
    """
    page = comparison_page([(path, LimitsFile(path).load()) for path in files])
    terminal.present(page)
    write_page(terminal, report, lambda _: page)
    if terminal.json:
        terminal.data(page.data)


@app.command("cleanup")
@changing
def cleanup(kafka: Kafka, yes: Yes, terminal: Terminal) -> None:
    """Remove test topics that a `drainer limits` left behind when it was killed.

    Only what has exactly such a name, and is not written to now.

    Examples:

    - `drainer limits cleanup -b localhost:9092`
    """
    with kafka.connect() as cluster:
        insist_on_removal(cluster)
        names = find_test_topics(cluster)
        in_use = tuple(moving_topics(cluster, names) if names else ())
        own = tuple(name for name in names if name not in in_use)
        show_leftovers(terminal, own, in_use)
        if own:
            insist_on_yes(terminal, "Remove them?", yes=yes)
            delete_test_topics(cluster, own)
            terminal.say("removed")
    if terminal.json:
        terminal.data({"removed": own, "in_use": in_use})
