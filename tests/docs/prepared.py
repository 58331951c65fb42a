"""Preparation before a reader types a page's first command: topics, groups, handlers, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import orjson

from command.service import nothing, results, service
from core.limit_samples import measured
from docs.reader import DONE, Reader
from drainer.errors import EXIT_HALTED
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings
from drainer.limits.search.boundary import as_json
from kafka.topic import Topic, eventually
from payloads.registry import AT, Serialisers
from payloads.registry import running as registry_running

MESSAGES, FAN_OUT, DOCUMENTS = 600, 20, 400
HANDLERS = f"""\
import asyncio
import orjson
import drainer


class Reindex(drainer.Handler):
    def split(self, message):
        for doc in orjson.loads(message.value)["documents"]:
            yield drainer.SubMessage(key=doc["id"], payload=doc)

    async def handle(self, sub):
        await asyncio.sleep({{pause_s}})
        if "{{needs}}" not in sub.payload:
            raise ValueError(f"no field '{{needs}}' in {{{{sub.key}}}}")
        with open("{DONE}", "a") as done:
            print(sub.id, file=done)
"""
TOPICS = {"inbox", "orders", "orders-spread", "orders.catalog.dead", "catalog", "stock"}


class Place:
    """A reader's folder and broker, before anything is typed."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.bootstrap = reader.bootstrap

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.reader.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def handlers(self, pause_ms: int, needs: str = "title") -> None:
        """``my_handlers.py``, whose calls take so long, and fail without a field."""
        self.write("my_handlers.py", HANDLERS.format(pause_s=pause_ms / 1000, needs=needs))

    def backlog(self, topic: str, group: str, messages: int = MESSAGES, without: int = -1) -> Topic:
        """Messages of one key with updates of documents; one document may lack its title."""
        made = self.topic(topic)
        made.produce(self.values(messages, without), key=b"customer-42")
        self.commit(topic, group)
        return made

    def commit(self, topic: str, group: str) -> None:
        """Let a group stand at the beginning."""
        with connected(self.bootstrap) as cluster:
            cluster.alter_committed(group, topic, {0: 0})

    def topic(self, name: str, partitions: int = 1) -> Topic:
        return Topic(self.bootstrap, name, partitions)

    def values(self, messages: int, without: int = -1) -> Iterator[bytes]:
        for message in range(messages):
            numbers = [(message * FAN_OUT + place) % DOCUMENTS for place in range(FAN_OUT)]
            documents = [
                {"id": f"doc-{n}", "customer": (n + message) % 3 + 16, "kind": "set_email"}
                | ({} if n == without else {"title": "new"})
                for n in numbers
            ]
            yield orjson.dumps({"documents": documents})


def orders(place: Place) -> None:
    """A backlog on one partition, of one key."""
    place.handlers(pause_ms=50)
    place.backlog("orders", "indexer")


def inbox(place: Place) -> None:
    """Events of one inbox, most of them of a thread, and a service for them."""
    kinds = [{"kind": "inbox"} if n % 500 == 99 else {"thread_id": n % 50} for n in range(2_000)]
    place.topic("inbox").produce(map(orjson.dumps, kinds), key=b"inbox-1")
    place.commit("inbox", "mailer")
    place.reader.places["http://mailer/events"] = place.reader.opens(service(nothing)).url


def first_page(place: Place) -> None:
    """The backlogs of all examples on the first page."""
    orders(place)
    inbox(place)


def limits(place: Place) -> None:
    """Limits that ``drainer limits`` found on these brokers, with one group and with ten."""
    orders(place)
    with connected(place.bootstrap) as cluster:
        cluster_id = cluster.cluster_id
    for name, groups in (("limits", 1), ("ten-groups", 10)):
        rates = {100: 5_000.0 / groups, 10_000: 2_000.0 / groups}
        known = measured(rates, cluster_id=cluster_id, groups=groups)
        place.write(f"{name}.json", orjson.dumps(as_json(known)))


def customers(place: Place) -> None:
    """A backlog of several customers."""
    place.handlers(pause_ms=5)
    place.backlog("catalog", "search")


def failing(place: Place) -> None:
    """A handler that fails for one document until the letters are redriven, and a drain with it."""
    place.handlers(pause_ms=20)
    place.backlog("orders", "catalog", without=3)
    place.commit("orders", "indexer")
    drain = place.reader.starts(*run("orders", "indexer", place), "-c", "20", "--retries", "9")
    place.reader.before["drainer redrive"] = lambda: place.handlers(pause_ms=1, needs="id")
    # The page drains a range of that group again, which a drain that still runs would forbid.
    place.reader.before["drainer run -t orders -g indexer"] = drain.ended


