"""A survey of groups: two looks at all of their offsets, a few seconds apart, with few requests.

One request to each broker lists its groups, and one reads the ends of all logs. Committed offsets
take two requests per group: for its coordinator, and for the offsets. So does the description of a
group that has members.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it is exported without __all__

from drainer.errors import Refused
from drainer.insight.retention import outlook
from drainer.kafka.answers import RETRIABLE
from drainer.kafka.backlog import Backlog, PartitionBacklog
from drainer.kafka.cluster import EARLIEST, LATEST, NO_RECORD, Cluster
from drainer.kafka.group import LOCK, LOCK_OF_REPEATS
from drainer.kafka.settings import ISOLATION, ClientSettings
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
from drainer.model.listed import counted
from drainer.model.option import Lag
from drainer.model.shown import Shown

# By default, Java's and librdkafka's consumers commit every 5 s. Two looks that are closer together
# could both fall between two commits.
OVER_S = 6.0
# At most this many records are read for their ages, first that of each group's worst partition.
HEADS_MOST = 200
READERS = 8  # The number of topics from which records are read at the same time.
PATIENCE_S = 4.0  # How long requests are repeated if leaders or coordinators don't answer.
GROUPS_AT_ONCE = 200

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
        over_s: seconds between the two looks.
        remarks: sentences about what the survey leaves out.
    """

    _page = "drainer.lags.cli:lag_page"
    cluster_id: str
    taken_ms: int
    over_s: float
    groups: tuple[GroupLag, ...]
    remarks: tuple[str, ...] = ()


def survey_groups(
    settings: ClientSettings,
    pattern: str = "*",
    over_s: float = OVER_S,
    most: Lag | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Lags:
    """Survey the groups that this user sees whose names match a pattern such as ``index*``.

    This joins no group and commits nothing. Records of open transactions count, because the group
    will read them once the transactions are committed. Without a pattern, the locks of drains are
    left out.

    Args:
        over_s: seconds between the two looks.
        most: how far a partition may be behind: a number of offsets, or the age of a record.

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
        tell(f"looking twice at {counted(len(groups), 'group')}, {over_s:g} s apart ...")
        return _Survey(cluster, groups, most).lags(over_s)


class _Survey:
    """The first look at groups, and what follows from it."""

    def __init__(
        self, cluster: Cluster, groups: Sequence[Mapping[str, Any]], most: Lag | None
    ) -> None:
        self._cluster, self._groups, self._most = cluster, groups, most
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
        late = {name: found for name in self._committed if (found := self._late(name))}
        places = {place for each in late.values() for place in each}
        taken_ms, remarks = round(time.time() * 1000), list[str]()
        heads = dict(self._heads(late, remarks))
        since: Mapping[Place, int] = {}
        if self._most is not None and self._most.seconds is not None:
            young = OffsetSpec.for_timestamp(taken_ms - round(self._most.seconds * 1000))
            since, _ = self._offsets(places, young, NO_RECORD)
        time.sleep(max(0.0, self._committed_at_s + over_s - time.monotonic()))
        committed, committed_at_s = self._commits([*late])
        ends, ends_at_s = self._offsets(places, LATEST)

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
            found = partition_lag(place, (first, last), head, self._starts[place], reader)
            young = since.get(place, NO_RECORD)
            return replace(found, too_far=self._too_far(found, self._position(name, place), young))

        judged = [
            group_lag(
                *(each["name"], each["state"], len(each["members"])),
                [part(each["name"], place) for place in self._places[each["name"]]],
                self._problems.get(each["name"], ""),
            )
            for each in self._groups
        ]
        cluster_id = self._cluster.cluster_id
        return Lags(cluster_id, taken_ms, over_s, tuple(worst_first(judged)), tuple(remarks))

    def _position(self, name: str, place: Place) -> int:
        return max(self._committed[name].get(place, 0), self._starts[place])

    def _late(self, name: str) -> list[Place]:
        """Return the partitions on which a group is behind, the worst first."""
        known = [place for place in self._places[name] if place not in self._problems]
        behind = {place: self._ends[place] - self._position(name, place) for place in known}
        return sorted((p for p in known if behind[p] > 0), key=lambda place: -behind[place])

    def _too_far(self, part: PartitionLag, position: int, young: int) -> bool | None:
        if self._most is None or part.behind is None:
            return None
        if self._most.messages is not None:
            return part.behind > self._most.messages
        if part.age_s is not None:
            return part.age_s > (self._most.seconds or 0.0)
        # All records before the first one that is young enough are too old.
        return part.behind > 0 and (young == NO_RECORD or position < young)

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

    def _commits(self, names: Sequence[str]) -> tuple[dict[str, dict[Place, int]], float]:
        """Read the committed offsets of groups, and return when that was."""

        def ask(left: list[str]) -> Iterator[tuple[str, dict[Place, int] | KafkaError]]:
            for at in range(0, len(left), GROUPS_AT_ONCE):
                answers = self._cluster.commits_of(left[at : at + GROUPS_AT_ONCE])
                for name, answer in answers.items():
                    if isinstance(answer, KafkaError):
                        yield name, answer
                    else:
                        yield name, {(t, n): offset for t, n, offset in answer if offset >= 0}

        return self._all(names, ask), time.monotonic()

    def _offsets(
        self, places: Collection[Place], spec: OffsetSpec, least: int = 0
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
                    yield (place.topic, place.partition), offset if offset >= least else _AWAY

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

    def _heads(
        self, late: Mapping[str, Sequence[Place]], remarks: list[str]
    ) -> Iterator[tuple[tuple[str, Place], Head]]:
        """Read first records: of the worst partition of each group, then of its second worst."""
        of_groups = ([(name, place) for place in places] for name, places in late.items())
        turns = [*filter(None, chain.from_iterable(zip_longest(*of_groups)))]
        if len(turns) > HEADS_MOST:
            worst = f"the worst {HEADS_MOST} of {len(turns):,} partitions"
            remarks.append(f"only {worst} are read for the time behind and the race with retention")
        wanted: dict[tuple[str, str], list[int]] = {}
        for name, (topic, number) in turns[:HEADS_MOST]:
            wanted.setdefault((name, topic), []).append(number)
        with ThreadPoolExecutor(READERS) as pool:
            for (name, topic), found in zip(
                wanted, pool.map(self._heads_of, wanted, wanted.values()), strict=True
            ):
                if isinstance(found, Refused):
                    remarks.append(f"no time behind on {topic}: {found}")
                else:
                    yield from (((name, (topic, n)), head) for n, head in found.items())

    def _heads_of(self, of: tuple[str, str], numbers: Sequence[int]) -> dict[int, Head] | Refused:
        (name, topic), cluster, parts = of, self._cluster, dict[int, PartitionBacklog]()
        for n in numbers:
            start, end = self._position(name, (topic, n)), self._ends[topic, n]
            parts[n] = PartitionBacklog(n, start, end, None, start, end, None)
        try:
            topic_id = cluster.topic(topic).topic_id
            backlog = Backlog(
                cluster.cluster_id, topic, topic_id, cluster.settings.isolation, parts
            )
            ahead = outlook(cluster, backlog, cluster.topic_config(topic))
        except Refused as error:
            return error
        kept = {n: ahead.expiry(part, 0.0) for n, part in parts.items()}
        return {
            n: Head(ahead.age_s(n), None if expiry is None else expiry.in_s, n in ahead.heads)
            for n, expiry in kept.items()
        }
