"""A made-up cluster: one topic, one group, a lock; what goes wrong with them, and what a drain may
do there. In place of drainer/kafka's clients there are others, with the same face."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Answer

from drainer.errors import BrokerUnreachable, DrainerError, TopicMissing
from drainer.kafka.answers import Right
from drainer.kafka.cluster import Cluster, GroupInfo, LogBounds, Member, TopicInfo
from drainer.kafka.settings import ClientSettings
from simulation.backlog import GROUP, TOPIC, TOPIC_ID, Backlog
from simulation.world import World

STRANGER = Member("consumer-1-abc", "consumer-1", "10.0.0.7")
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
ANSWER_S = 5.0  # how long an answer is waited for that does not come
FETCH_MOST = 16

Commits = Mapping[int, int]


class Broker:
    """The state of the cluster, which outlives the drain's processes."""

    def __init__(self, world: World, backlog: Backlog) -> None:
        self.world = world
        self.backlog = backlog
        self.topic_id = TOPIC_ID
        self.dead_letter_topic = False  # whether it is there
        self.committed: dict[int, int | None] = dict(backlog.committed)
        self.ours = dict(self.committed)  # where the drain put the group
        self.moved = False  # and somebody else moved it after that
        self.stranger = False  # a consumer is in the group
        self.unreachable = False
        self.unanswered = 0.0  # the share of commits of which nothing is heard
        self.unread = 0.0  # the share of questions that get no answer
        self.letters_lost = 0.0  # the share of dead letters of which nothing is heard, or a no
        self.letters: set[Any] = set()  # the provenance headers of those that are there
        self.asked = 0
        self.at_question: dict[int, Callable[[], None]] = {}  # what happens before one is heard
        self.random = world.random("broker")
        self.may_commit: Callable[[Commits], None] = lambda commits: None
        self.seen = ""  # what told the drain in this life that the group is not its own
        self.late: Commits = {}  # a commit on its way
        self.later: Callable[[float], None] = lambda seconds: None  # when it arrives
        self.pause: Callable[[float], None] = lambda seconds: None

    def ask(self, what: str) -> None:
        """A question arrives. Raises BrokerUnreachable when no answer is to be had."""
        self.pause(self.random.choice([0.0, 0.001, 0.02]))
        self.world.step(f"ask {what}")
        self.asked += 1
        if (happens := self.at_question.pop(self.asked, None)) is not None:
            happens()
        if self.unreachable or self.random.random() < self.unread:
            self.world.tally["questions without an answer"] += 1
            self.pause(ANSWER_S)
            raise BrokerUnreachable("nothing listens on sim:9092")

    def find(self, settings: object, topic: str, begins: object, marks: Mapping[int, Any]) -> Any:
        """Stands in for the reading of the dead-letter topic."""
        self.ask("dead letters")
        return set().union(*marks.values()) & self.letters

    def commit(self, commits: Commits) -> str:
        """What becomes of a commit: it is done, refused, lost, or done and its answer lost."""
        self.arrive()  # the broker takes requests of one client in their order
        if self.stranger:
            return "refused"
        self.may_commit(commits)
        lost = self.random.random() < self.unanswered
        way = self.random.choice(["request", "answer", "late"]) if lost else "done"
        if lost:
            self.world.tally[f"commits: {way} lost" if way != "late" else "commits: late"] += 1
        if way == "late":
            self.late = commits
            self.later(self.random.choice([0.01, 1.0, 7.0]))
        elif way != "request":
            self._move(commits)
        self.world.note(f"commit {dict(commits)}: {way}")
        return way

    def arrive(self) -> None:
        """A commit that was on its way is done."""
        late, self.late = self.late, {}
        if late and not self.stranger:
            self.world.note(f"commit {dict(late)} arrives")
            self._move(late)

    def move(self, number: int, offset: int | None) -> None:
        """Somebody else moves the group."""
        self.world.note(f"somebody moves the group to {number}/{offset}")
        self.committed[number] = offset
        self.moved = True

    def expire(self) -> None:
        """Drops the offsets of a group that has been empty for long."""
        self.arrive()
        self.committed = dict.fromkeys(self.committed)
        self.moved = False  # nothing is left of that

    def put_back(self) -> None:
        """A person puts the group back to where the drain left it."""
        self.late = {}
        self.committed = dict(self.ours)
        self.moved = False

    def _move(self, commits: Commits) -> None:
        for number, offset in commits.items():
            before = self.ours[number]
            self.world.insist(
                self.moved or before is None or offset >= before, "the group went backwards"
            )
            self.committed[number] = self.ours[number] = offset