def running(place: Place) -> None:
    """A drain that runs, in another terminal, and another when that one is over."""

    def start(*more: str) -> None:
        place.commit("orders", "indexer")
        place.reader.starts(*run("orders", "indexer", place), "-c", "20", *more)

    orders(place)
    start()
    place.reader.before["curl --unix-socket"] = partial(start, "--plan", "again.plan.json")


def parked(place: Place) -> None:
    """A drain that parked lanes, and files of secrets."""
    place.handlers(pause_ms=1)
    place.backlog("orders", "indexer", without=3)
    place.write("client.properties", f"bootstrap.servers={place.bootstrap}\n")
    place.write(".drainer-mask", "of this page\n")
    words = [*run("orders", "indexer", place), "--on-failure", "park", "--retries", "0"]
    place.reader.ends(EXIT_HALTED, *words)


def composed(place: Place) -> None:
    """Messages of one key, with a document that lacks its title, for programs on Spark."""
    place.backlog("orders", "indexer", without=3)
    place.write("client.properties", f"bootstrap.servers={place.bootstrap}\n")


def hosted(place: Place) -> None:
    """What a Job is made of."""
    orders(place)
    place.write("client.properties", f"bootstrap.servers={place.bootstrap}\n")


def stopped(place: Place) -> None:
    """A drain that was stopped."""
    orders(place)
    words = [*run("orders", "indexer", place), "--plan", "orders.plan.json"]
    place.reader.stops(*words)


def wide(place: Place) -> None:
    """A backlog, the topic that it is spread over, and messages that come before the cut-over."""
    source = place.backlog("orders", "indexer")
    place.topic("orders-spread", partitions=12)
    later: list[bytes] = []

    def comes() -> None:
        source.produce(later, key=b"customer-42")
        later[:] = place.values(MESSAGES // 12)

    place.reader.before["drainer run"] = comes


def of_registry(place: Place) -> None:
    """Orders in Avro, whose schema is in a registry, and a handler of what is decoded."""
    place.handlers(pause_ms=1)
    read = (place.reader.folder / "my_handlers.py").read_text()
    decoded = 'orjson.loads(message.value)["documents"]'
    assert decoded in read
    place.write("my_handlers.py", read.replace(decoded, "[message.decoded | {'title': 'new'}]"))
    registry = place.reader.opens(registry_running())
    place.reader.places["http://registry:8081"] = registry.url
    write = Serialisers(registry.url, "orders")
    orders = [{"id": f"o-{n}", "at": AT, "to": None} for n in range(MESSAGES)]
    place.topic("orders").produce([write.avro(each) for each in orders])
    place.commit("orders", "indexer")


def of_service(place: Place) -> None:
    """A backlog, and a service for its batches."""
    orders(place)
    served = place.reader.opens(service(results))
    client = f"bootstrap.servers={place.bootstrap}\nhttp.token=TOKEN\n"
    place.write("client.properties", client)
    place.reader.places["https://indexer.internal/drain"] = served.url


def run(topic: str, group: str, place: Place) -> list[str]:
    what = ["--topic", topic, "--group", group, "--handler", "my_handlers.py:Reindex"]
    return ["run", *what, "-b", place.bootstrap, "--yes"]


PREPARED: dict[str, Callable[[Place], None]] = {
    "README.md": first_page,
    "docs/howto/broker-limits.md": limits,
    "docs/howto/check-a-handler.md": orders,
    "docs/howto/cluster.md": stopped,
    "docs/howto/concurrency.md": orders,
    "docs/howto/customer-first.md": customers,
    "docs/howto/failures.md": failing,
    "docs/howto/finer-key.md": inbox,
    "docs/howto/follow.md": orders,
    "docs/howto/inspect.md": orders,
    "docs/howto/kubernetes.md": hosted,
    "docs/howto/lag.md": orders,
    "docs/howto/monitor.md": orders,
    "docs/howto/payloads.md": of_registry,
    "docs/howto/permissions.md": parked,
    "docs/howto/rekey.md": wide,
    "docs/howto/spark.md": orders,
    "docs/howto/spark-verbs.md": composed,
    "docs/howto/steer.md": running,
    "docs/howto/tonight.md": orders,
    "docs/reference/http.md": of_service,
    "docs/reference/rules.md": orders,
}


@contextmanager
def prepared(page: str, folder: Path, bootstrap: str) -> Iterator[Reader]:
    """A reader of a page, who finds all that it speaks of; nothing of it is left afterwards."""
    try:
        with Reader(folder, bootstrap) as reader:
            if page in PREPARED:
                PREPARED[page](Place(reader))
            yield reader
    finally:
        with connected(bootstrap) as cluster:
            for topic in TOPICS & set(cluster.topic_names()):
                cluster.delete_topic(topic)
            eventually(lambda: not TOPICS & set(cluster.topic_names()), "its topics are gone")


def connected(bootstrap: str) -> Cluster:
    return Cluster.connect(ClientSettings.load(bootstrap), 60)
