"""What waits for the drain is taken in turns, and a partition passed over holds up no other."""

from __future__ import annotations

from drainer.kafka.queue import BatchQueue
from drainer.kafka.record import Batch
from drainer.message import Origin


def batch(partition: int, size: int = 10) -> Batch:
    return Batch(Origin("orders", "id", partition), (), {}, size)


def taken(queue: BatchQueue, *passed_over: int) -> list[int]:
    found = []
    while (one := queue.take(lambda partition: partition in passed_over)) is not None:
        found.append(one.origin.partition)
    return found


def test_partitions_take_turns() -> None:
    queue = BatchQueue([0, 1, 2])
    for partition in (0, 0, 0, 1, 2, 2):
        queue.put(batch(partition))

    assert taken(queue) == [0, 1, 2, 0, 2, 0]


def test_a_partition_that_is_passed_over_waits_and_the_others_go_on() -> None:
    queue = BatchQueue([0, 1])
    for partition in (0, 0, 1, 1):
        queue.put(batch(partition))

    assert taken(queue, 0) == [1, 1]
    assert (queue.bytes, queue.bytes_of(0), queue.bytes_of(1)) == (20, 20, 0)
    assert taken(queue) == [0, 0]
    assert queue.bytes == 0


def test_batches_of_a_partition_keep_their_order() -> None:
    queue = BatchQueue([0, 1])
    put = [batch(0, size) for size in (1, 2, 3)]
    for each in put:
        queue.put(each)
        queue.put(batch(1))

    found = [queue.take(lambda partition: partition == 1) for _ in put]

    assert found == put


def test_the_first_of_each_partition_is_news() -> None:
    queue = BatchQueue([0, 1])

    assert queue.put(batch(0))
    assert not queue.put(batch(0))
    assert queue.put(batch(1))
    taken(queue)
    assert queue.put(batch(0))
