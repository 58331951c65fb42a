"""The fake Kafka of a simulation: what goes wrong with it, and what a drain may do there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from drainer.errors import BrokerUnreachable
from drainer.kafka.answers import Right
from drainer.kafka.group import GroupInfo, Member
from fake_kafka import ANSWER_S, FakeCluster, FakeConsumer, FakeKafka, FakeLock
from simulation.backlog import GROUP, TOPIC, TOPIC_ID, Backlog
from simulation.world import World

STRANGER = Member("consumer-1-abc", "consumer-1", "10.0.0.7")
FETCH_MOST = 16
CONSUMER = "a consumer is in the group"  # What showed that the group is not the drain's own.

Commits = Mapping[int, int]


class Broker(FakeKafka):
    """The state of the cluster, which outlives the drain's processes."""

    def __init__(self, world: World, backlog: Backlog) -> None:
        super().__init__(TOPIC, TOPIC_ID, GROUP, backlog.logs, backlog.committed)
        self.world = world
        self.ours = dict(self.committed)  # where the drain put the group
        self.moved = set[int]()  # the partitions where somebody else moved it after that
        self.unreachable = False
        self.unanswered = 0.0  # the share of commits without an answer
        self.unread = 0.0  # the share of questions that get no answer
        self.letters_lost = 0.0  # the share of dead letters without an answer, or with a refusal
        self.letters: set[Any] = set()  # the provenance headers of those that are there
        self.requested = 0
        self.at_question: dict[int, Callable[[], None]] = {}  # what happens before one is answered
        self.random = world.random("broker")
        self.may_commit: Callable[[Commits], None] = lambda commits: None
        self.seen = ""  # what showed the drain in this life that the group is not its own
        self.late: Commits = {}  # a commit on its way
        self.later: Callable[[float], None] = lambda seconds: None  # when it arrives
        self.pause: Callable[[float], None] = lambda seconds: None

    def request(self, what: str) -> None:
        self.pause(self.random.choice([0.0, 0.001, 0.02]))
        self.world.step(f"request {what}")
        self.requested += 1
        if (happens := self.at_question.pop(self.requested, None)) is not None:
            happens()
        if self.unreachable or self.random.random() < self.unread:
            self.world.tally["questions without an answer"] += 1
            self.pause(ANSWER_S)
            raise BrokerUnreachable("nothing listens on sim:9092")

    def find(self, settings: object, topic: str, begins: object, marks: Mapping[int, Any]) -> Any:
        """Stands in for the reading of the dead-letter topic."""
        self.request("dead letters")
        return set().union(*marks.values()) & self.letters

    def commit(self, commits: Commits) -> str:
        """Fate of a commit: it is done, refused, lost, or done and its answer lost."""
        self.arrive()  # the broker takes requests of one client in their order
        if self.members:
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
        if late and not self.members:
            self.world.note(f"commit {dict(late)} arrives")
            self._move(late)

    def move(self, number: int, offset: int | None) -> None:
        """Somebody else moves the group."""
        self.world.note(f"somebody moves the group to {number}/{offset}")
        self.committed[number] = offset
        self.moved.add(number)

    def expire(self) -> None:
        """Drops the offsets of a group that has been empty for long."""
        self.arrive()
        self.committed = dict.fromkeys(self.committed)
        self.moved.clear()  # nothing is left of that

    def put_back(self) -> None:
        """A person puts the group back to where the drain left it."""
        self.late = {}
        self.committed = dict(self.ours)
        self.moved.clear()

    def _move(self, commits: Commits) -> None:
        for number, offset in commits.items():
            before = self.ours[number]
            self.world.ensure(
                self.moved or before is None or offset >= before, "the group went backwards"
            )
            self.committed[number] = self.ours[number] = offset


class SimCluster(FakeCluster):
    """A view of the broker; what it shows of others is noted, for the drain must stop then."""

    kafka: Broker

    def group(self, name: str, timeout_s: float | None = None, right: Right = "READ") -> GroupInfo:
        found = super().group(name, timeout_s, right)
        if found.members:
            self._see(CONSUMER)
        return found

    def committed(
        self, group: str, topic: str, partitions: Iterable[int], timeout_s: float | None = None
    ) -> dict[int, int | None]:
        found = super().committed(group, topic, partitions, timeout_s)
        # An offset that has expired does not show a move on another partition.
        if any(o != self.kafka.ours[n] for n, o in found.items() if n in self.kafka.moved):
            self._see("the group was moved")
        return found

    def alter_committed(
        self, group: str, topic: str, offsets: Mapping[int, int], timeout_s: float | None = None
    ) -> None:
        broker = self.kafka
        broker.world.ensure(not broker.seen, f"a commit after it was seen that {broker.seen}")
        broker.request("commit")
        way = broker.commit(dict(offsets))
        if way == "refused":
            self._refuse_beside_members(group)
        if way != "done":
            broker.pause(ANSWER_S)
            raise BrokerUnreachable("the commit of group billing got no answer")
        broker.world.step("request after the commit")

    def _refuse_beside_members(self, group: str) -> None:
        if self.kafka.members:
            self._see(CONSUMER)
        super()._refuse_beside_members(group)

    def _see(self, what: str) -> None:
        # Only once it runs: before that, whoever looks sees it, and refuses.
        self.kafka.seen = self.kafka.seen or what


class SimConsumer(FakeConsumer):
    """Consumer of the fetch thread: some records at a time, or an error while there is none."""

    def __init__(self, broker: Broker, sleep: Callable[[float], None], conf: Any) -> None:
        super().__init__(broker, conf, FETCH_MOST)
        self._broker = broker
        self._sleep = sleep
        self._random = broker.world.random(f"consumer {broker.world.steps}")

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._broker.world.tally["paused"] += 1
        super().pause(places)

    def consume(self, most: int, timeout: float) -> list[Message]:
        broker = self._broker
        broker.world.step("fetch")
        if broker.unreachable:
            self._sleep(timeout)
            gone = KafkaError(KafkaError._ALL_BROKERS_DOWN, "simulated")
            return [Message(TOPIC, -1, -1, error=gone)] if broker.requested % 2 else []
        found = super().consume(most, timeout)
        # With fewer than it was requested for, it waits for all of its time.
        self._sleep(self._random.choice([0.0, 0.002]) if len(found) >= most else timeout)
        return found

    def _in_turn(self, numbers: list[int]) -> list[int]:
        self._random.shuffle(numbers)
        return numbers

    def _portion(self, most: int, left: int) -> int:
        return min(left, self._random.randint(1, min(most, FETCH_MOST)))


class SimLock(FakeLock):
    """Taking and giving it back are steps of the simulation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def acquire(self) -> None:
        self._world.step("lock")

    def release(self) -> None:
        if self._world.alive:
            self._world.step("unlock")
