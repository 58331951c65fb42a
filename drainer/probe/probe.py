"""The checks of ``drainer probe``: brokers, login, rights and group. It changes nothing."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import cast

import confluent_kafka
from confluent_kafka import KafkaException

from drainer import __version__
from drainer.errors import BrokerUnreachable, OffsetsPending, Refused, RightMissing, TopicMissing
from drainer.kafka.answers import Right
from drainer.kafka.cluster import Cluster
from drainer.kafka.log import ClientLog
from drainer.kafka.settings import ClientSettings
from drainer.model.finding import Finding, Level
from drainer.model.listed import counted, listed
from drainer.probe.network import CONNECT_S, Job, ProbeJobs, probe_server, run_jobs

# If a right for one of these commands is missing, the probe fails.
ALWAYS = {"run", "run --handler produce"}
SETUP_TIMEOUT = "socket.connection.setup.timeout.ms"
TABLE = Path(__file__).with_name("rights.md")
_ROW = re.compile(r"^\| (`.+?) \| (.+) \|$", re.MULTILINE)
_RIGHTS = re.compile(r"([A-Z_]+(?:(?:, | and )[A-Z_]+)*) on (topic|group)s? `([^`]+)`")
_NAMED = re.compile(r"(\S+:\d+)/\d+: ")  # A broker's address in a message of librdkafka.
_WORD = re.compile(r"\b[A-Z]+\b")  # The placeholders of rights.md, such as TOPIC.


def probe(settings: ClientSettings, names: Mapping[str, str], beside: ProbeJobs) -> list[Finding]:
    """Make all checks. This takes seconds, even if nothing answers.

    ``names`` has the known names by their placeholders in rights.md: TOPIC, GROUP, DEAD and TO.
    ``beside`` has the checks of everything that is not Kafka, such as the handler.
    """
    versions = f"drainer {__version__}, librdkafka {confluent_kafka.libversion()[0]}"
    ours = Finding("versions", Level.OK, f"{versions}, Python {platform.python_version()}")
    servers = {each.strip() for each in settings.bootstrap_servers.split(",")}
    found = _probe_servers(settings, servers)
    if any(each.check == "kafka" and each.level is not Level.BAD for each in found):
        found += _probe_cluster(settings, servers, names)
    else:
        found.append(Finding("login", Level.UNCHECKED, "no server answers that could take a login"))
    return [ours, *found, *run_jobs(beside)]


def _probe_servers(
    settings: ClientSettings, servers: set[str], *, advertised: bool = False
) -> list[Finding]:
    look = partial(probe_server, properties=settings.properties, advertised=advertised)
    return run_jobs({("name", each): partial(look, each) for each in sorted(servers)})


def _probe_cluster(
    given: ClientSettings, servers: set[str], names: Mapping[str, str]
) -> list[Finding]:
    settings = replace(given, properties={SETUP_TIMEOUT: "2000", **given.properties})
    cluster, named = None, set[str]()
    login = Finding("login", Level.OK, _login(settings.properties))
    try:
        cluster = Cluster.connect(settings, CONNECT_S)
    except BrokerUnreachable as error:
        # The broker that does not answer may be one that another broker advertises.
        login = Finding("login", Level.BAD, str(error), error.hint)
        named = {*_NAMED.findall(str(error))}
    except Refused as error:
        return [Finding("login", Level.BAD, str(error), error.hint)]
    named |= _brokers(settings)
    found = [login, *_probe_servers(settings, named - servers, advertised=True)]
    if cluster is None:
        return found
    if topic := names.get("TOPIC"):
        found += run_jobs({("topic", topic): partial(_topic, cluster, topic)})
        topic = topic if found[-1].level is Level.OK else None
    jobs: dict[tuple[str, str], Job] = {
        ("right", f"rights on {kind}s"): partial(_rights, cluster, kind, names)
        for kind in ("topic", "group")
    }
    if group := names.get("GROUP"):
        jobs["group", group] = partial(_group, cluster, group, topic)
    with cluster:
        return found + run_jobs(jobs)


def _brokers(settings: ClientSettings) -> set[str]:
    log = ClientLog()
    try:
        admin = settings.admin(log)
        brokers = admin.list_topics(timeout=CONNECT_S).brokers.values()
        return {f"{each.host}:{each.port}" for each in brokers}
    except (KafkaException, Refused):
        # The client may have failed because of a broker that another broker advertises.
        return {place for each in log.complaints for place in _NAMED.findall(each.text)}


def _login(properties: Mapping[str, str]) -> str:
    protocol = properties.get("security.protocol", "plaintext").upper()
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms", protocol)
    user = properties.get("sasl.username", "")
    return f"{mechanism} is accepted{user and f' for {user}'}"


def _topic(cluster: Cluster, topic: str) -> Iterator[Finding]:
    leaders = cluster.topic(topic, "DESCRIBE").leaders
    text = f"{topic} has {counted(len(leaders), 'partition')}"
    if without := [f"{topic}/{number}" for number, leader in leaders.items() if not leader]:
        yield Finding("topic", Level.BAD, f"{text}; no leader for {listed(without)}")
    else:
        yield Finding("topic", Level.OK, text)


def _rights(cluster: Cluster, kind: str, names: Mapping[str, str]) -> Iterator[Finding]:
    # The commands that need a right, by the name of the resource and the operation.
    needed: dict[str, dict[str, list[str]]] = {}
    for command, rights in rights_by_command().items():
        for operation, of_kind, name in rights:
            if of_kind == kind and set(_WORD.findall(name)) <= names.keys():
                named = _WORD.sub(lambda word: names[word[0]], name)
                needed.setdefault(named, {}).setdefault(operation, []).append(command)
    for name, operations in needed.items():
        if len(operations) > 1:
            operations.pop("DESCRIBE", None)  # The other rights include it.
        yield _right(cluster, kind, name, operations)


def _right(cluster: Cluster, kind: str, name: str, needed: Mapping[str, list[str]]) -> Finding:
    missing, absent, one = [], False, name.replace("*", "probe")
    # CREATE comes last, because it is needed only if the other checks found no topic.
    operations = sorted(needed, key="CREATE".__eq__)
    for operation in operations:
        try:
            if operation == "CREATE":
                if absent:
                    cluster.create_topic(one, only_check=True)
            elif kind == "topic":
                cluster.topic(one, cast(Right, operation))
            else:
                cluster.group(one, right=cast(Right, operation))
        except RightMissing:
            missing.append(operation)
        except TopicMissing:
            absent = True
    rights = f"{' and '.join(missing or operations)} on {kind} {name}"
    if not missing:
        level, end = (Level.UNCHECKED, ", which does not exist yet") if absent else (Level.OK, "")
        return Finding("right", level, rights + end)
    commands = [*dict.fromkeys(each for one in missing for each in needed[one])]
    level = Level.BAD if {*commands} & ALWAYS else Level.WARN
    grant = f"Grant {rights} to this user."
    return Finding("right", level, f"{rights} is missing, for {listed(commands)}", grant)


def _group(cluster: Cluster, group: str, topic: str | None) -> Iterator[Finding]:
    found, behind, known = cluster.group(group, right="DESCRIBE"), "", dict[int, int]()
    if topic:
        try:
            committed = cluster.committed(group, topic, cluster.topic(topic, "DESCRIBE").partitions)
        except OffsetsPending as error:
            yield Finding("group", Level.WARN, str(error), error.hint)
            committed = dict(error.offsets)
        ends = cluster.log_ends(topic, committed)
        known = {number: offset for number, offset in committed.items() if offset is not None}
        offsets = sum(max(0, ends[number][0] - offset) for number, offset in known.items())
        behind = f", {counted(offsets, 'offset')} behind" if known else ", no offsets committed"
    text = f"{group} is {found.state}{behind}"
    if found.active:
        use = found.in_use()
        yield Finding("group", Level.WARN, f"{text}: {use}", use.hint)
    elif found.state == "dead" or (topic and not known):
        state = "does not exist" if found.state == "dead" else f"is {found.state}"
        near = cluster.near_groups(group)
        hint = f"D{near[1:]}" if near else "Drain with --from."
        yield Finding("group", Level.WARN, f"{group} {state}{behind}", hint)
    else:
        yield Finding("group", Level.OK, f"{text}; no consumer would handle new records")


@cache
def rights_by_command() -> dict[str, list[tuple[str, str, str]]]:
    """Return the rights that each command needs, such as (READ, group, drainer.lock.GROUP)."""
    return {
        command: [
            (operation, kind, name)
            for operations, kind, name in _RIGHTS.findall(needs)
            for operation in re.findall("[A-Z_]+", operations)
        ]
        for commands, needs in _ROW.findall(TABLE.read_text())
        for command in re.findall("`([^`]+)`", commands)
    }
