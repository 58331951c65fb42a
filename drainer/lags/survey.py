"""A survey of groups: two looks at all of their offsets, a few seconds apart, with few requests.

One request to each broker lists its groups, and one reads the ends of all logs. Committed offsets
take two requests per group: for its coordinator, and for the offsets. So does the description of a
group that has members. One client reads the first records of all partitions with a lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it is exported without __all__

from drainer.errors import Refused
from drainer.insight.retention import Retention
from drainer.kafka.answers import RETRIABLE
from drainer.kafka.cluster import EARLIEST, LATEST, Cluster
from drainer.kafka.group import LOCK, LOCK_OF_REPEATS
from drainer.kafka.settings import ISOLATION, ClientSettings
from drainer.lags.heads import first_records
from drainer.lags.verdict import (
    GroupLag,
    Head,
    Look,
    PartitionLag,
    Verdict,
    group_lag,
    partition_lag,
    worst_first,
)
from drainer.model.listed import counted, listed
from drainer.model.shown import Shown

# By default, Java's and librdkafka's consumers commit every 5 s. Two looks that are closer together
# could both fall between two commits.
OVER_S = 6.0
PATIENCE_S = 4.0  # How long requests are repeated if leaders or coordinators don't answer.
AT_ONCE = 200  # The groups or topics that one call asks for.

BACKOFF_S = 0.3

Place = tuple[str, int]  # A topic and a partition.
Key = TypeVar("Key", str, Place)
Value = TypeVar("Value")
_AWAY = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "its leader does not answer")


@dataclass(frozen=True, slots=True)
class Lags(Shown):
    """The lags of groups, the worst group first.

    Attributes:
        taken_ms: the time of the survey, in milliseconds since 1970.
        remarks: sentences about what the survey leaves out.
    """

    _page = "drainer.lags.cli:lag_page"
    cluster_id: str
    taken_ms: int
    groups: tuple[GroupLag, ...]
    remarks: tuple[str, ...] = ()


def survey_groups(
    settings: ClientSettings,
    pattern: str = "*",
    over_s: float = OVER_S,
    tell: Callable[[str], None] = lambda text: None,
) -> Lags:
    """Survey the groups that this user sees whose names match a pattern such as ``index*``.

    This joins no group and commits nothing. Records of open transactions count, because the group
    will read them once the transactions are committed. Without a pattern, the locks of drains are
    left out.

    Args:
        over_s: seconds between the two looks.

    Raises:
        Refused: when there is no such group.
        BrokerUnreachable: when no broker answers.
    """
    properties = {**settings.properties, ISOLATION: "read_uncommitted"}
    with Cluster.connect(replace(settings, properties=properties)) as cluster:
        is_name = not set(pattern) & set("*?[")
        groups = [
            each
            for each in sorted(cluster.listed(pattern if is_name else ""), key=itemgetter("name"))
            if fnmatchcase(each["name"], pattern) or is_name
            if pattern != "*" or not each["name"].startswith((LOCK, LOCK_OF_REPEATS))
        ]
        if not groups:
            if is_name:
                cluster.group(pattern, right="DESCRIBE")
            raise Refused(
                cluster.missing(pattern, "does not exist, or this user may not see it"),
                hint="Name another group, or a pattern such as 'index*'. A user sees the groups on"
                " which it has DESCRIBE.",
            )
        tell(f"measuring for {over_s:g} s how fast {counted(len(groups), 'group')} read ...")
        return _Survey(cluster, groups).lags(over_s)


class _Survey:
    """The first look at groups, and what follows from it."""

    def __init__(self, cluster: Cluster, groups: Sequence[Mapping[str, Any]]) -> None:
        self._cluster, self._groups = cluster, groups
        self._problems: dict[str | Place, str] = {
            each["name"]: f"its members are unknown: {each['error']}"
            for each in groups
            if "error" in each
        }
        self._readers = {
            each["name"]: {(t, n): who for who, places in each["members"] for t, n in places}
            for each in groups
        }
        self._committed, self._committed_at_s = self._commits([*self._readers])
        self._topics = cluster.request(
            "list the topics", lambda left: cluster.admin.list_topics(timeout=left).topics
        )
        self._places = {name: sorted(self._places_of(name)) for name in self._readers}
        known = {place for each in self._places.values() for place in each} - {*self._problems}
        self._ends, self._ends_at_s = self._offsets(known, LATEST)
        self._starts, _ = self._offsets(known, EARLIEST)

    def lags(self, over_s: float) -> Lags:
        """Look a second time, ``over_s`` after the first look, and judge the groups."""
        late = sorted(
            (
                (name, place)
                for name in self._committed
                for place in self._places[name]
                if place not in self._problems and self._behind(name, place) > 0
            ),
            key=lambda each: -self._behind(*each),
        )
        taken_ms, at_s = round(time.time() * 1000), self._committed_at_s + over_s
        heads, remarks = self._heads(late, taken_ms, at_s)
        time.sleep(max(0.0, at_s - time.monotonic()))
        committed, committed_at_s = self._commits({name for name, _ in late})
        ends, ends_at_s = self._offsets({place for _, place in late}, LATEST)

        def part(name: str, place: Place) -> PartitionLag:
            reader = self._readers[name].get(place)
            if problem := self._problems.get(place) or self._problems.get(name):
                return PartitionLag(*place, Verdict.UNKNOWN, reader=reader, problem=problem)
            offset = self._committed[name].get(place)
            first = Look(offset, self._ends[place], self._committed_at_s, self._ends_at_s)
            last = first
            if name in committed and place in ends:
                last = Look(committed[name].get(place), ends[place], committed_at_s, ends_at_s)
            head = heads.get((name, place), Head())
            return partition_lag(place, (first, last), head, self._starts[place], reader)

        judged = [
            group_lag(
                *(each["name"], each["state"], len(each["members"])),
                [part(each["name"], place) for place in self._places[each["name"]]],
                self._problems.get(each["name"], ""),
            )
            for each in self._groups
        ]
        return Lags(self._cluster.cluster_id, taken_ms, tuple(worst_first(judged)), remarks)

    def _position(self, name: str, place: Place) -> int:
        return max(self._committed[name].get(place, 0), self._starts[place])

    def _behind(self, name: str, place: Place) -> int:
        return self._ends[place] - self._position(name, place)

    def _heads(
        self, late: Sequence[tuple[str, Place]], taken_ms: int, until_s: float
    ) -> tuple[dict[tuple[str, Place], Head], tuple[str, ...]]:
        """Read first records of groups, and return remarks on what could not be read."""
        cluster, starts = self._cluster, {each: (*each[1], self._position(*each)) for each in late}
        retention: dict[str, Retention] = {}
        topics = [*{topic for _, (topic, _) in late}]
        for at in range(0, len(topics), AT_ONCE):
            configs = cluster.topic_configs(topics[at : at + AT_ONCE])
            retention |= {topic: Retention.of(config) for topic, config in configs.items()}
        until_s = max(until_s, time.monotonic() + PATIENCE_S)
        records, errors = first_records(
            cluster.settings, [*dict.fromkeys(starts.values())], until_s
        )
        heads: dict[tuple[str, Place], Head] = {}
        missing: dict[str, set[str]] = {}
        for (name, place), start in starts.items():
            topic, _ = place
            if start not in records:
                missing.setdefault(errors.get(topic, "no answer in time"), set()).add(topic)
                continue
            offset, time_ms = records[start] or (self._ends[place], None)
            age_s = None if time_ms is None else max(0.0, (taken_ms - time_ms) / 1000)
            expiry = retention[topic].deletes_in(age_s=age_s, bytes_behind=0, bytes_per_s=0)
            heads[name, place] = Head(age_s, expiry and expiry[0], offset < self._ends[place])
        remarks = (
            f"the time behind on {listed(sorted(topics))} is not known: {why}"
            for why, topics in missing.items()
        )
        return heads, tuple(remarks)

    def _places_of(self, name: str) -> set[Place]:
        """Return all partitions of the topics on which a group has committed, or that it reads."""
        given = {*self._committed.get(name, ()), *self._readers[name]}
        for topic in {topic for topic, _ in given}:
            known = self._topics[topic].partitions if topic in self._topics else {}
            for number in known.keys() | {number for at, number in given if at == topic}:
                given.add((topic, number))
                if number not in known:
                    why = f"{topic}/{number} does not exist, or this user may not see {topic}"
                    self._problems[topic, number] = why
                elif known[number].leader < 0:
                    self._problems[topic, number] = "no leader: its brokers are down"
        return given

    def _commits(self, names: Collection[str]) -> tuple[dict[str, dict[Place, int]], float]:
        """Read the committed offsets of groups, and return when that was."""

        def ask(left: list[str]) -> Iterator[tuple[str, dict[Place, int] | KafkaError]]:
            for at in range(0, len(left), AT_ONCE):
                answers = self._cluster.commits_of(left[at : at + AT_ONCE])
                for name, answer in answers.items():
                    if isinstance(answer, KafkaError):
                        yield name, answer
                    else:
                        yield name, {(t, n): offset for t, n, offset in answer if offset >= 0}

        return self._all(names, ask), time.monotonic()

    def _offsets(
        self, places: Collection[Place], spec: OffsetSpec
    ) -> tuple[dict[Place, int], float]:
        """Look up an offset of each partition, and return when that was."""

        def ask(left: list[Place]) -> Iterator[tuple[Place, int | KafkaError]]:
            asked = {TopicPartition(*place): spec for place in left}
            answers = self._cluster.admin.list_offsets(asked, request_timeout=PATIENCE_S)
            for place, answer in answers.items():
                try:
                    offset = self._cluster.wait(answer, PATIENCE_S).offset
                except KafkaException as error:
                    yield (place.topic, place.partition), error.args[0]
                else:  # Without a leader, librdkafka (2.16) sometimes returns -1001 and no error.
                    yield (place.topic, place.partition), offset if offset >= 0 else _AWAY

        return self._all(places, ask), time.monotonic()

    def _all(
        self,
        keys: Collection[Key],
        ask: Callable[[list[Key]], Iterator[tuple[Key, Value | KafkaError]]],
    ) -> dict[Key, Value]:
        """Ask for values, repeat that while brokers don't answer, and note why some are missing."""
        found: dict[Key, Value] = {}
        left, until_s = list(keys), time.monotonic() + PATIENCE_S
        while left:
            again = []
            for key, answer in ask(left):
                if not isinstance(answer, KafkaError):
                    found[key] = answer
                elif answer.code() in RETRIABLE and time.monotonic() < until_s:
                    again.append(key)
                else:
                    self._problems[key] = answer.str()
            left = again
            time.sleep(BACKOFF_S if left else 0)
        return found