class SimCluster(Cluster):
    """What asks the broker, with the patience of the real one left out."""

    def __init__(self, broker: Broker, settings: ClientSettings) -> None:
        self.broker = broker
        self.settings = settings
        self.cluster_id = CLUSTER_ID
        self.admin: Any = SimAdmin(broker)

    def close(self) -> None:
        """There is no connection."""

    def ask(self, what: str, attempt: Callable[[float], Any], *_: Any, **named: Any) -> Any:
        self.broker.ask(what)
        return attempt(ANSWER_S)

    def wait(self, future: Any, timeout_s: float) -> Any:
        return future

    def topic_config(self, name: str) -> dict[str, str]:
        self.broker.ask("configuration")
        return {}

    def topic(self, name: str, right: Right = "READ") -> TopicInfo:
        self.broker.ask("topic")
        if name != TOPIC and not self.broker.dead_letter_topic:
            raise TopicMissing(f"there is no topic {name}")
        numbers = tuple(self.broker.backlog.logs)
        return TopicInfo(name, self.broker.topic_id, numbers, dict.fromkeys(numbers, "sim:9092"))

    def group(self, name: str, timeout_s: float | None = None, right: Right = "READ") -> GroupInfo:
        self.broker.ask("group")
        if name == GROUP and self.broker.stranger:
            self._see("a consumer is in the group")
            return GroupInfo(name, "stable", (STRANGER,))
        return GroupInfo(name, "empty", ())

    def committed(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int | None]:
        self.broker.ask("offsets")
        found = {number: self.broker.committed[number] for number in partitions}
        if self.broker.moved and any(o != self.broker.ours[n] for n, o in found.items()):
            self._see("the group was moved")
        return found

    def alter_committed(
        self,
        group: str,
        topic: str,
        offsets: Mapping[int, int],
        timeout_s: float | None = None,
    ) -> None:
        broker = self.broker
        broker.world.insist(not broker.seen, f"a commit after it was seen that {broker.seen}")
        broker.ask("commit")
        way = broker.commit(dict(offsets))
        if way == "refused":
            self._see("a consumer is in the group")
            raise self.group_active(group)
        if way != "done":
            broker.pause(ANSWER_S)
            raise BrokerUnreachable("the commit of group billing got no answer")
        broker.world.step("ask after the commit")

    def ensure_no_members(
        self, group: str, topic: str, committed: tuple[int, int], timeout_s: float | None = None
    ) -> None:
        self.broker.ask("members")
        if self.broker.stranger:
            self._see("a consumer is in the group")
            raise self.group_active(group)

    def near_groups(self, name: str) -> list[str]:
        return []

    def log_starts(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int]:
        self.broker.ask("starts")
        return {n: self.broker.backlog.logs[n].start for n in partitions}

    def log_ends(
        self, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, tuple[int, int | None]]:
        self.broker.ask("ends")
        return {n: (self.broker.backlog.logs[n].end, None) for n in partitions}

    def log_bounds(
        self, topic: str, partitions: Iterable[int], isolation: str
    ) -> dict[int, LogBounds]:
        self.broker.ask("bounds")
        logs = self.broker.backlog.logs
        committed_only = isolation == "read_committed"
        return {
            n: LogBounds(logs[n].start, logs[n].end_for(committed_only), logs[n].end, None)
            for n in partitions
        }

    def _see(self, what: str) -> None:
        # Only once it runs: before that, whoever looks is told, and refuses.
        self.broker.seen = self.broker.seen or what


