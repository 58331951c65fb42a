"""A dead-letter topic that acknowledges late, or never, or refuses, or what it does not have: in
place of a producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError
from confluent_kafka import Message as Acknowledged

from core.messages import Place
from drainer.message import Header, Message, Origin
from drainer.policy.dead_letter import read_letter
from simulation.backlog import TOPIC_ID
from simulation.cluster import Broker

DELIVERY_S = 10.0  # the real one waits for minutes
AGAIN_S = 0.5

DEAD = "dead"
LIES = 0.5  # the share of acknowledgements without an offset

OnDelivery = Callable[[KafkaError | None, Any], None]


class SimProducer:
    """Has the face of ``confluent_kafka.Producer``; what it writes ends up in ``written``.

    ``later`` calls something when so many seconds have passed, unless the process ends before.
    """

    def __init__(
        self,
        broker: Broker,
        written: Counter[Place],
        sleep: Callable[[float], None],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._broker = broker
        self._written = written
        self._sleep = sleep
        self._later = later
        self._random = broker.world.random(f"producer {broker.world.steps}")
        self._lies = broker.world.random(f"lies {broker.world.steps}")
        self._under_way: list[_Letter] = []
        self._answers: list[tuple[_Letter, KafkaError | None, int]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Sequence[Header],
        timestamp: int,
        on_delivery: OnDelivery,
    ) -> None:
        letter = _Letter(_place(value, key, headers), headers[0], on_delivery)
        self._under_way.append(letter)
        self._arrive_after(self._random.choice([0.0, 0.01, 0.3]), letter)

    def poll(self, timeout: float) -> None:
        if not self._answers:
            self._sleep(min(timeout, 0.02) if self._under_way else timeout)
        answers, self._answers = self._answers, []
        for letter, error, offset in answers:
            letter.on_delivery(error, Acknowledged(DEAD, 0, offset))

    def purge(self, blocking: bool) -> None:
        for letter in self._under_way:
            self._answers.append((letter, KafkaError(KafkaError._PURGE_INFLIGHT), OFFSET_INVALID))
        self._under_way.clear()

    def _arrive_after(self, seconds: float, letter: _Letter) -> None:
        self._later(seconds, lambda: self._arrive(letter))

    def _arrive(self, letter: _Letter) -> None:
        broker = self._broker
        if broker.unreachable:  # it tries again
            self._arrive_after(AGAIN_S, letter)
            return
        broker.world.step(f"letter {letter.place}")
        fate = "done"
        if self._random.random() < broker.letters_lost:
            fate = self._random.choice(["refused", "answer lost", "answer lost"])
            broker.world.tally[f"letters: {fate}"] += 1
        elif self._lies.random() < LIES:
            fate = self._lies.choice(["unsure", "missing"])
            broker.world.tally[f"letters: {fate}"] += 1
        error = None
        if fate == "refused":
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        elif fate != "missing":
            broker.world.tally["letters"] += 1
            self._written[letter.place] += 1
            broker.letters.add(letter.mark)
        if fate == "answer lost":
            error = KafkaError(KafkaError._MSG_TIMED_OUT)
        wait_s = DELIVERY_S if fate == "answer lost" else self._random.choice([0.0, 0.05])
        offset = OFFSET_INVALID if fate in ("unsure", "missing") else 0
        self._later(wait_s, lambda: self._answer(letter, error, offset))

    def _answer(self, letter: _Letter, error: KafkaError | None, offset: int) -> None:
        if letter in self._under_way:  # it was not purged
            self._under_way.remove(letter)
            self._answers.append((letter, error, offset))


@dataclass(eq=False)
class _Letter:
    place: Place
    mark: Header
    on_delivery: OnDelivery


def _place(value: bytes | None, key: bytes | None, headers: Sequence[Header]) -> Place:
    # Read back as `drainer dead` and `drainer redrive` do.
    record = Message(Origin(DEAD, TOPIC_ID, 0), 0, key, value, headers=headers)
    letter = read_letter(record)
    return letter.message_partition, letter.message_offset, letter.index
