"""The production consumer that somebody starts during a drain. It joins the group, and prints that.

The command is ``python consumer.py BOOTSTRAP GROUP TOPIC``. The consumer leaves when its standard
input ends.
"""

from __future__ import annotations

import select
import sys

from confluent_kafka import Consumer

bootstrap, group, topic = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": "checkout-7",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe([topic], on_assign=lambda *_: print("joined", flush=True))
while not select.select([sys.stdin], [], [], 0)[0]:
    consumer.poll(0.1)
consumer.close()