class SimAdmin:
    """What makes the dead-letter topic."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create_topics(self, new: Sequence[Any], *, validate_only: bool, **_: object) -> Any:
        self._broker.dead_letter_topic |= not validate_only
        return {each.topic: None for each in new}


class SimConsumer:
    """What the fetch thread reads by: records, the end of the log, and errors in their place."""

    def __init__(self, broker: Broker, sleep: Callable[[float], None], conf: Any) -> None:
        self._broker = broker
        self._sleep = sleep
        self._random = broker.world.random(f"consumer {broker.world.steps}")
        self._committed_only = conf["isolation.level"] == "read_committed"
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._told_end: dict[int, int] = {}
        self._log = conf["logger"]
        self._topic_id = TOPIC_ID

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self._positions = {place.partition: place.offset for place in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            del self._positions[place.partition]

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._broker.world.tally["paused"] += 1
        self._paused.update(place.partition for place in places)

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(place.partition for place in places)

    def close(self) -> None:
        """There is no connection."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        self._ask("topic")
        if self._broker.topic_id != self._topic_id:
            self._log.debug(
                "Topic %s changed id from %s to %s", topic, self._topic_id, self._broker.topic_id
            )
            self._topic_id = self._broker.topic_id
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        self._ask("bounds")
        log = self._broker.backlog.logs[place.partition]
        return log.start, log.end_for(self._committed_only)

    def _ask(self, what: str) -> None:
        try:
            self._broker.ask(what)
        except BrokerUnreachable as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from None

    def consume(self, most: int, timeout: float) -> list[Answer]:
        broker = self._broker
        broker.world.step("fetch")
        if broker.unreachable:
            self._sleep(timeout)
            return [_answer(-1, -1, KafkaError._ALL_BROKERS_DOWN)] if broker.asked % 2 else []
        found: list[Answer] = []
        numbers = [n for n in self._positions if n not in self._paused]
        self._random.shuffle(numbers)
        for number in numbers:
            if len(found) < most:
                self._read(number, self._random.randint(1, min(most, FETCH_MOST)), found)
        # With fewer than it was asked for, it waits for all of its time.
        self._sleep(self._random.choice([0.0, 0.002]) if len(found) >= most else timeout)
        return found[:most] if len(found) <= most else self._give_back(found, most)

    def _read(self, number: int, most: int, found: list[Answer]) -> None:
        log = self._broker.backlog.logs[number]
        end = log.end_for(self._committed_only)
        position = self._positions[number]
        if position < log.start or position > log.end:
            found.append(_answer(number, position, KafkaError._AUTO_OFFSET_RESET))
            return
        while position < end and most:
            if log.shown(position, self._committed_only):
                record = log.records[position]
                found.append(Answer(TOPIC, number, position, record.key, record.value))
                most -= 1
            position += 1
        self._positions[number] = position
        if position >= end and most and self._told_end.get(number) != end:
            self._told_end[number] = end
            found.append(_answer(number, position, KafkaError._PARTITION_EOF))

    def _give_back(self, found: list[Answer], most: int) -> list[Answer]:
        for answer in reversed(found[most:]):
            number, offset = answer.partition(), answer.offset()
            assert number is not None
            assert offset is not None
            if answer.error() is None:
                self._positions[number] = offset
            else:
                self._told_end.pop(number, None)
        return found[:most]


class SimLock:
    """Stands in for ``GroupLock``; it is lost, or in doubt, when the simulation says so."""

    def __init__(self, world: World) -> None:
        self.lost: DrainerError | None = None
        self.sure_until_s = inf
        self.client_id = "drainer"
        self._world = world

    def acquire(self) -> None:
        self._world.step("lock")

    def release(self) -> None:
        if self._world.alive:
            self._world.step("unlock")


def _answer(number: int, offset: int, code: int) -> Answer:
    return Answer(TOPIC, number, offset, None, None, None, KafkaError(code, "simulated"))
