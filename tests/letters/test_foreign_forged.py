"""Made-up letters of other tools: none stops a redrive, and none is finished without a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from drainer.errors import NotADeadLetter
from drainer.kafka.cluster import Cluster
from drainer.kafka.reader import KafkaMessage
from drainer.letters.cli.dead import letter_page
from drainer.letters.foreign import REDRIVES, SCHEMES
from drainer.letters.originals import Originals
from drainer.letters.overview import overview_of, whole_letter_as_json
from drainer.letters.reading import find_letter, read_letters
from drainer.letters.receipts import redrive_progress
from drainer.letters.redrive import default_group, prepare_redrive
from drainer.loading.loader import load_handler
from drainer.model.settings import FailureSettings, LocalSettings, OnFailure
from drainer.model.terms import LetterFilter, RedriveSettings
from drainer.operations.drain import drain
from drainer.operations.start import Prepared, Request
from drainer.policy.dead_letter import FORMAT, OWN_HEADERS, read_letter
from kafka.raw import produce_with_header
from kafka.topic import Topic
from letters.foreign_letters import Record, write

RECORDS = 250
KEPT = range(20, 60)  # offsets of the source that retention left
GONE = "retention or compaction deleted its original"
FAILURES = FailureSettings(on_failure=OnFailure.DEAD_LETTER, breaker=False)
HANDLER = """
handled = []

async def handle(sub):
    handled.append(sub.message.key)
    if sub.payload == b"bad":
        raise ValueError("no")
"""


class Forger:
    """Makes letters with headers that are missing, repeated, cut or of another type."""

    def __init__(self, random: Random, source: Topic, dead: Topic) -> None:
        self._random = random
        self._topics = [source.name] * 12 + [dead.name, "missing", "", "..", "a b", "t" * 300, "ä"]

    def record(self, number: int) -> Record:
        choose, scheme = self._random.choice, self._random.choice(SCHEMES)
        names = [scheme.topic, scheme.partition, scheme.offset, scheme.group, scheme.text]
        headers = [
            (name, self._value(name)) for name in names if name and self._random.random() > 0.05
        ]
        headers += [
            (choose(names), self._value(choose(names))) for _ in range(choose([0, 0, 0, 2]))
        ]
        extra = [
            (REDRIVES, choose([b"1", b"9", b"", b"-1", b"\xff" * 8])),
            (FORMAT, b"{"),
            ("a", None),
        ]
        headers += [each for each in extra if self._random.random() < 0.05]
        if self._random.random() < 0.1:
            self._random.shuffle(headers)
        value = choose([None, None, b"", b"bad", b"good", b"\xff\x00"])
        lacks_message = scheme.leaves_out and self._random.random() < 0.8
        value = None if lacks_message else value
        return Record(
            None if lacks_message else b"n%d" % number, value, 0, [*filter(lambda h: h[0], headers)]
        )

    def _value(self, name: str) -> bytes | None:
        choose = self._random.choice
        if name.endswith("topic"):
            return choose(self._topics).encode()
        if name.endswith(("group", "text", "message", "reason")):
            return choose([b"g", b"", None, b"\x1b[2J\xff", b"x" * 5000])
        size = 4 if name.endswith("partition") else 8
        number = 0 if size == 4 else choose([3, 30, 45, 5000])
        written = str(number).encode(), number.to_bytes(size, "big")
        odd = [
            None,
            b"",
            b"-1",
            b"9" * 25,
            b"\xff" * size,
            number.to_bytes(size, "big")[1:],
            b"1.5",
        ]
        return choose(written) if self._random.random() > 0.15 else choose(odd)


@pytest.fixture
def topics(bootstrap: str, topic_name: str) -> Iterator[tuple[Topic, Topic]]:
    made = Topic(bootstrap, f"{topic_name}.source"), Topic(bootstrap, f"{topic_name}.dead")
    yield made
    for each in made:
        each.discard()


def ensure_shown(cluster: Cluster, topic: str, records: list[KafkaMessage]) -> None:
    """Each record is counted, and each letter among the first has a page."""
    originals = Originals(cluster.settings, {})
    found = overview_of(
        topic, ((each, False) for each in records), LetterFilter(), 1000, read=originals.letter
    )
    assert found.letters + found.foreign == len(records)
    for each in records[:20]:
        try:
            letter = find_letter(cluster, topic, 0, each.offset, originals.letter)
        except NotADeadLetter:
            continue
        assert letter_page(letter)
        assert whole_letter_as_json(letter)["offset"] == each.offset


def prepared_redrive(cluster: Cluster, topic: str, folder: Path) -> Prepared:
    (folder / "handler.py").write_text(HANDLER)
    request = Request(
        topic=topic,
        group=default_group(topic),
        handler=load_handler(str(folder / "handler.py")),
        failures=FAILURES,
        plan_path=folder / "plan.json",
    )
    cluster.group(request.group)  # waits for its coordinator
    return prepare_redrive(cluster, request, RedriveSettings(), LocalSettings(), mixed=True)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_made_up_letter_stops_a_redrive_or_is_finished_without_a_call(
    topics: tuple[Topic, Topic], cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    source, dead = topics
    source.produce([f"s{n}" for n in range(KEPT.stop)])
    source.delete_before(KEPT.start)
    forger = Forger(Random(seed), source, dead)
    write(dead, [forger.record(number) for number in range(RECORDS)])
    produce_with_header(dead.bootstrap, dead.name, b"v", b"\xff")

    originals, records = Originals(cluster.settings, {}), [*read_letters(cluster, dead.name)]
    ensure_shown(cluster, dead.name, records)
    prepared = prepared_redrive(cluster, dead.name, tmp_path)
    summary = drain(cluster, prepared, LocalSettings())

    assert summary.exit_code == 6
    assert summary.conserved
    handled: Counter[bytes | None] = Counter(prepared.handler.target.handled)
    assert handled[None], "of the source"
    group = default_group(dead.name)
    progress = redrive_progress(cluster, dead.name, group)
    finished = {n for start, end in progress.finished[0] for n in range(start, end)}
    finished |= set(range(cluster.committed(group, dead.name, [0])[0] or 0))
    for each in records:
        if each.offset not in finished:
            continue
        try:
            names = [name for name, _ in each.headers]
        except ValueError:
            continue  # no redrive can read it
        if any(name.startswith(OWN_HEADERS) for name in names):
            with pytest.raises(NotADeadLetter):
                read_letter(each)
            continue
        handled[originals.letter(each).message_key] -= 1
    assert (summary.left_alone or {})[GONE] > 0
    assert set(handled.values()) == {0}
