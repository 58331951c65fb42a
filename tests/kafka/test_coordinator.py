"""A broker that dies amid questions to a group's coordinator, and comes back."""

from __future__ import annotations

import subprocess
import sys

from drainer.sandbox import Broker

ASKING = """
import sys
from drainer.errors import BrokerUnreachable
from drainer.kafka.cluster import Cluster
from drainer.kafka.settings import ClientSettings

def tell_and_wait(word):
    print(word, flush=True)
    sys.stdin.readline()

with Cluster.connect(ClientSettings.load(sys.argv[1]), 60) as cluster:
    cluster.group("a-group")
    tell_and_wait("connected")
    try:
        cluster.group("a-group", 4)
    except BrokerUnreachable:
        tell_and_wait("unreachable")
    for _ in range(20):
        cluster.group("a-group", 60)
    tell_and_wait("reached")
"""


def test_questions_that_a_dead_broker_left_open_do_not_end_the_process(own_broker: Broker) -> None:
    """librdkafka issue 4605: one that is open when the broker comes back may end in an abort."""
    with subprocess.Popen(
        [sys.executable, "-c", ASKING, own_broker.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def hears(word: str) -> None:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{word}\n", f"ended with {process.wait(60)}"

        try:
            hears("connected")
            own_broker.kill()
            process.stdin.write("\n")
            process.stdin.flush()
            hears("unreachable")
        finally:
            own_broker.start()
        process.stdin.write("\n")
        process.stdin.flush()
        hears("reached")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 0
