"""Dead letters: what others write among them, and whose they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import orjson
from confluent_kafka import Producer

from drainer.demo.fill import create_topic
from drainer.errors import DrainerError
from drainer.kafka.cluster import Cluster
from drainer.kafka.dead_letters import DeadLetterTopic
from drainer.kafka.settings import ClientSettings
from drainer.letters.reading import read_letters
from drainer.policy.dead_letter import FORMAT, DeadLetter, default_dead_letter_topic
from drainer.sandbox.jars import default_cache
from scenarios.trust.case import TRY_S, Stage, case, insist

NEW_TOPICS, NEW_PARTITIONS = 40, 48
TOPIC_TAKES = 1_048_588  # bytes of a record, by default

HANDLER = """
from pathlib import Path

async def handle(sub):
    if sub.key == b"bad" and not Path("mended").exists():
        raise ValueError("no")
    with open("handled", "a") as file:
        file.write(f"{sub.message.topic} {sub.message.offset}\\n")
"""


def produce(stage: Stage, topic: str, *records: tuple[bytes, Sequence[Any]]) -> None:
    producer = Producer(
        {"bootstrap.servers": stage.bootstrap, "message.max.bytes": 2 * TOPIC_TAKES}
    )
    for key, headers in records:
        producer.produce(topic, b"{}", key, headers=list(headers))
    producer.flush(30)


def dead_letters(stage: Stage, group: str, *, into: str | None = None, keys: int = 1) -> str:
    """Drains a topic whose messages all die; returns its dead-letter topic."""
    (stage.folder / "handler.py").write_text(HANDLER)
    topic = stage.name()
    create_topic(ClientSettings.load(stage.bootstrap), topic, 1)
    produce(stage, topic, *[(b"bad", [])] * keys)
    dead = into or default_dead_letter_topic(topic, group)
    ended = stage.drainer(
        *("run", "--topic", topic, "--group", group, "--handler", "handler.py", "--yes"),
        *(
            "--from",
            "earliest",
            "-b",
            stage.bootstrap,
            "--retries",
            "0",
            "--max-failures",
            "none",
            "--no-breaker",
        ),
        *("--dead-letter-topic", dead),
    )
    insist(ended.returncode == 6, f"the drain ended with {ended.returncode}: {ended.stderr}")
    return dead


def listed(stage: Stage, dead: str) -> dict[str, Any]:
    ended = stage.drainer(
        "dead", "list", "--dead-letter-topic", dead, "-b", stage.bootstrap, "-o", "json"
    )
    insist(ended.returncode == 0, f"dead list ended with {ended.returncode}: {ended.stderr}")
    answer: dict[str, Any] = orjson.loads(ended.stdout)
    return answer


def redrive(stage: Stage, dead: str, *words: str) -> tuple[int, str]:
    ended = stage.drainer(
        *("redrive", "--dead-letter-topic", dead, "--handler", "handler.py", "--yes"),
        *("-b", stage.bootstrap, *words),
    )
    return ended.returncode, ended.stdout + ended.stderr


def handled(stage: Stage) -> list[str]:
    file = Path(stage.folder / "handled")
    return file.read_text().splitlines() if file.exists() else []


@case(
    21,
    "hostile letters among good ones",
    before="a header of 5,000 digits ended `dead list` (exit 1) and halted each redrive (exit 5);"
    " an offset of 200 nines ended `dead list -o json`; redrives of -5 were taken",
)
def hostile_letters(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    answer = listed(stage, dead)
    insist(answer["letters"] == 1, f"{answer['letters']} letters instead of 1")
    with Cluster.connect(ClientSettings.load(stage.bootstrap)) as cluster:
        (letter,) = read_letters(cluster, dead)
    (name, provenance), *headers = letter.headers
    told = json.loads(provenance or b"")
    digits = int("9" * 200)
    for made_up in (
        {"message_headers": digits},
        {"redrives": -5},
        {"message_offset": digits},
        {"several": True, "sub_key": "()"},
    ):
        insist(set(made_up) <= set(told), f"a letter has {sorted(told)}")
        header = (name, json.dumps(told | made_up).encode())
        produce(stage, dead, (b"bad", [header, *headers]))
    produce(stage, dead, (b"bad", []))
    answer = listed(stage, dead)
    insist((answer["letters"], answer["foreign"]) == (1, 5), f"the list has {answer}")
    (stage.folder / "mended").touch()
    code, err = redrive(stage, dead)
    insist(code == 0, f"the redrive ended with {code}: {err}")
    insist(len(handled(stage)) == 1, f"handled {handled(stage)}")
    return "1 letter listed and redriven, 5 records counted as foreign and left alone"


@case(
    32,
    "letters that a stranger made up among a drain's own",
    before="one of another group, and each redrive was refused; one with the sub-key 1.5, and each"
    " redrive after the first was; one of 1 MB died again, and halted each redrive",
)
def forged_letters(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer")
    with Cluster.connect(ClientSettings.load(stage.bootstrap)) as cluster:
        (letter,) = read_letters(cluster, dead)
    (name, provenance), *headers = letter.headers
    told = json.loads(provenance or b"")
    for made_up in (
        {"group": "billing"},
        {"handler": "evil.py:Evil"},
        {"sub_key": "1.5"},
        {"sub_key": repr(b"bad" * 100_000)},
        {"payload_encoding": "literal"},
    ):
        header = (name, json.dumps(told | made_up).encode())
        produce(stage, dead, (b"bad", [header, *headers]))
    full = json.dumps(told | {"message_headers": 1}).encode()
    padding = bytes(TOPIC_TAKES - len(full) - 300)
    produce(stage, dead, (b"bad", [(name, full), ("padding", padding)]))
    code, err = redrive(stage, dead, "--max-failures", "none", "--no-breaker", "--retries", "0")
    insist(code == 6, f"the first redrive ended with {code}: {err}")
    (stage.folder / "mended").touch()
    code, err = redrive(stage, dead)
    insist(code == 0, f"the second redrive ended with {code}: {err}")
    insist("left alone: 2 letters of other drains" in err, f"it does not say so: {err}")
    insist(handled(stage), "the real letter was not handled")
    return "the drain's own letter dies again, then is handled; the rest are skipped or left alone"


@case(
    21,
    "letters of two drains in one topic",
    before="a redrive sent the letters of both topics through one handler",
)
def letters_of_two_drains(stage: Stage) -> str:
    dead = stage.name()  # that of a default name belongs to one group
    for group in ("indexer", "billing"):
        dead_letters(stage, group, into=dead)
    (stage.folder / "mended").touch()
    code, err = redrive(stage, dead)
    insist(code == 3 and "--mixed" in err, f"a mixed redrive ended with {code}: {err}")
    insist(not handled(stage), "a refused redrive handled letters")
    code, err = redrive(stage, dead, "--source", "billing")
    insist((code, len(handled(stage))) == (0, 1), f"ended with {code}: {err}")
    code, err = redrive(stage, dead)
    insist((code, len(handled(stage))) == (0, 2), f"ended with {code}: {err}")
    return "refused with exit 3 until one origin is chosen; the other then is redriven alone"


@case(
    21,
    "default dead-letter topics of groups a/b and a-b",
    before="both groups wrote to TOPIC.a-b.dead",
)
def default_names(stage: Stage) -> str:
    pairs = [("orders", "a/b"), ("orders", "a-b"), ("orders.a", "b"), ("orders", "a.b")]
    names = [default_dead_letter_topic(*pair) for pair in pairs]
    insist(len(set(names)) == len(pairs), f"shared: {names}")
    longest = default_dead_letter_topic(stage.name() + "x" * 230, "g/" * 300)
    create_topic(ClientSettings.load(stage.bootstrap), longest, 1)
    return f"{names[0]} and {names[1]}; Kafka takes one of {len(longest)} characters"


@case(
    30,
    "letters on topics that were just created",
    before="5 to 8 of 5,760 acknowledged letters were not in the log: librdkafka acknowledged them"
    " without an offset",
)
def letters_of_new_topics(stage: Stage) -> str:
    settings = ClientSettings.load(stage.bootstrap)
    letters = there = 0
    for _ in range(NEW_TOPICS):
        topic = stage.name()
        create_topic(settings, topic, NEW_PARTITIONS)
        told = SimpleQueue[DrainerError | None]()
        writer = DeadLetterTopic(settings, topic)
        for number in range(3 * NEW_PARTITIONS):
            provenance = FORMAT, b"%d" % number
            writer.send(DeadLetter(b"key-%d" % number, b"{}", (provenance,)), told.put)
        answers = [told.get(timeout=TRY_S) for _ in range(3 * NEW_PARTITIONS)]
        writer.close(0)
        insist(set(answers) == {None}, f"a letter was not written: {set(answers)}")
        letters += len(answers)
        with Cluster.connect(settings) as cluster:
            bounds = cluster.log_bounds(topic, range(NEW_PARTITIONS), "read_uncommitted")
            there += sum(log.end for log in bounds.values())
            cluster.delete_topic(topic)
    insist(there == letters, f"{letters:,} letters were acknowledged, {there:,} are there")
    return f"{letters:,} letters acknowledged, and all of them are there"


@case(
    15,
    "dead letters that are still outstanding",
    before="`dead list` counted every letter that was ever written, redriven or not",
)
def outstanding_letters(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer", keys=3)
    insist(listed(stage, dead)["matching"] == 3, "not all are listed before a redrive")
    (stage.folder / "mended").touch()
    code, err = redrive(stage, dead)
    insist(code == 0, f"the redrive ended with {code}: {err}")
    answer = listed(stage, dead)
    found = {name: answer[name] for name in ("letters", "redriven", "outstanding", "matching")}
    insist(list(found.values()) == [3, 3, 0, 0], f"after the redrive: {found}")
    return f"after a redrive: {found}"


@case(
    24,
    "a redrive of the rest with another plan",
    before="10 of 40 letters ran twice, without a word; so did all behind an unreadable record",
)
def redrive_with_another_plan(stage: Stage) -> str:
    dead = dead_letters(stage, "indexer", keys=20)
    produce(stage, dead, (b"bad", []))
    dead_letters(stage, "billing", into=dead, keys=20)
    (stage.folder / "mended").touch()
    code, err = redrive(stage, dead, "--source", "billing")
    insist((code, len(handled(stage))) == (0, 20), f"the first redrive ended with {code}: {err}")
    code, err = redrive(stage, dead, "--plan", "other.json")
    insist(code == 0, f"the second redrive ended with {code}: {err}")
    code, err = redrive(stage, dead, "--plan", "third.json")
    insist(code == 0 and "Nothing to drain" in err, f"the third ended with {code}: {err}")
    twice = len(handled(stage)) - len(set(handled(stage)))
    insist((len(handled(stage)), twice) == (40, 0), f"{twice} of {len(handled(stage))} ran twice")
    answer = listed(stage, dead)
    found = {name: answer[name] for name in ("redriven", "outstanding", "foreign")}
    insist(list(found.values()) == [40, 0, 1], f"after the redrives: {found}")
    return "each letter ran once in three redrives with plans of their own"


@case(
    23,
    "a jar of the sandbox that was changed",
    before="Java ran it: no jar was compared with anything",
)
def changed_jar(stage: Stage) -> str:
    cache = stage.folder / "drainer" / default_cache().name
    shutil.copytree(default_cache(), cache)
    jar = next(cache.glob("kafka-clients-*.jar"))
    with jar.open("ab") as file:
        file.write(b"evil")
    size = jar.stat().st_size
    env = {**os.environ, "XDG_CACHE_HOME": str(stage.folder)}
    ended = stage.drainer("sandbox", "up", env=env)
    insist(ended.returncode == 3, f"the sandbox ended with {ended.returncode}: {ended.stderr}")
    insist(jar.name in ended.stderr, f"it does not say which jar: {ended.stderr}")
    insist(jar.stat().st_size == size, "the jar was replaced")
    return "refused with exit 3, naming the jar and both hashes; the folder is left as it is"


BY_THE_DAY = """
import datetime

