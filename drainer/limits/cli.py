"""``drainer limits``: find the traffic that brokers tolerate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from drainer.cli.answer import ensure_confirmed
from drainer.cli.command import changing, only
from drainer.cli.connecting import ConnectionOptions, connect
from drainer.cli.engines import EngineOptions
from drainer.cli.options import Report, Yes
from drainer.host.java import find_java
from drainer.limits.kafka.topic import delete_left_behind
from drainer.limits.measure import measure_limits, prepare_limits
from drainer.limits.search.boundary import as_json
from drainer.limits.search.settings import LimitSettings
from drainer.limits.view import SearchView, limits_page, show_limits_action
from drainer.loading.extensions import ensure_installed
from drainer.model.listed import listed
from drainer.model.option import option
from drainer.spark.session.settings import SessionSettings, shown_master
from drainer.view.report.file import write_page
from drainer.view.terminal import Terminal

_clients = partial(option, panel="Clients and result")


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


@changing
def limits(
    kafka: ConnectionOptions,
    chosen: LimitSettings,
    hosts: Annotated[ClientOptions, only("master", "spark_conf", "jmx", "out")],
    report: Report,
    yes: Yes,
    terminal: Terminal,
) -> None:
    """Find the load that the brokers tolerate, per message size.

    Producers and consumers on Spark write to and read from a test topic. Each trial sends at
    another rate, until drainer finds the highest rate without overload. Nobody else may use the
    cluster meanwhile. Without --jmx, drainer judges by the clients' measurements whether brokers are
    overloaded. Without --max-rate, it begins with 200 MB/s per broker, and doubles that as long as
    it is safe. With the default --safe-share, a fifth of the brokers may be lost. Ctrl-C ends all
    traffic at once, and the same command resumes from the finished trials. At the end drainer
    removes the test topic. If drainer was killed, the next run asks you, and then removes the
    topic.

    Examples:

    - `drainer limits -b localhost:9092 --bytes 100,1KiB,10KiB --out limits.json --report limits.html`
    - `drainer limits -b broker-1:9092 --jmx broker-1:9999 --jmx broker-2:9999 --master spark://spark:7077`
    - `drainer limits -b broker-1:9092 --consumer-groups 10 --max-rate 50MB/s --out ten-groups.json`
    """  # noqa: E501 - an example has to be on one line to be copied
    place = SessionSettings.of(hosts.master, hosts.spark_conf)
    ensure_installed("spark", "Spark")
    if hosts.jmx or not place.is_remote:
        find_java("--jmx" if place.is_remote else "Spark")
    connection = kafka.settings()
    client = connection.properties
    settings = replace(
        chosen,
        compression=client.get("compression.type") or client.get("compression.codec", "none"),
        jmx=bool(hosts.jmx),
    )
    with connect(connection) as cluster:
        prepared = prepare_limits(cluster, settings, hosts.out)
        found = prepared.limits
        master = shown_master(place.master)
        show_limits_action(terminal, prepared, connection.bootstrap_servers, master)
        if found.missing or prepared.left_behind:
            ensure_confirmed(terminal, "Begin?" if found.missing else "Remove them?", yes=yes)
        if removed := delete_left_behind(cluster, prepared.left_behind):
            terminal.print_line(f"removed {listed(removed)}")
        if found.missing:
            # PySpark is imported only now, because that takes a while.
            from drainer.limits.spark.traffic import traffic_host  # noqa: PLC0415

            terminal.print_line(f"starting Spark at {master} ...")
            host = traffic_host(place, connection, hosts.jmx)
            with SearchView(terminal, found) as view:
                found, left = measure_limits(cluster, prepared, host, view.update)
            if left is not None:
                terminal.warn(str(left))
                terminal.hint(left.hint or "")
        elif found != prepared.on_disk:  # A different --safe-share needs no new trials.
            prepared.file.write(found)
    page = limits_page(hosts.out, found)
    terminal.print_line("")
    terminal.answer({"status": "done", "out": str(hosts.out), "limits": as_json(found)}, page)
    write_page(terminal, report, lambda _: page)
