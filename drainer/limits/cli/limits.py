"""``drainer limits``: find what brokers bear; ``compare`` two findings; ``cleanup``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drainer.cli.answer import insist_on_yes
from drainer.cli.connecting import Kafka, connect
from drainer.cli.groups import argument, command, only
from drainer.cli.options import Report, Yes
from drainer.kafka.settings import ClientSettings
from drainer.limits.cli.measuring import Bounds, Hosts, Result, Searching, Sent, axis
from drainer.limits.file import LimitsFile, trials_as_csv
from drainer.limits.leftovers import clean_up, find_leftovers
from drainer.limits.measure import Host, keep_limits, measure_limits, prepare_limits
from drainer.limits.report.write import write_limits_picture, write_limits_report
from drainer.limits.request import LimitsRequest
from drainer.limits.search.comparison import compare as compare_limits
from drainer.limits.trials import Pauses
from drainer.limits.view.limits import (
    show_comparison,
    show_leftovers,
    show_limits,
    show_limits_action,
)
from drainer.limits.view.searching import limits_view
from drainer.spark.settings import SparkLook, java_for_spark
from drainer.view.report.file import write_or_warn
from drainer.view.terminal import Terminal

app = typer.Typer(invoke_without_command=True)


@app.callback()
@command
def limits(
    kafka: Kafka,
    sent: Sent,
    searching: Searching,
    bounds: Bounds,
    result: Result,
    hosts: Annotated[Hosts, only("master", "spark_conf", "tasks")],
    report: Report,
    yes: Yes,
    terminal: Terminal,
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
    swept, points, message_bytes = axis(sent.vary, sent.values, sent.bytes_)
    request = LimitsRequest(
        axis=swept,
        values=points,
        out=result.out,
        message_bytes=message_bytes,
        consumer_groups=sent.consumer_groups,
        partitions=sent.partitions,
        compression=sent.compression.value,
        compressibility=sent.compressibility,
        pace_bytes_per_s=searching.pace_bytes_per_s,
        producers_most=searching.max_producers,
        bytes_per_s_most=bounds.bytes_per_s_most,
        precision=searching.precision,
        trials_most=searching.trials,
        safe_share=result.safe_share,
        window_s=searching.window_s,
        pauses=Pauses(searching.warm_up_s, searching.cool_down_s),
        shared=bounds.shared_cluster,
        jmx=searching.jmx,
    )
    place = hosts.place()
    java_for_spark()
    settings = kafka.settings()
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
    show_limits(terminal, found, result.out)
    if result.csv is not None:
        write_or_warn(terminal, result.csv, lambda: trials_as_csv(found), "trials")
    write_limits_report(terminal, report, found)
    write_limits_picture(terminal, result.png, found)
    if terminal.json:
        terminal.data({"status": "done", "out": str(result.out), "limits": found.as_json()})


@app.command("compare")
@command
def compare(
    before: Annotated[Path, argument("A", help="What `drainer limits` found.")],
    after: Annotated[Path, argument("B", help="What it found later, or elsewhere.")],
    terminal: Terminal,
) -> None:
    """Lay two findings side by side: other hardware, another Kafka, other settings.

    Tells by how much each boundary moved, and whether that is more than they are unsure of.

    Examples:

    - `drainer limits compare before.json after.json`
    """
    first, second = LimitsFile(before).load(), LimitsFile(after).load()
    found = compare_limits(first, second)
    show_comparison(terminal, found, first, second)
    if terminal.json:
        terminal.data(found.as_json())


@app.command("cleanup")
@command
def cleanup(kafka: Kafka, yes: Yes, terminal: Terminal) -> None:
    """Remove test topics and groups that a `drainer limits` left behind when it was killed.

    Only what has exactly such a name, and is not written to now.

    Examples:

    - `drainer limits cleanup -b localhost:9092`
    """
    with kafka.connect() as cluster:
        found = find_leftovers(cluster)
        show_leftovers(terminal, found)
        if found.own:
            insist_on_yes(terminal, "Remove them?", yes=yes)
            clean_up(cluster, found.own)
            terminal.say("removed")
    if terminal.json:
        terminal.data(
            {
                "removed": {"topics": found.own.topics, "groups": found.own.groups},
                "in_use": {"topics": found.in_use.topics, "groups": found.in_use.groups},
            }
        )


def _host(place: SparkLook, settings: ClientSettings, request: LimitsRequest) -> Host:
    from drainer.limits.spark.limits import TrafficHost  # noqa: PLC0415 - nothing else starts with Spark

    return TrafficHost(place, settings, request.jmx)