def split(message):
    import drainer
    yield drainer.SubMessage((str(datetime.date.today()), message.key), message.value)

def handle(sub):
    pass
"""

LOSES = """
import drainer

class Loses(drainer.Handler):
    def open(self, context):
        self.sums = {}

    def state(self):
        return self.sums

    def coalesce(self, earlier, later):
        return later

    def handle(self, sub):
        self.sums[sub.key] = self.sums.get(sub.key, 0) + 1
"""


def certified(stage: Stage, handler: str, keys: Sequence[bytes], *words: str) -> tuple[int, str]:
    (stage.folder / "handler.py").write_text(handler)
    topic = stage.name()
    create_topic(ClientSettings.load(stage.bootstrap), topic, 1)
    produce(stage, topic, *[(key, []) for key in keys])
    ended = stage.drainer("certify", "handler.py", "--topic", topic, "-b", stage.bootstrap, *words)
    return ended.returncode, " ".join((ended.stdout + ended.stderr).split())


@case(
    15,
    "certify: a sub-key made of the day",
    before="passed: every process was asked on the same day",
)
def sub_key_of_the_day(stage: Stage) -> str:
    code, err = certified(stage, BY_THE_DAY, [b"a", b"b"])
    insist(code in (5, 7), f"certify ended with {code}: {err}")
    insist("whose clock is 397 days ahead" in err, f"it does not name the clock: {err}")
    return f"exit {code}: in another process whose clock is 397 days ahead"


@case(
    15,
    "certify: a coalesce that loses an operation",
    before="named the first 22 of the messages, whichever they were (`… and 18 more`)",
)
def smallest_example(stage: Stage) -> str:
    keys = [*(b"other-%d" % n for n in range(20)), b"hot", b"hot"]
    code, err = certified(stage, LOSES, keys, "--handle", "--yes")
    insist(code in (5, 7), f"certify ended with {code}: {err}")
    insist(
        "/0/20[0] (sub-key b'hot') and " in err and "as a drain folds and batches them" in err,
        f"not the two that show it: {err}",
    )
    return "names the two messages that show it, 20 and 21"
