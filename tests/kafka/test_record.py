"""Messages as the client gives them: what is kept of them in memory."""

from __future__ import annotations

import tracemalloc

from drainer.kafka.cluster import Cluster
from drainer.kafka.stream import read_range
from drainer.message import Message, Origin
from kafka.reader import numbered
from kafka.topic import Topic

COUNT, SIZE = 20, 500_000


def test_a_message_that_is_let_go_holds_nothing_of_its_record(
    cluster: Cluster, bootstrap: str, topic_name: str
) -> None:
    topic = Topic(bootstrap, topic_name)
    topic.produce(numbered(COUNT, size=SIZE))
    origin = Origin(topic.name, cluster.topic(topic.name).topic_id, 0)
    messages: list[Message] = []
    tracemalloc.start()
    try:
        for batch in read_range(cluster.settings, origin, 0, COUNT, reader="a-test"):
            messages.extend(batch.messages)
        del batch
        held = tracemalloc.get_traced_memory()[0]
        for message in messages:
            message.let_go()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    assert held > COUNT * SIZE, "they were there"
    assert left < SIZE
    assert [message.offset for message in messages] == list(range(COUNT))
    assert (messages[0].value, messages[0].headers, messages[0].timestamp) == (None, (), None)
