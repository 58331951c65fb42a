"""A sender of dead letters that keeps what is reported of each."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from core.letters import Sample
from drainer.errors import DrainerError
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import DeadLetterTopic
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from drainer.policy.dead_letter import DeadLetter, Letter, read_letter
from kafka.topic import WAIT_S, Topic, eventually


class Sender:
    """Sends letters and keeps what is reported of each, by its number."""

    def __init__(self, writer: DeadLetterTopic) -> None:
        self.writer = writer
        self.reported: dict[int, DrainerError | None] = {}
        self.order: list[int] = []
        self.threads: set[str] = set()

    def send(self, letter: DeadLetter) -> int:
        number = len(self.order)
        self.order.append(number)

        def report(error: DrainerError | None) -> None:
            assert number not in self.reported, f"letter {number} is reported twice"
            self.reported[number] = error
            self.threads.add(threading.current_thread().name)

        self.writer.send(letter, report)
        return number

    def all_reported(self, wait_s: float = WAIT_S) -> list[DrainerError | None]:
        eventually(lambda: len(self.reported) == len(self.order), "all is reported", wait_s)
        return [self.reported[number] for number in self.order]


@contextmanager
def sending(settings: ClientSettings, topic: str) -> Iterator[Sender]:
    writer = DeadLetterTopic(settings, topic)
    try:
        yield Sender(writer)
    finally:
        writer.close(0)


def write_letters(topic: Topic, samples: Iterable[Sample]) -> None:
    with sending(ClientSettings.load(topic.bootstrap), topic.name) as sender:
        for sample in samples:
            sender.send(sample.letter())
        assert set(sender.all_reported()) == {None}


def letters_in(bootstrap: str, topic: str) -> list[Letter]:
    with Cluster.connect(ClientSettings.load(bootstrap), 60) as cluster:
        return [read_letter(message) for message in read_letters(cluster, topic)]
