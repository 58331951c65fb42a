"""``drainer limits``: find what brokers bear; ``compare`` two findings; ``cleanup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drainer.cli import engines as g
from drainer.cli import options as o
from drainer.cli.answer import answering, insist_on_yes
from drainer.cli.draining import connect
from drainer.cli.values import parse_duration, parse_share
from drainer.kafka.settings import ClientSettings
from drainer.limits.cli import measuring as m
from drainer.limits.file import CSV_MARK, LimitsFile, trials_as_csv
from drainer.limits.leftovers import clean_up, find_leftovers
from drainer.limits.measure import Host, keep_limits, measure_limits, prepare_limits
from drainer.limits.request import PRODUCERS_MOST, LimitsRequest
from drainer.limits.search.comparison import compare as compare_limits
from drainer.limits.search.overload import Thresholds
from drainer.limits.trials import Pauses
from drainer.limits.view.limits import (
    show_comparison,
    show_leftovers,
    show_limits,
    show_limits_action,
)
from drainer.limits.view.searching import limits_view
from drainer.spark.settings import SparkLook, java_for_spark
from drainer.view.report.file import ReportFile
from drainer.view.report.write import write_limits_picture, write_limits_report, write_or_warn
from drainer.view.terminal import Terminal

REPORTS_S = 1.0  # clients report a few times a second, and both ends of a window miss some

app = typer.Typer(invoke_without_command=True)


@app.callback()
def limits(
    context: typer.Context,
    bootstrap_server: o.BootstrapServer = None,
    bytes_: m.Sizes = None,
    consumer_groups: m.ConsumerGroups = 5,
    partitions: m.TestPartitions = 10,
    compression: m.CompressionOption = m.Compression.NONE,
    compressibility: m.Compressibility = "0",
    vary: m.VaryOption = None,
    values: m.AxisValues = None,
    pace: m.Pace = None,
    max_producers: m.MaxProducers = PRODUCERS_MOST,
    precision: m.Precision = "5%",
    trials: m.Trials = 14,
    warm_up: m.WarmUp = "10s",
    window: m.Window = "30s",
    cool_down: m.CoolDown = "60s",
    jmx: m.Jmx = None,
    max_mb_per_s: m.MaxMbPerS = None,
    shared_cluster: m.SharedCluster = False,
    out: m.OutPath = Path("limits.json"),
    safe_share: m.SafeShare = "0.8",
    csv: m.CsvPath = None,
    png: m.PngPath = None,
    master: g.Master = None,
    spark_conf: g.SparkConf = None,
    tasks: m.HostTasks = None,
    client_config: o.ClientConfig = None,
    client_property: o.ClientProperty = None,
    report: o.ReportPath = None,
    yes: o.Yes = False,
    json: o.Json = False,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> None:
    """Find what the brokers bear, for each message size.

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
        axis, points, message_bytes = m.axis(vary, values, bytes_)
        request = LimitsRequest(
            axis=axis,
            values=points,
            out=out,
            message_bytes=message_bytes,
            consumer_groups=consumer_groups,
            partitions=partitions,
            compression=compression.value,
            compressibility=m.compressibility(compressibility),
            pace_bytes_per_s=m.pace(pace),
            producers_most=max_producers,
            bytes_per_s_most=m.most(max_mb_per_s),
            precision=m.precision(precision),
            trials_most=trials,
            safe_share=parse_share(safe_share, "--safe-share"),
            window_s=m.seconds(window, "--window", Thresholds().window_s_least + REPORTS_S),
            pauses=Pauses(parse_duration(warm_up), m.seconds(cool_down, "--cool-down", 1.0)),
            shared=shared_cluster,
            jmx=tuple(jmx or ()),
        )
        place = SparkLook(g.master_of(master), g.spark_pairs(spark_conf or ()), tasks)
        java_for_spark()
        settings = ClientSettings.load(bootstrap_server, client_config, client_property or ())
        with connect(settings) as cluster:
            prepared = prepare_limits(cluster, request)
            found = prepared.limits
            show_limits_action(terminal, prepared, place.master)
            if found.complete:
                keep_limits(prepared)
            else:
                insist_on_yes(terminal, "Begin?", yes=yes)
                terminal.say(f"starting Spark at {place.master} ...")
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
    from drainer.limits.spark.limits import TrafficHost  # noqa: PLC0415 - nothing else starts with Spark

    return TrafficHost(place, settings, request.jmx)
